"""How an image is cut into patches: the settings, their checks, and the patches themselves."""

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
            f" {H * W * C}; give one a row"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnPatches:
    """The settings by which an image is cut into patches."""

    image_shape: Any = static()
    patch_shape: Any = static()
    stride: Any = static(default=1)

    @property
    def geometry(self):
        """(H, W, C, h, w, stride), as kernels take it; ``ValueError`` where these do not go together."""
        return geometry_of(self.image_shape, self.patch_shape, self.stride)

    @property
    def columns_of(self):
        """What has as many columns as the inputs, in messages."""
        return f"an image {tuple(self.image_shape)}"


def extract_patches(
    X: ArrayLike, image_shape: tuple[int, ...], patch_shape: tuple[int, int], stride: int = 1
) -> Array:
    """The patches of images, as ``Convolutional`` sees them.

    Parameters
    ----------
    X : (N, H W C) array
        Images, row by row, channels last; (N, H, W[, C]) reshaped.
    image_shape : (H, W, C), or (H, W) for one channel
    patch_shape : (h, w)
    stride : int
        How many pixels the windows lie apart.

    Returns
    -------
    (N, patches, h w C) array
        Windows row by row; the numbers of each in the order of those of an image.

    Raises
    ------
    ValueError, TypeError
        Columns that are not H W C, patches larger than the image, a stride below 1; NaN or
        infinity.

    Examples
    --------
    >>> fs.extract_patches(np.arange(9.0)[None], image_shape=(3, 3), patch_shape=(2, 2))[0]
    array([[0., 1., 3., 4.],
           [1., 2., 4., 5.],
           [3., 4., 6., 7.],
           [4., 5., 7., 8.]])
    """
    X, geometry = check.inputs("X", X), geometry_of(image_shape, patch_shape, stride)
    check_image_columns("extract_patches", X.shape[1], geometry)
    return kernels.gather_patches(X, geometry)
