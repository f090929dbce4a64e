"""Inducing patches from images."""

from typing import overload

import numpy as np

from .. import check, kernels
from ..covariances import Convolutional
from ..errors import names_options
from ..records.inducing_sets import InducingPair
from ..records.typed import Array, ArrayLike, Seed
from ..runtime import devices
from .inducing import kmeans_inducing
from .subset import as_data, random_rows, sizes_of_sets


@overload
def patch_inducing(X: ArrayLike, M: int, covariance: Convolutional, rng: Seed = ...) -> Array: ...
@overload
def patch_inducing(
    X: ArrayLike, M: tuple[int, int], covariance: Convolutional, rng: Seed = ...
) -> InducingPair: ...
@names_options
def patch_inducing(X, M, covariance, rng=None):
    """Inducing patches for a ``Convolutional`` covariance: centres of clusters of the distinct patches of images.

    Parameters
    ----------
    X : (N, H W C) array
        Images, in the layout of the covariance.
    M : int, or (M, M2)
        As of ``kmeans_inducing``.
    covariance : Convolutional
        With a location covariance clusters are of patches and places together, these scaled to the
        same total variance, so that both count alike.
    rng : None, int or Generator

    Returns
    -------
    Z : (M, h w C) array, or ``InducingPair``
        With two more columns, the place of each, where there is a location covariance. In the dtype
        of X.

    Raises
    ------
    ValueError, TypeError
        Fewer than M distinct patches among those looked at; columns that are not H W C, NaN or
        infinity.

    Notes
    -----
    It looks at some 20 000 patches, at least 10 M, of at most 1000 images or as many as that takes.
    Cost as of ``kmeans_inducing``.

    Examples
    --------
    >>> of_patches = fs.Convolutional(fs.RBF(1.0, 1.0), 1 / 9, image_shape=(4, 4), patch_shape=(2, 2))
    >>> images = np.arange(48.0).reshape(3, 16) ** 2
    >>> fs.patch_inducing(images, 5, of_patches, rng=0).shape
    (5, 4)
    """
    rng, (total, divided) = check.generator(rng), sizes_of_sets(M)
    if not hasattr(covariance, "geometry"):
        raise TypeError(
            "patch_inducing: `covariance` must be a fastsvgp.Convolutional, got"
            f" {type(covariance).__name__}"
        )
    geometry, X = covariance.geometry, as_data(X)
    places = kernels.window_places(geometry, np.empty(0))
    images, dtype, home = random_rows(
        "patch_inducing", X, 1, rng, max(1000, -(-10 * total // len(places)))
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
            f"patch_inducing: {total} inducing patches were asked for, but only {len(patches)}"
            " distinct ones found"
        )
    scale = np.ones(patches.shape[1])
    if covariance.location_covariance is not None:
        variances = patches.var(axis=0)
        of_patches, of_places = variances[:-2].sum(), variances[-2:].sum()
        scale[-2:] = np.sqrt(of_patches / of_places) if of_patches > 0 and of_places > 0 else 1.0
    Z = kmeans_inducing(patches * scale, total, rng) / scale
    return divided(devices.like(Z.astype(dtype), home))
