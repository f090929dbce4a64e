"""Patches of images: the settings, their checks, and ``extract_patches``."""

from dataclasses import dataclass
from typing import Any

from .. import check, kernels
from ..records import static
from ..records.typed import Array, ArrayLike


def geometry_of(image_shape, patch_shape, stride):
    """(H, W, C, h, w, stride), checked."""
    sizes = {"image_shape": image_shape, "patch_shape": patch_shape}
    for name, value in sizes.items():
        expected = "(H, W) or (H, W, C)" if name == "image_shape" else "(h, w)"
        if not isinstance(value, (tuple, list)) or len(value) not in (
            (2, 3) if name == "image_shape" else (2,)
        ):
            raise ValueError(f"`{name}` must be {expected}, whole numbers, got {value!r:.200}")
        sizes[name] = tuple(check.whole(name, number) for number in value)
    (H, W, *C), (h, w) = sizes.values()
    if h > H or w > W:
        raise ValueError(
            f"`patch_shape` {(h, w)} is larger than `image_shape` {(H, W, *C)}; patches must lie in"
            " the image"
        )
    return H, W, *(C or (1,)), h, w, check.whole("stride", stride)


def check_image_columns(who, D, geometry):
    H, W, C, *_ = geometry
    if D != H * W * C:
        raise ValueError(
            f"{who}: `X` has {D} columns, but an image of `image_shape` {(H, W, C)} has"
            f" {H * W * C}; give one image per row"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnPatches:
    """Settings that define the patches of an image."""

    image_shape: Any = static()
    patch_shape: Any = static()
    stride: Any = static(default=1)

    @property
    def geometry(self):
        """(H, W, C, h, w, stride) as kernels take it; raise ``ValueError`` if inconsistent."""
        return geometry_of(self.image_shape, self.patch_shape, self.stride)

    @property
    def columns_of(self):
        """For messages: it has as many columns as the inputs."""
        return f"an image {tuple(self.image_shape)}"


def extract_patches(
    X: ArrayLike, image_shape: tuple[int, ...], patch_shape: tuple[int, int], stride: int = 1
) -> Array:
    """Extract the patches of images, in the order that ``Convolutional`` uses.

    Parameters
    ----------
    X : (N, H W C) array
        Images: pixels row by row, channels last. Reshape (N, H, W[, C]) arrays.
    image_shape : (H, W, C), or (H, W) for one channel
    patch_shape : (h, w)
    stride : int
        Distance between neighbouring windows, in pixels.

    Returns
    -------
    (N, patches, h w C) array
        Windows row by row; the numbers of each window are ordered like those of an image.

    Raises
    ------
    ValueError, TypeError
        X does not have H W C columns, patches are larger than the image, the stride is below 1; NaN
        or infinity.

    Examples
    --------
    >>> image = np.arange(9.0)[None]
    >>> fs.covariances.extract_patches(image, image_shape=(3, 3), patch_shape=(2, 2))[0]
    array([[0., 1., 3., 4.],
           [1., 2., 4., 5.],
           [3., 4., 6., 7.],
           [4., 5., 7., 8.]])
    """
    X, geometry = check.inputs("X", X), geometry_of(image_shape, patch_shape, stride)
    check_image_columns("extract_patches", X.shape[1], geometry)
    return kernels.gather_patches(X, geometry)
