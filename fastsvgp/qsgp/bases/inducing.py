"""Covariances with inducing inputs as basis functions: phi = K_xz and S = K_zz.

f(z) = K_zz w then has the covariance K_zz. The relevance vector machine has the same functions and
one precision per weight.
"""

from typing import ClassVar

import numpy as np

from ... import check, kernels
from ...posteriors.base import covariance_factor
from ...records import leaf, record, replace, total
from ...records.inducing_sets import naming_repeated
from ...records.typed import Array, Record
from ...runtime import tuning
from .base import Basis, BasisWeights, Energy, WeightBars, below, sum64, sum_of_squares
from .samples import sum_weights


@record
class InducingBasis(Basis):
    """m functions k(., z_i) with weights N(0, S^-1), S = Kuu + jitter I.

    The prior of an SVGP with inducing inputs Z, on its weights.

    Parameters
    ----------
    covariance : Covariance
    inducing : (m, D) array

    Notes
    -----
    Every bound and closed form takes the same ``jitter``, by default 1e-6 in float64 and 1e-4 in
    float32. The features are covariances without it. Predictions and samples of f need no S and
    have no jitter. Source: Evans and Nair 2018, section 2.2 (phi = K, S = K).

    Examples
    --------
    >>> basis = fs.qsgp.InducingBasis(covariance, Z)
    >>> basis.covariance, basis.inducing.shape
    (RBF(variance=1.0, lengthscales=<float64 (1,)>), (6, 1))
    """

    per_function: ClassVar[tuple[str, ...]] = ("inducing",)
    dense_precision = True

    covariance: Record
    inducing: Array = leaf()

    def num_functions(self):
        return len(self.inducing)

    def is_at(self, rows, X):
        """Return whether the functions with these numbers are at the inputs X, one by one."""
        return bool((self.inducing[rows] == X).all())

    def check_columns(self, D):
        self.check_settings()
        if self.inducing.shape[1] != D:
            raise ValueError(
                f"`basis.inducing` must have shape (m, {D}), D the columns of `X`, got"
                f" {self.inducing.shape}"
            )
        self.covariance.check_dim(D)

    def check_settings(self):
        shape = getattr(self.inducing, "shape", None)
        if shape is None or len(shape) != 2 or 0 in shape:
            came = type(self.inducing).__name__ if shape is None else shape
            raise ValueError(
                f"`basis.inducing` must be an array (m, D) with m and D > 0, got {came}"
            )

    def features(self, X, units=None):
        return self.covariance.matrix(X, self.inducing if units is None else self.inducing[units])

    def precision_times(self, W, jitter):
        return self.products(self.inducing, BasisWeights(W))[0] + jitter * W

    def precision_diagonal(self, jitter):
        return self.covariance.kff(self.inducing) + jitter

    def _panels(self, X, units):
        """Return ``(slice of the weights, their inducing inputs)`` of each panel."""
        Z = self.inducing if units is None else self.inducing[units]
        size = max(1, tuning.current.basis_panel_numbers // max(1, len(X)))
        return [(slice(at, at + size), Z[at : at + size]) for at in range(0, len(Z), size)]

    def products(self, X, weights):
        W, v, units, _ = weights
        out = np.zeros((len(W), len(X)), X.dtype, like=X)
        squares = None if v is None else np.zeros((1, len(X)), X.dtype, like=X)
        for at, Z in self._panels(X, units):
            K = self.covariance.matrix(Z, X)
            out += kernels.matmul(W[:, at], K)
            if v is not None:
                squares += kernels.matmul(v[None, at], np.square(K, out=K))
        return out, None if v is None else squares[0]

    def products_vjp(self, X, weights, out_bar, squares_bar, need):
        W, v, units, _ = weights
        W_bar, v_bar = np.empty_like(W), None if v is None else np.empty_like(v)
        covariance_bars = []
        matrix_need = below(need, "covariance") + (("X1",) if below(need, "inducing") else ())
        inducing_bar = (
            np.empty((W.shape[1], X.shape[1]), X.dtype, like=X) if "X1" in matrix_need else None
        )
        for at, Z in self._panels(X, units):
            K = self.covariance.matrix(Z, X)
            W_bar[:, at] = kernels.matmul(out_bar, K, transpose_b=True)
            if v is not None:
                v_bar[at] = kernels.matmul(squares_bar[None], np.square(K), transpose_b=True)[0]
            if matrix_need:
                K_bar = kernels.matmul(
                    np.ascontiguousarray(W[:, at], like=W), out_bar, transpose_a=True
                )
                if v is not None:
                    K_bar += 2 * v[at, None] * squares_bar * K
                k_bar, panel_bar, _ = self.covariance.matrix_vjp(K_bar, K, Z, X, matrix_need)
                covariance_bars.append(k_bar)
                if inducing_bar is not None:
                    inducing_bar[at] = panel_bar
        return (
            W_bar,
            v_bar,
            {"covariance": total(covariance_bars), "inducing": inducing_bar} if matrix_need else {},
        )

    def energy(self, W, v, jitter):
        """Return the ``Energy`` of S = Kuu + jitter I: (R + 1) m^2 + m^3 / 3 flops."""
        K = self.covariance.matrix(self.inducing)
        with naming_repeated(self.inducing, "basis.inducing"):
            L = covariance_factor(K, jitter)
        WS = kernels.matmul(W, K) + jitter * W
        pivots = np.log(L.diagonal(), dtype=np.float64)
        return Energy(
            sum64(W * WS) + sum64((K.diagonal() + jitter) * v), 2 * pivots.sum(), (K, L, WS, jitter)
        )

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        K, L, WS, jitter = saved
        W_bar, v_bar = 2 * quadratic_bar * WS, quadratic_bar * (K.diagonal() + jitter)
        matrix_need = below(need, "covariance") + (("X1",) if below(need, "inducing") else ())
        if not matrix_need:
            return W_bar, v_bar, {}
        K_bar = kernels.cholesky_inverse(L)
        K_bar *= log_det_bar
        K_bar += kernels.matmul(quadratic_bar * W, W, transpose_a=True)
        K_bar.reshape(-1)[:: len(K) + 1] += quadratic_bar * v
        covariance_bar, inducing_bar, _ = self.covariance.matrix_vjp(
            kernels.symmetrise(K_bar), K, self.inducing, None, matrix_need
        )
        return W_bar, v_bar, {"covariance": covariance_bar, "inducing": inducing_bar}

    def sampled_energy(self, i, j, need, jitter):
        """Estimate the quadratic terms of S = K + jitter I from the pairs of both samples.

        sum_ij (w A)_i K_ij (w A)_j + jitter sum_i w |A_i|^2 + sum_i w S_ii d_i^2. log|S|, which a
        sample does not determine, counts 0, and fields have no cotangents. The coincidences of the
        jitter are summed exactly, as for a diagonal S.
        """
        own, to_i, to_j = self.sampled_covariance(i, j)
        own = own + jitter
        weight_bars = (
            WeightBars(-i.w * (0.5 * to_i + jitter * i.A), -0.5 * i.w * own),
            WeightBars(-0.5 * j.w * to_j),
        )
        products, of_jitter = to_j * j.weighted, jitter * i.weighted * i.A
        of_mean = sum64(products[0]) + sum64(of_jitter[0])
        of_columns = sum64(products[1:]) + sum64(of_jitter[1:])
        of_rest = of_columns + sum64(i.w * own * np.square(i.d))
        return (of_mean, of_rest), 0.0, {}, weight_bars

    def sampled_precision(self, i, j, jitter):
        own, to_i, to_j = self.sampled_covariance(i, j)
        to_i += jitter * sum_weights(j.functions, j.w, i.functions) * i.A
        to_j += jitter * sum_weights(i.functions, i.w, j.functions) * j.A
        return own + jitter, to_i, to_j

    def sampled_covariance(self, i, j):
        """Return ``sampled_precision`` of S without its jitter."""
        to_i, _ = self.products(self.inducing[i.units], BasisWeights(j.weighted, units=j.units))
        to_j, _ = self.products(self.inducing[j.units], BasisWeights(i.weighted, units=i.units))
        return self.covariance.kff(self.inducing[i.units]), to_i, to_j


@record
class RelevanceBasis(InducingBasis):
    """m functions k(., z_i) with weights N(0, diag(precision)^-1) and learned precisions.

    Most of the precisions grow without bound.

    Parameters
    ----------
    covariance : Covariance
    inducing : (m, D) array
    precision : (m,), positive

    Notes
    -----
    Source: Tipping 2001; Evans and Nair 2018, section 3 (QSRVM).

    Examples
    --------
    >>> basis = fs.qsgp.RelevanceBasis(covariance, inducing=X, precision=np.ones(40))
    >>> [path for path, _, _ in fs.records.leaves(basis)]
    ['covariance.variance', 'covariance.lengthscales', 'inducing', 'precision']
    """

    per_function = "inducing", "precision"
    dense_precision = False
    sampled_energy, sampled_precision = Basis.sampled_energy, Basis.sampled_precision

    covariance: Record
    inducing: Array = leaf()
    precision: Array = leaf("positive")

    def check_settings(self):
        super().check_settings()
        shape, m = np.shape(self.precision), len(self.inducing)
        if shape != (m,):
            raise ValueError(
                f"`basis.precision` must have shape ({m},), one for each row of `basis.inducing`,"
                f" got {shape}"
            )

    def take(self, rows):
        """Return the basis of some of its functions."""
        return replace(self, inducing=self.inducing[rows], precision=self.precision[rows])

    def precisions(self, functions):
        precision = self.precision[functions]
        check.finite("basis.precision", precision)
        check.positive("basis.precision", precision)
        return precision

    precision_times = Basis.precision_times

    def precision_diagonal(self, jitter):
        return self.precision

    def energy(self, W, v, jitter):
        log_det = np.log(self.precision, dtype=np.float64).sum()
        return Energy(
            sum_of_squares(W, self.precision) + (v * self.precision).sum(dtype=np.float64),
            log_det,
            None,
        )

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        s, bars = self.precision, {}
        if below(need, "precision"):
            bars["precision"] = quadratic_bar * (np.square(W).sum(axis=0) + v) + log_det_bar / s
        return 2 * quadratic_bar * s * W, quadratic_bar * s, bars
