"""``--patch-shape``: rows that are images, and functions that are sums over their patches."""

import math

import numpy as np

import fastsvgp as fs

from ..errors import UsageError
from ..settings.names import WITH_PATCHES

SOME = 200  # images whose patches tell the lengthscales,
FEW = 8  # and by whose differences the variance is set
# parts of step sizes of Adam, and of natural steps, that are left in the end
LAST, LAST_NATURAL = 0.005, 0.2
# of the size that weights start from, times the learning rate, is what Adam moves them by in a step
SHARE = 10


def resolve(args, task):
    """``image_shape``, as given, as in the file, or a square, and ``stride``; refuses what does not go together."""
    if args.patch_shape is None:
        for option, value in (("--image-shape", args.image_shape), ("--stride", args.stride)):
            if value is not None:
                raise UsageError(
                    f"{option} is for functions of patches; give --patch-shape too, such as 5x5, or"
                    " leave it out"
                )
        return {"image_shape": None, "stride": None}
    if args.method is not None and args.method not in WITH_PATCHES:
        raise UsageError(
            f"--patch-shape is for --method {', '.join(WITH_PATCHES)}; with {args.method} leave"
            " it out"
        )
    columns, given = task.X.shape[1], args.image_shape and (*args.image_shape, 1)[:3]
    if given and task.image_shape and given != task.image_shape:
        raise UsageError(
            f"--image-shape {describe(given)}: the images in the file are {describe(task.image_shape)}"
        )
    shape = given or task.image_shape or _square(columns)
    if math.prod(shape) != columns:
        where = "--image-shape" if given else "the images in the file are"
        raise UsageError(
            f"{where} {describe(shape)}: that is {math.prod(shape)} numbers an image, but there are"
            f" {columns} inputs"
        )
    if args.patch_shape[0] > shape[0] or args.patch_shape[1] > shape[1]:
        raise UsageError(
            f"--patch-shape {describe(args.patch_shape)} is larger than the images, {describe(shape)};"
            " give a smaller one"
        )
    return {"image_shape": shape, "stride": args.stride or 1}


def _square(columns):
    side = math.isqrt(columns)
    if side * side != columns:
        raise UsageError(
            f"--patch-shape: rows of {columns} inputs are no square images of one channel; give"
            " --image-shape HxWxC"
        )
    return side, side, 1


def describe(shape):
    return "x".join(map(str, shape))


def covariance(X, kind, settings, rng):
    """That of images to start from: patches at lengthscales of the distances between distinct ones, and equal weights.

    Most of a sum over patches is the same in all images. The variance is such that what differs has
    variance 1.
    """
    shapes = {
        "image_shape": settings.image_shape,
        "patch_shape": settings.patch_shape,
        "stride": settings.stride,
    }
    some = np.sort(rng.choice(len(X), min(SOME, len(X)), replace=False))
    patches = fs.extract_patches(X[some], **shapes)
    count = patches.shape[1]
    lengthscales = fs.median_lengthscales(
        np.unique(patches.reshape(-1, patches.shape[2]), axis=0), rng=rng, ard=settings.ard
    )
    weights = np.full(count, 1 / count, X.dtype)
    unit = fs.Convolutional(kind(variance=1.0, lengthscales=lengthscales), weights, **shapes)
    K = unit.Kff(X[some[:FEW]])
    differing = K.diagonal().mean() - K[np.triu_indices(len(K), 1)].mean()
    # of images that are all the same
    variance = float(1 / differing) if differing > np.finfo(K.dtype).eps else 1.0
    return fs.Convolutional(kind(variance=variance, lengthscales=lengthscales), weights, **shapes)


def optimiser(model, rate, total):
    """Adam whose step sizes fall along half a cosine.

    Weights start at one over their number: the rate would be noise to them.

    Measured after 400 steps of 100 rows, NLPD at the plain rate, at 0.1 and 0.02 of it, and with
    weights that stay: digits of 8 x 8 pixels (36 patches) 0.094, 0.111, 0.133 (0.03), 0.236; 3,500
    of MNIST's (stride 2, 144 patches) 0.360, 0.303, 0.272,
    0.557.
    """
    weights = rate * min(1.0, SHARE / len(model.covariance.weights))
    size, of_weights = (
        fs.schedules.cosine(start, LAST * start, total) for start in (rate, weights)
    )
    return fs.adam(size, transform="log", step_sizes={"covariance.weights": of_weights})


def falling_step(natural, total):
    """A natural step size that falls beside the others, to a part of itself."""
    size, share = fs.schedules.as_schedule(natural), fs.schedules.cosine(1.0, LAST_NATURAL, total)
    return lambda count: size.size(count, None) * share.size(count, None)
