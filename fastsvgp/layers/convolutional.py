"""Layers on the patches of images: the output for an image is another image, drawn per patch.

P functions at the R x S windows of an image are R S P outputs, an image of P channels. They are
drawn from the marginals at each patch: correlations between the patches of one image are ignored,
as in Dutordoir et al. (2020) and Shi et al. (2020, G.2). So a layer on images is a plain layer with
R S rows per image; this module only cuts images into patches and reassembles outputs to images.

Constant patches of one value, such as the black ones of digits, have equal marginals. Without a
cotangent of X they pass as one row, and the cotangents of their marginals are summed. Their draws
stay different.
"""

import numpy as np

from .. import check, kernels
from ..bounds.posterior_passes import layer_pass
from ..bounds.protocol import ALL, LayerProtocol
from ..covariances import Covariance
from ..covariances.checks import refuse_codes
from ..covariances.convolutional_sums import num_windows
from ..covariances.image_patches import OnPatches
from ..means import Mean
from ..posteriors import Posterior
from ..records import Marginals, record
from ..records.inducing_sets import naming_repeated
from ..records.typed import Array, Record


@record
class ConvolutionalLayer(OnPatches):
    """P functions of the patches of an image; the values at its windows are an image of P channels.

    Rows of its inputs are images (H W C): pixels row by row, channels last. Windows of h x w pixels
    are ``stride`` apart; there are R = (H - h) // stride + 1 rows of S = (W - w) // stride + 1. The
    outputs are R S P columns in the same order. ``output_shape`` = (R, S, P) is the ``image_shape``
    of the next layer, or of its ``Convolutional`` covariance.

    Parameters
    ----------
    covariance : Covariance
        Of patches (h w C columns, channels last).
    inducing : (M, h w C) array, or a record
        As in a ``Layer``: patches.
    posterior : Posterior
        As in a ``Layer``. The leading axis of its fields is P, the channels.
    mean : Mean, optional
        Of patches: a ``LinearMean`` of weights (P, h w C) is a bank of P filters, such as
        ``pca_mean(patches, P)``. With ``None``, as in Shi et al., a layer whose posterior mean is
        zero forgets the image.
    image_shape : (H, W, C), or (H, W) for one channel
    patch_shape : (h, w)
    stride : int

    Notes
    -----
    The flops of a ``Layer`` with R S rows per image. Equal constant patches count once if X has no
    gradient. Source: Blomqvist, Kaski & Heinonen, "Deep Convolutional Gaussian Processes" (2018);
    Dutordoir et al. 2020; Shi et al. 2020, G.2.

    Examples
    --------
    >>> q = fs.Whitened(mean=np.zeros((2, 5)), scale_tril=np.stack([np.eye(5)] * 2))
    >>> shapes = dict(image_shape=(3, 3), patch_shape=(2, 2))
    >>> layer = fs.layers.ConvolutionalLayer(fs.RBF(), np.zeros((5, 4)), q, **shapes)
    >>> layer.posterior
    Whitened(mean=<float64 (2, 5)>, scale_tril=<float64 (2, 5, 5)>)
    """

    covariance: Covariance
    inducing: Array | Record
    posterior: Posterior
    mean: Mean | None = None

    @property
    def rows_each(self):
        """R S, the number of patches per image."""
        return num_windows(self.geometry)

    @property
    def output_shape(self):
        """(R, S, P)."""
        H, W, _, h, w, stride = self.geometry
        channels = self.posterior.check_size(*self.covariance.num_inducing(self.inducing))[0]
        return (H - h) // stride + 1, (W - w) // stride + 1, channels

    def check_parts(self):
        """Raise ``TypeError`` as a ``Layer`` does."""
        check.parts(self)

    def check_shapes(self):
        """Return ``(H W C, (R S P,))``, with the errors of a ``Layer``."""
        H, W, C, h, w, _ = self.geometry
        refuse_codes("ConvolutionalLayer.covariance", self.covariance, "patches of images")
        sizes, columns = check.inducing(
            self, self.posterior.num_sets, f"a {type(self.posterior).__name__} posterior"
        )
        if columns != h * w * C:
            raise ValueError(
                f"`inducing` is for {columns} columns, but the patches of this ConvolutionalLayer"
                f" have {h} x {w} x {C} = {h * w * C} numbers; see"
                " fastsvgp.covariances.extract_patches"
            )
        channels = self.posterior.check_size(*sizes)
        if len(channels) != 1:
            raise ValueError(
                "the fields of the `posterior` of a ConvolutionalLayer need one leading axis, its"
                f" channels, got {channels}: use mean (P, {sizes[0]})"
            )
        if self.mean is not None:
            self.mean.check_shapes(columns, channels)
        return H * W * C, (self.rows_each * channels[0],)

    def start(self, jitter, columns=0, need=(), **more):
        """Begin a pass through this layer, as a ``Layer`` does."""
        return PatchPass(self, jitter, columns, need, **more)


