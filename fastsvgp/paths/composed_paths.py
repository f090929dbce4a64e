"""Functions made of functions: mixtures of latent ones, functions of patches, chains of layers.

mixed:    f(x) = W g(x) + mean(x)                  g_bar = W' f_bar
patches:  the values of g at the windows of x      the cotangents of its patches, added up
chained:  f(x) = g_L(... g_2(g_1(x)))              from the last layer to the first
"""

from functools import reduce
from typing import Any

import numpy as np

from .. import kernels
from ..covariances.convolutional_sums import num_windows
from ..covariances.features.points import by_rows
from ..covariances.image_patches import OnPatches, check_image_columns
from ..latents.mixing import Mixing
from ..layers.layer import naming_layer
from ..means import Mean
from ..records import leaf, plus, record, replace, static
from ..records.typed import Array
from .functions import Evaluation, Functions, add_mean, pull_mean


@record
class MixedPaths(Functions):
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

    @property
    def num_functions(self):
        return self.latents[0].num_functions

    def drawn(self):
        return sum((latent.drawn() for latent in self.latents), [])

    def check_points(self, X, name):
        for latent in self.latents:
            latent.check_points(X, name)

    def forward(self, X):
        found = [latent.forward(X) for latent in self.latents]
        g = np.concatenate([one.values for one in found], axis=1)
        values = _by_function(Mixing(self.mixing).of_values(_by_output(g)), g.shape)
        add_mean(values, self.mean, X)
        return Evaluation(values, (X, g.shape, [(o.values.shape[1], o.saved) for o in found]))

    def pull(self, bar, saved):
        X, shape, parts = saved
        _, g_bar = Mixing(self.mixing).values_vjp(_by_output(bar), None, need=False)
        g_bar, end = _by_function(g_bar, shape), 0
        X_bar = None if self.mean is None else pull_mean(bar, self.mean, X, self.outputs)
        for latent, (count, residuals) in zip(self.latents, parts, strict=True):
            own, end = g_bar[:, end : end + count], end + count
            X_bar = plus(latent.pull(np.ascontiguousarray(own, like=own), residuals), X_bar)
        return X_bar

    def take(self, index):
        return replace(self, latents=tuple(latent.take(index) for latent in self.latents))


def _by_output(values):
    """Return (S, L, n) as (L, S n)."""
    return np.ascontiguousarray(values.swapaxes(0, 1), like=values).reshape(values.shape[1], -1)


def _by_function(values, shape):
    """Return (J, S n) as (S, J, n), for the shape (S, L, n)."""
    S, _, n = shape
    return np.ascontiguousarray(values.reshape(-1, S, n).swapaxes(0, 1), like=values)


@record
class PatchPaths(OnPatches, Functions):
    """Functions of the patches of an image; the values at its windows are the outputs.

    Parameters
    ----------
    patches : LayerPaths
        P functions of a patch.
    image_shape, patch_shape, stride
        As of a ``ConvolutionalLayer``, whose outputs are in the same order.
    """

    patches: Any

    @property
    def inducing(self):
        """The inducing inputs of the functions of a patch."""
        return self.patches.inducing

    @property
    def outputs(self):
        """Axes of the outputs: the windows by the functions of a patch."""
        return (num_windows(self.geometry) * self.patches.outputs[0],)

    @property
    def num_functions(self):
        return self.patches.num_functions

    def drawn(self):
        return self.patches.drawn()

    def check_points(self, X, name):
        check_image_columns("ConvolutionalLayer", X.shape[-1], self.geometry)

    def forward(self, X):
        patches = kernels.gather_patches(by_rows(X), self.geometry)  # (N, R, columns)
        found = self.patches.forward(patches.reshape(*X.shape[:-2], -1, patches.shape[-1]))
        (S, P, _), R = found.values.shape, patches.shape[1]
        images = found.values.reshape(S, P, -1, R).transpose(0, 3, 1, 2)  # (S, R, P, n)
        values = np.ascontiguousarray(images, like=images).reshape(S, R * P, -1)
        return Evaluation(values, (X.shape, R, found.saved))

    def pull(self, bar, saved):
        shape, R, residuals = saved
        images = bar.reshape(len(bar), R, -1, bar.shape[-1]).transpose(0, 2, 3, 1)
        of_patches = np.ascontiguousarray(images, like=bar).reshape(*images.shape[:2], -1)
        patches_bar = self.patches.pull(of_patches, residuals)
        patches_bar = patches_bar.reshape(-1, R, patches_bar.shape[-1])
        return kernels.gather_patches_vjp(patches_bar, self.geometry).reshape(shape)

    def take(self, index):
        return replace(self, patches=self.patches.take(index))


@record
class ChainedPaths(Functions):
    """Functions of the layers of a deep GP, each at the values of those below.

    Parameters
    ----------
    layers : tuple of LayerPaths, MixedPaths or PatchPaths
        From the inputs upwards.
    """

    layers: tuple

    @property
    def outputs(self):
        """Axes of the outputs of the last layer."""
        return self.layers[-1].outputs

    @property
    def num_functions(self):
        return self.layers[0].num_functions

    def drawn(self):
        return sum((layer.drawn() for layer in self.layers), [])

    def check_points(self, X, name):
        self.layers[0].check_points(X, name)

    def forward(self, X):
        saved = []
        for number, layer in enumerate(self.layers):
            with naming_layer(number):
                values, residuals = layer.forward(X)
            saved.append(residuals)
            X = _as_points(values)
        return Evaluation(values, saved)

    def pull(self, bar, saved):
        *below, top = zip(self.layers, saved, strict=True)
        start = top[0].pull(bar, top[1])
        return reduce(lambda h_bar, one: one[0].pull(_as_points(h_bar), one[1]), below[::-1], start)

    def take(self, index):
        return replace(self, layers=tuple(layer.take(index) for layer in self.layers))


def _as_points(values):
    """Return values (S, P, n) as own points (S, n, P) of the next layer; the same for cotangents.

    The transpose is its own inverse.
    """
    return np.ascontiguousarray(values.swapaxes(1, 2), like=values)
