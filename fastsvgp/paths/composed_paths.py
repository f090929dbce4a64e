"""Functions made of functions: mixtures of latent ones, functions of patches, chains of layers.

mixed:    f(x) = W g(x) + mean(x)                  g_bar = W' f_bar
patches:  the values of g at the windows of x      the cotangents of its patches, added up
chained:  f(x) = g_L(... g_2(g_1(x)))              from the last layer to the first
"""

from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..covariances.convolutional_sums import num_windows
from ..covariances.features.points import as_rows
from ..covariances.image_patches import OnPatches, check_image_columns
from ..latents.mixing import Mixing
from ..layers.layer import naming_layer
from ..means import Mean
from ..records import leaf, plus, record, replace, static
from ..records.typed import Array
from .layer_paths import add_mean


class Composed:
    """Base of functions made of the functions in a field: one record, or a tuple."""

    field: ClassVar[str]

    @property
    def parts(self):
        """The functions, a tuple."""
        parts = getattr(self, self.field)
        return parts if isinstance(parts, tuple) else (parts,)

    @property
    def num_functions(self):
        """S."""
        return self.parts[0].num_functions

    def weight_arrays(self):
        """Return the arrays of weights, a list."""
        return sum((part.weight_arrays() for part in self.parts), [])

    def check_points(self, X, name):
        """Raise ``ValueError`` unless points (n, D) fit."""
        self.parts[0].check_points(X, name)

    def take(self, index):
        """Return the functions of an index, as ``LayerPaths`` do."""
        parts = getattr(self, self.field)
        one = not isinstance(parts, tuple)
        taken = parts.take(index) if one else tuple(part.take(index) for part in parts)
        return replace(self, **{self.field: taken})


@record
class MixedPaths(Composed):
    """Latent functions side by side, mixed linearly.

    Parameters
    ----------
    latents : tuple of LayerPaths
    mixing, mean
        As of a ``MultiGP``.
    outputs : () or (J,)
        Axes of the outputs. Static.
    """

    latents: tuple
    mixing: Array | tuple[Array, ...] | None = leaf("tuple", default=None)
    mean: Mean | None = None
    outputs: tuple = static(default=())

    field = "latents"

    def check_points(self, X, name):
        for latent in self.latents:
            latent.check_points(X, name)

    def forward(self, X):
        found, mixing = [latent.forward(X) for latent in self.latents], Mixing(self.mixing)
        g = np.concatenate([values for values, _ in found], axis=1)
        values = _split(mixing.mix_values(_join(g)), g.shape)
        of_mean = add_mean(values, self.mean, X, self.outputs)
        parts, shape = [(values.shape[1], back) for values, back in found], g.shape

        def back(bar):
            g_bar = _split(mixing.values_vjp(_join(bar), None, need=False)[1], shape)
            X_bar, end = of_mean(bar), 0
            for count, pulled in parts:
                own, end = g_bar[:, end : end + count], end + count
                X_bar = plus(pulled(np.ascontiguousarray(own, like=own)), X_bar)
            return X_bar

        return values, back


def _join(values):
    """Return (S, L, n) as (L, S n)."""
    return np.ascontiguousarray(values.swapaxes(0, 1), like=values).reshape(values.shape[1], -1)


def _split(values, shape):
    """Return (J, S n) as (S, J, n), for the shape (S, L, n)."""
    S, _, n = shape
    return np.ascontiguousarray(values.reshape(-1, S, n).swapaxes(0, 1), like=values)


@record
class PatchPaths(OnPatches, Composed):
    """Functions of the patches of an image; the values at its windows are the outputs.

    Parameters
    ----------
    patches : LayerPaths
        P functions of a patch.
    image_shape, patch_shape, stride
        As of a ``ConvolutionalLayer``, whose outputs are in the same order.
    """

    patches: Any
    field = "patches"

    @property
    def inducing(self):
        """The inducing inputs of the functions of a patch."""
        return self.patches.inducing

    @property
    def outputs(self):
        """Axes of the outputs: the windows by the functions of a patch."""
        return (num_windows(self.geometry) * self.patches.outputs[0],)

    def check_points(self, X, name):
        check_image_columns("ConvolutionalLayer", X.shape[-1], self.geometry)

    def forward(self, X):
        patches = kernels.gather_patches(as_rows(X), self.geometry)  # (N, R, columns)
        R = patches.shape[1]
        of_patches, pulled = self.patches.forward(
            patches.reshape(*X.shape[:-2], -1, patches.shape[-1])
        )
        S, P, _ = of_patches.shape
        images = of_patches.reshape(S, P, -1, R).transpose(0, 3, 1, 2)  # (S, R, P, n)
        values, shape = np.ascontiguousarray(images, like=images).reshape(S, R * P, -1), X.shape

        def back(bar):
            images = bar.reshape(len(bar), R, -1, bar.shape[-1]).transpose(0, 2, 3, 1)
            of_patches = np.ascontiguousarray(images, like=bar).reshape(*images.shape[:2], -1)
            patches_bar = pulled(of_patches)
            patches_bar = patches_bar.reshape(-1, R, patches_bar.shape[-1])
            return kernels.gather_patches_vjp(patches_bar, self.geometry).reshape(shape)

        return values, back


@record
class ChainedPaths(Composed):
    """Functions of the layers of a deep GP, each at the values of those below.

    Parameters
    ----------
    layers : tuple of LayerPaths, MixedPaths or PatchPaths
        From the inputs upwards.
    """

    layers: tuple
    field = "layers"

    @property
    def outputs(self):
        """Axes of the outputs of the last layer."""
        return self.layers[-1].outputs

    def forward(self, X):
        backs = []
        for number, layer in enumerate(self.layers):
            with naming_layer(number):
                values, one = layer.forward(X)
            backs.append(one)
            X = _as_points(values)

        def back(bar):
            *below, top = backs
            bar = top(bar)
            for one in reversed(below):
                bar = one(_as_points(bar))
            return bar

        return values, back


def _as_points(values):
    """Return values (S, P, n) as own points (S, n, P) of the next layer; the same for cotangents.

    The transpose is its own inverse.
    """
    return np.ascontiguousarray(values.swapaxes(1, 2), like=values)
