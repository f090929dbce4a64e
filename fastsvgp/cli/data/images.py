"""``--patch-shape``: rows are images, and functions are sums over their patches."""

import math

import numpy as np

import fastsvgp as fs

from ..errors import UsageError, refuse_beside
from ..settings.names import WITH_PATCHES

SOME = 200  # images whose patches determine the lengthscales
FEW = 8  # images whose differences determine the variance
# last step sizes, as fractions of the first: of Adam, and of natural-gradient steps
LAST, LAST_NATURAL = 0.005, 0.2
# the step size of the weights is the learning rate times SHARE times their initial size
SHARE = 10


def resolve(args, task):
    """Return ``image_shape`` and ``stride``; refuse invalid combinations of arguments.

    The shape is given by the user or the file; otherwise the image is square.
    """
    if args.patch_shape is None:
        for option, value in (("--image-shape", args.image_shape), ("--stride", args.stride)):
            if value is not None:
                raise UsageError(
                    f"{option} is for functions of patches; also give --patch-shape, for example"
                    f" 5x5, or leave {option} out"
                )
        return {"image_shape": None, "stride": None}
    refuse_beside(args.method or WITH_PATCHES[0], WITH_PATCHES, patch_shape=args.patch_shape)
    columns, requested = task.X.shape[1], args.image_shape and (*args.image_shape, 1)[:3]
    if requested and task.image_shape and requested != task.image_shape:
        raise UsageError(
            f"--image-shape {describe(requested)}: the images in the file are"
            f" {describe(task.image_shape)}; leave --image-shape out"
        )
    shape = requested or task.image_shape or _square(columns)
    if math.prod(shape) != columns:
        where = "--image-shape" if requested else "the images in the file are"
        raise UsageError(
            f"{where} {describe(shape)}: that is {math.prod(shape)} numbers per image, but there"
            f" are {columns} inputs"
        )
    if args.patch_shape[0] > shape[0] or args.patch_shape[1] > shape[1]:
        raise UsageError(
            f"--patch-shape {describe(args.patch_shape)} is larger than the images,"
            f" {describe(shape)}; give a smaller one"
        )
    return {"image_shape": shape, "stride": args.stride or 1}


def _square(columns):
    side = math.isqrt(columns)
    if side * side != columns:
        raise UsageError(
            f"--patch-shape: rows of {columns} inputs are not square images with one channel; give"
            " --image-shape HxWxC"
        )
    return side, side, 1


def describe(shape):
    return "x".join(map(str, shape))


def covariance(X, kind, settings, rng):
    """Build the initial covariance of images.

    The lengthscales come from distances between distinct patches; the weights are equal. Most of a
    sum over patches is common to all images: the variance is set so that the rest has variance 1.
    """
    shapes = {
        "image_shape": settings.image_shape,
        "patch_shape": settings.patch_shape,
        "stride": settings.stride,
    }
    some = np.sort(rng.choice(len(X), min(SOME, len(X)), replace=False))
    patches = fs.covariances.extract_patches(X[some], **shapes)
    count = patches.shape[1]
    lengthscales = fs.inducing.median_lengthscales(
        np.unique(patches.reshape(-1, patches.shape[2]), axis=0), rng=rng, ard=settings.ard
    )
    weights = np.full(count, 1 / count, X.dtype)
    unit = fs.covariances.Convolutional(
        kind(variance=1.0, lengthscales=lengthscales), weights, **shapes
    )
    K = unit.Kff(X[some[:FEW]])
    differing = K.diagonal().mean() - K[np.triu_indices(len(K), 1)].mean()
    # the images can all be equal
    variance = float(1 / differing) if differing > np.finfo(K.dtype).eps else 1.0
    return fs.covariances.Convolutional(
        kind(variance=variance, lengthscales=lengthscales), weights, **shapes
    )


def optimiser(model, rate, total):
    """Return Adam with step sizes that fall along half a cosine.

    The weights start at one over their number, so the plain rate is too large for them. Measured
    NLPD after 400 steps of 100 rows:

        step size of the weights / rate        1       0.1     0.02     0 (fixed)
        digits, 8 x 8 pixels, 36 patches       0.094   0.111   0.133 *  0.236
        3,500 of MNIST, stride 2, 144 patches  0.360   0.303   0.272    0.557

    (* at 0.03).
    """
    weights = rate * min(1.0, SHARE / len(model.covariance.weights))
    size, of_weights = (
        fs.optim.schedules.cosine(start, LAST * start, total) for start in (rate, weights)
    )
    return fs.adam(size, transform="log", step_sizes={"covariance.weights": of_weights})


def falling_step(natural, total):
    """Return a natural-gradient step size that falls like the others, to ``LAST_NATURAL`` of it."""
    size, share = (
        fs.optim.schedules.as_schedule(natural),
        fs.optim.schedules.cosine(1.0, LAST_NATURAL, total),
    )
    return lambda count: size.size(count, None) * share.size(count, None)
