"""Convolutional covariances: sums of one patch function over images, with inducing patches.

Sources: van der Wilk, Rasmussen & Hensman, "Convolutional Gaussian Processes" (2017); for the
location covariance, Dutordoir et al., "Bayesian Image Classification with Deep Convolutional
Gaussian Processes" (2020). f(x) = sum_p w_p g(x[p], c_p) over windows p with locations c_p. The
patch function g has the covariance k l: k of patches, l of locations (1 if there is none). With
u_m = g(z_m, c_m),

    Kuu = k(z, z') l(c, c')
    Kuf = sum_p A_mp k(z_m, x[p])                     A_mp = w_p l(c_m, c_p)
    Kff = sum_pq B_pq k(x[p], x'[q])                  B_pq = w_p w_q l(c_p, c_q)

The backward pass of these sums gives A_bar and B_bar, which hold k times cotangents, summed over
images:

    w_bar_p = sum_m A_bar_mp l(c_m, c_p) + 2 sum_q B_bar_pq l(c_p, c_q) w_q
    l_bar = A_bar diag(w), and w w' B_bar (elementwise)

For Kuu, k_bar = K_bar l and l_bar = K_bar k.
"""

from typing import Any

import numpy as np

from .. import kernels
from ..records import leaf, plus, record, replace
from ..records.inducing_sets import sets_of
from ..records.typed import Number
from .base import ALL, Covariance, matrix_need, need_of, needs
from .checks import check_part
from .convolutional_sums import (
    add_outer_bar,
    chunk_size,
    num_windows,
    outer,
    pair_sums,
    pair_sums_vjp,
    range_pairs,
    ranges,
    sums,
    sums_vjp,
    windows_per_chunk,
)
from .features import OfPatches
from .image_patches import OnPatches, check_image_columns