class PatchPass(LayerProtocol):
    """Pass through a ``ConvolutionalLayer``: a ``LayerPass`` on patches, from images to images.

    Arguments as in ``LayerPass``.
    """

    def __init__(self, layer, jitter, columns=0, need=(), **more):
        self._geometry, self._each, self._merging = (
            layer.geometry,
            layer.rows_each,
            "inputs" not in need,
        )
        self._channels = layer.output_shape[-1]
        self._of_patches = layer_pass(layer, jitter, columns * self._each, need, **more)
        for name in ("kl", "natural_sums", "natural_step", "finish"):
            setattr(self, name, getattr(self._of_patches, name))

    @property
    def sizes(self):
        return [(self._of_patches.num_inducing, self._each)]

    @property
    def clamped(self):
        return self._of_patches.clamped

    def _patches(self, X):
        """Return the patches (N R S, h w C)."""
        patches = kernels.gather_patches(X, self._geometry)
        return patches.reshape(-1, patches.shape[-1])

    def forward(self, X, rows=ALL):
        """Return ``(Marginals, residuals)`` of the outputs (R S P, N) for images X (N, H W C)."""
        patches = self._patches(X)
        patches, which = merge_patches(patches) if self._merging else (patches, None)
        f, residuals = self._of_patches.forward(patches)
        return Marginals(*(self._image(moment, which, len(X)) for moment in (f.mean, f.var))), (
            residuals,
            which,
        )

    def means(self, X, rows=ALL):
        """As in a ``LayerPass``."""
        patches, which = merge_patches(self._patches(X))
        return self._image(self._of_patches.means(patches), which, len(X))

    @staticmethod
    def _image(moment, which, N):
        """Map (P, patches) to (R S P, N): a view of images (N, R S P) in memory."""
        by_patch = (
            np.ascontiguousarray(moment.T, like=moment)
            if which is None
            else np.take(moment.T, which, axis=0)
        )
        return by_patch.reshape(N, -1).T

    def pull(self, rows, f_bar):
        """As in a ``LayerPass``; the cotangents are those of X (N, H W C)."""
        rows, which = rows
        f_bar = Marginals(*(self._image_vjp(bar, which) for bar in (f_bar.mean, f_bar.var)))
        patches_bar = self._of_patches.pull(rows, f_bar)
        if patches_bar is None:
            return None
        return kernels.gather_patches_vjp(
            patches_bar.reshape(-1, self._each, patches_bar.shape[-1]), self._geometry
        )

    def _image_vjp(self, bar, which):
        """Apply the transpose of ``_image``: (P, patches), with sums over merged patches."""
        by_output = np.ascontiguousarray(
            bar.reshape(self._each, -1, bar.shape[-1]).transpose(1, 2, 0), like=bar
        )
        by_output = by_output.reshape(len(by_output), -1)
        return (
            by_output
            if which is None
            else np.stack([np.bincount(which, one) for one in by_output]).astype(bar.dtype)
        )

    def floor(self, X):
        """As in a ``LayerPass``: an array that broadcasts to (R S P, N)."""
        by_patch = self._of_patches.floor(self._patches(X)).reshape(len(X), -1)
        return np.repeat(by_patch.T, self._channels, axis=0)

    def sample(self, X, num_samples, jitter, rng, name=None):
        with naming_repeated(X if name else None, name):
            samples = self._of_patches.sample(self._patches(X), num_samples, jitter, rng)
        return samples.reshape(num_samples, len(X), -1)


def merge_patches(patches):
    """Return ``(rows, which)``: equal constant patches as one row, and ``rows[which]`` the patches.

    ``which`` is None if nothing is saved. Only on the host: on a device the number of rows would
    need a synchronisation.
    """
    if type(patches) is not np.ndarray:
        return patches, None
    constant = (patches == patches[:, :1]).all(axis=1)
    first, inverse = np.unique(patches[constant, 0], return_index=True, return_inverse=True)[1:]
    if len(first) == len(inverse):
        return patches, None
    others = len(patches) - len(inverse)
    which = np.empty(len(patches), np.intp)
    which[~constant], which[constant] = np.arange(others), others + inverse
    return np.concatenate([patches[~constant], patches[constant][first]]), which
