"""Inducing patches from images, for convolutional covariances."""

from typing import overload

import numpy as np

from .. import check, kernels
from ..covariances import Convolutional
from ..errors import names_options
from ..records.inducing_sets import InducingPair
from ..records.typed import Array, ArrayLike, Seed
from ..runtime import devices
from .choice import kmeans
from .subset import as_data, random_rows, sizes_of_sets


@overload
def patches(X: ArrayLike, M: int, covariance: Convolutional, rng: Seed = ...) -> Array: ...
@overload
def patches(
    X: ArrayLike, M: tuple[int, int], covariance: Convolutional, rng: Seed = ...
) -> InducingPair: ...
@names_options
def patches(X, M, covariance, rng=None):
    """Choose inducing patches for a ``Convolutional`` covariance by k-means on distinct patches.

    Parameters
    ----------
    X : (N, H W C) array
        Images, in the layout of the covariance.
    M : int, or (M, M2)
        Number of inducing patches, as in ``inducing.kmeans``.
    covariance : Convolutional
        Covariance of the images. With a location covariance, patches and their locations are
        clustered together; locations are scaled to the total variance of the patches, so that both
        have equal weight.
    rng : None, int or Generator

    Returns
    -------
    Z : (M, h w C) array, or ``InducingPair``
        Inducing patches, in the dtype of X. With a location covariance they have two more columns,
        the location of each.

    Raises
    ------
    ValueError, TypeError
        Fewer than M distinct patches in the sample; X does not have H W C columns; NaN or infinity.

    Notes
    -----
    Samples about 20 000 patches, at least 10 M, from at most 1000 images, or more if the images
    have too few patches. The cost is that of ``inducing.kmeans``.

    Examples
    --------
    >>> shapes = dict(image_shape=(4, 4), patch_shape=(2, 2))
    >>> of_patches = fs.covariances.Convolutional(fs.RBF(1.0, 1.0), 1 / 9, **shapes)
    >>> images = np.arange(48.0).reshape(3, 16) ** 2
    >>> fs.inducing.patches(images, 5, of_patches, rng=0).shape
    (5, 4)
    """
    rng, (total, divided) = check.generator(rng), sizes_of_sets(M)
    if not hasattr(covariance, "geometry"):
        raise TypeError(
            "patches: `covariance` must be a fastsvgp.covariances.Convolutional, got"
            f" {type(covariance).__name__}"
        )
    geometry, X = covariance.geometry, as_data(X)
    places = kernels.window_places(geometry, np.empty(0))
    images, dtype, device_like = random_rows(
        "patches", X, 1, rng, max(1000, -(-10 * total // len(places)))
    )
    covariance.check_dim(images.shape[1])
    each, patches = min(len(places), -(-max(20_000, 10 * total) // len(images))), []
    for image in images:
        chosen = np.sort(rng.choice(len(places), each, replace=False))
        patch = kernels.gather_patches(image[None], geometry)[0, chosen]
        patches.append(
            patch
            if covariance.location_covariance is None
            else np.concatenate([patch, places[chosen]], 1)
        )
    patches = np.unique(np.concatenate(patches), axis=0)
    if len(patches) < total:
        raise ValueError(
            f"patches: {total} inducing patches were requested, but only {len(patches)}"
            " distinct ones found; choose a smaller M"
        )
    scale = np.ones(patches.shape[1])
    if covariance.location_covariance is not None:
        variances = patches.var(axis=0)
        of_patches, of_places = variances[:-2].sum(), variances[-2:].sum()
        scale[-2:] = np.sqrt(of_patches / of_places) if of_patches > 0 and of_places > 0 else 1.0
    Z = kmeans(patches * scale, total, rng) / scale
    return divided(devices.copy_to(Z.astype(dtype), device_like))