@record
class Convolutional(OnPatches, Covariance):  # type: ignore[override]
    """Covariance of a weighted sum of one function over image patches, with inducing patches.

    Rows of X are images (H W C): pixels row by row, channels last. Windows of h x w pixels lie
    ``stride`` apart and are numbered row by row. Pixels outside every window have no effect.

    Inducing inputs Z are patches (M, h w C) in the same order. With a ``location_covariance`` they
    have two more columns, the row and the column of the window's first pixel. The covariance of
    patches is then multiplied by the covariance of locations. The sum is not divided by the number
    of patches: 1 / patches is a good initial value for the weights.

    Parameters
    ----------
    patch_covariance : Covariance
        Covariance of patches (h w C columns); can be a sum or product. Stationary ones are fused
        with the sums over patches.
    weights : () or (patches,)
        Weights of the patches, of any sign.
    location_covariance : Covariance, optional
        Covariance of locations (2 columns, in pixels).
    image_shape : (H, W, C), or (H, W) for one channel
    patch_shape : (h, w)
    stride : int

    Notes
    -----
    With d = h w C numbers per patch and P patches, value and gradients cost (6 d + 55) flops for
    each of M N P entries of Kuf and N P (P + 1) / 2 entries of kff. The memory of a step does not
    grow with P. Equal constant patches of an image are computed once.

    Examples
    --------
    >>> images, shapes = np.ones((3, 16)), dict(image_shape=(4, 4), patch_shape=(2, 2))
    >>> of_patches = fs.covariances.Convolutional(fs.RBF(1.0, 1.0), 1 / 9, **shapes)
    >>> of_patches.blocks(np.zeros((5, 4)), images).Kuf.shape
    (5, 3)
    """

    patch_covariance: Any
    weights: Number = leaf()
    location_covariance: Any = None

    # --- shapes ---

    @property
    def _patch_size(self):
        _, _, C, h, w, _ = self.geometry
        return h * w * C

    def num_columns(self, inducing):
        """H W C. Raise ``ValueError`` unless inducing inputs have the columns of patches."""
        H, W, C, h, w, _ = self.geometry
        columns, places = sets_of(inducing)[0].shape[1], 2 * (self.location_covariance is not None)
        if columns != h * w * C + places:
            its = " and 2 for its location" * bool(places)
            raise ValueError(
                f"`inducing` has {columns} columns, but a patch of Convolutional has {h} x {w} x"
                f" {C} = {h * w * C} numbers{its}; see fastsvgp.inducing.patches"
            )
        return H * W * C

    def check_dim(self, D):
        check_image_columns("Convolutional", D, self.geometry)
        for name, columns, inputs in (
            ("patch_covariance", self._patch_size, "patches of images"),
            ("location_covariance", 2, "places of patches"),
        ):
            if name == "patch_covariance" or self.location_covariance is not None:
                check_part(f"Convolutional.{name}", getattr(self, name), columns, inputs)
        shape, P = np.shape(self.weights), num_windows(self.geometry)
        if shape not in ((), (P,)):
            raise ValueError(
                f"Convolutional: `weights` has shape {shape}, but there are {P} patches; give it"
                f" shape () or ({P},)"
            )

    # --- inputs and cotangents of the sums ---

    def _weights(self, X, windows=None):
        """The weights as an array (P,), or of the given windows."""
        if np.ndim(self.weights):
            return self.weights if windows is None else self.weights[slice(*windows)]
        start, stop = windows or (0, num_windows(self.geometry))
        return kernels.full(stop - start, self.weights, X)

    def _locations(self, X, windows):
        return None if windows is None else kernels.window_places(self.geometry, X, windows)

    def _window_ranges(self, Z):
        """Ranges of windows small enough to form their patches, and A (M, P) with locations."""
        most = windows_per_chunk(Z, self.geometry)
        if self.location_covariance is not None:
            most = min(most, chunk_size(Z) // len(Z))
        return ranges(num_windows(self.geometry), most)

    def _bars(self, need, like, patch_bar, location_bar=None, weights_bar=None):
        """The record of cotangents, of which these are known."""
        weights_bar = None if weights_bar is None else self._as_weights(weights_bar)
        bars = {"patch_covariance": patch_bar, "location_covariance": location_bar}
        return self.gradient(need, like, weights=weights_bar, **bars)

    def _as_weights(self, weights_bar):
        """The cotangent of the field, from the cotangent of ``_weights``."""
        if np.ndim(self.weights):
            return weights_bar
        return weights_bar.sum(dtype=np.float64).astype(weights_bar.dtype)

    def _no_weights_bar(self, need, X):
        """Zeros in which to sum the cotangent of the weights (P,); None if it is not needed."""
        if needs(need, "weights"):
            return np.zeros(num_windows(self.geometry), X.dtype, like=X)
        return None

    def features(self, num, seeds, columns):
        if self.location_covariance is not None:
            raise TypeError(
                "Convolutional with a `location_covariance` has no random features; draw joint"
                " values with sample_f"
            )
        part = self.patch_covariance.features(num, seeds, self._patch_size)
        return OfPatches(part, self._weights, self.geometry)

    # --- inducing variables ---

    def _needs(self, need, fixed=None):
        """Translate ``need`` for both covariances; ``fixed`` is an input that is no location."""
        of_places = ()
        if self.location_covariance is not None:
            own = need_of(need, "location_covariance")
            of_places = tuple(name for name in own if name != fixed)
        return need_of(need, "patch_covariance"), of_places

    def _split(self, inducing):
        """Patches and locations."""
        if inducing is None:
            return None, None
        return inducing[:, : self._patch_size], inducing[:, self._patch_size :]

    def Kuu(self, inducing, other=None):
        (Z, c), (Z2, c2) = self._split(inducing), self._split(other)
        K = self.patch_covariance.matrix(Z, Z2)
        if self.location_covariance is not None:
            K *= self.location_covariance.matrix(c, c2)
        return K

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        (Z, c), (Z2, c2) = self._split(inducing), self._split(other)
        need = matrix_need(tuple(need), "inducing", "other")
        of_patches, of_places = self._needs(need)
        k, of_place = self.patch_covariance, self.location_covariance
        if of_place is None:
            patch_bar, *Z_bars = _matrix_vjp(k, K_bar, K, Z, Z2, of_patches)
            return self._bars(need, inducing, patch_bar), *Z_bars
        K, L = k.matrix(Z, Z2), of_place.matrix(c, c2)
        patch_bar, *Z_bars = _matrix_vjp(k, K_bar * L, K, Z, Z2, of_patches)
        K *= K_bar
        location_bar, *c_bars = _matrix_vjp(of_place, K, L, c, c2, of_places)
        bars = map(_join_locations, Z_bars, c_bars)
        return self._bars(need, inducing, patch_bar, location_bar), *bars

    # --- inducing variables and images ---

    def Kuf(self, inducing, X):
        (Z, c), total = self._split(inducing), None
        for windows in self._window_ranges(Z):
            A = self._weights(X, windows)
            if self.location_covariance is not None:
                A = self.location_covariance.matrix(c, self._locations(X, windows)) * A
            total = plus(sums(self.patch_covariance, Z, X, A, self.geometry, windows), total)
        return total

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        (Z, c), of_place = self._split(inducing), self.location_covariance
        of_patches, of_places = self._needs(matrix_need(tuple(need), "inducing", "X"), "X2")
        of_patches = tuple({"X1": "Z", "X2": "X"}.get(name, name) for name in of_patches)
        weights_bar, bars = self._no_weights_bar(need, X), (None,) * 5
        of_A = ("A",) if of_places or weights_bar is not None else ()
        for windows in self._window_ranges(Z):
            A = w = self._weights(X, windows)
            L = places = None
            if of_place is not None:
                places = self._locations(X, windows)
                L = of_place.matrix(c, places)
                A = L * w
            *new, A_bar = sums_vjp(
                self.patch_covariance, K_bar, Z, X, A, self.geometry, windows, of_patches + of_A
            )
            if weights_bar is not None:
                weights_bar[slice(*windows)] = A_bar if of_place is None else (A_bar * L).sum(0)
            if of_places:
                A_bar *= w
            bars = plus((*new, *_matrix_vjp(of_place, A_bar, L, c, places, of_places)[:2]), bars)
        patch_bar, Z_bar, X_bar, location_bar, c_bar = bars
        covariance_bar = self._bars(need, X, patch_bar, location_bar, weights_bar)
        return covariance_bar, _join_locations(Z_bar, c_bar), X_bar

    # --- images ---

    def diag(self, X):
        k, of_place, w = self.patch_covariance, self.location_covariance, self._weights(X)
        if of_place is None:
            return pair_sums(k, X, w, self.geometry)
        total = 0
        for at in range_pairs(num_windows(self.geometry)):
            B = of_place.matrix(*(self._locations(X, one) for one in at))
            B *= outer(w, *at)
            total = total + pair_sums(k, X, B, self.geometry, *at)
        return total

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        k, of_place, w = self.patch_covariance, self.location_covariance, self._weights(X)
        (of_patches, of_places), weights_bar = self._needs(need, "X"), self._no_weights_bar(need, X)
        of_B = ("B",) if of_places or weights_bar is not None else ()
        if of_place is None:
            patch_bar, X_bar, weights_bar = pair_sums_vjp(
                k, k_bar, X, w, self.geometry, need=of_patches + of_B
            )
            return self._bars(need, X, patch_bar, None, weights_bar), X_bar
        bars = (None,) * 3
        for at in range_pairs(num_windows(self.geometry)):
            places = [self._locations(X, one) for one in at]
            L = of_place.matrix(*places)
            *new, B_bar = pair_sums_vjp(
                k, k_bar, X, outer(w, *at) * L, self.geometry, *at, of_patches + of_B
            )
            if weights_bar is not None:
                add_outer_bar(weights_bar, w, B_bar * L, *at)
            if of_places:
                B_bar *= outer(w, *at)
            bars = plus((*new, _matrix_vjp(of_place, B_bar, L, *places, of_places)[0]), bars)
        patch_bar, X_bar, location_bar = bars
        return self._bars(need, X, patch_bar, location_bar, weights_bar), X_bar

    def matrix(self, X1, X2=None):
        """Covariances (N1, N2) of the image function.

        Row n is w' Kuf with the patches of image n as inducing patches.
        """
        w = self._weights(X1)
        K = np.zeros((len(X1), len(X1 if X2 is None else X2)), X1.dtype, like=X1)
        for n in range(len(X1)):
            others = X1[: n + 1] if X2 is None else X2
            for windows in self._row_ranges(others):
                Kuf = self.Kuf(self._as_inducing(X1[n : n + 1], windows), others)
                Kuf *= w[slice(*windows), None]
                K[n, : len(others)] += Kuf.sum(0)
        return kernels.symmetrise(K) if X2 is None else K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        """As in ``Covariance``.

        For image n, the cotangent of Kuf is w K_bar_n, and w_bar_p gains K_bar_n . Kuf_p besides
        the terms of Kuf_vjp. Without X2 the entries below the diagonal count for both sides.
        """
        w, symmetric, total = self._weights(X1), X2 is None, None
        inputs = {"X1": X1} if symmetric else {"X1": X1, "X2": X2}
        bars = {name: np.zeros_like(X) for name, X in inputs.items() if name in need}
        second = "X1" if symmetric else "X2"
        own = tuple({"X1": "inducing"}.get(name, name) for name in need if name != "X2")
        own += ("X",) * (second in need)
        extra = self._no_weights_bar(need, X1)
        for n in range(len(X1)):
            others = X1[: n + 1] if symmetric else X2
            row = K_bar[n, : len(others)] * (2 if symmetric else 1)
            if symmetric:
                row[n] = K_bar[n, n]
            for windows in self._row_ranges(others):
                patches, at = self._as_inducing(X1[n : n + 1], windows), slice(*windows)
                covariance_bar, inducing_bar, others_bar = self.Kuf_vjp(
                    w[at, None] * row, None, patches, others, own
                )
                total = plus(covariance_bar, total)
                if extra is not None:
                    extra[at] += (self.Kuf(patches, others) * row).sum(1)
                if inducing_bar is not None:
                    patches_bar = self._split(inducing_bar)[0]
                    bars["X1"][n : n + 1] += kernels.gather_patches_vjp(
                        patches_bar[None], self.geometry, windows
                    )
                if others_bar is not None:
                    bars[second][: len(others)] += others_bar
        total = self._bars(need, X1, None) if total is None else total
        if extra is not None:
            total = replace(total, weights=total.weights + self._as_weights(extra))
        return total, bars.get("X1"), bars.get("X2")

    def _row_ranges(self, others):
        """Ranges of windows small enough to form Kuf of their patches."""
        most = chunk_size(others) // max(len(others), self._patch_size)
        return ranges(num_windows(self.geometry), most)

    def _as_inducing(self, X, windows):
        """The patches of one image as inducing inputs."""
        patches = kernels.gather_patches(X, self.geometry, windows)[0]
        if self.location_covariance is None:
            return patches
        return np.concatenate([patches, self._locations(X, windows)], 1)


def _matrix_vjp(covariance, K_bar, K, X1, X2, need):
    """``matrix_vjp``, or three times None if nothing is needed."""
    return covariance.matrix_vjp(K_bar, K, X1, X2, need) if need else (None,) * 3


def _join_locations(Z_bar, c_bar):
    """The cotangent of inducing inputs: of patches, and of locations if there are any."""
    return Z_bar if c_bar is None else np.concatenate([Z_bar, c_bar], 1)
