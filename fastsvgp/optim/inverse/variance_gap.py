"""Certified interval of the marginal variances with an approximate inverse, and a stopping rule.

For T = L L', a column k of Kuf and x = T k, the residual r = k - A x gives

    k' A^-1 k = 2 x' k - x' A x + r' A^-1 r        (expand r = A (A^-1 k - x)),

so that v = kff - k' A^-1 k lies between U - |r|^2 / s and U, where U = kff - x' (k + r) and s is
any lower bound of the eigenvalues of A. The interval holds for every x, so an x with rounding
errors gives a valid interval too.

Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", eq. (3),
proposition 3 and appendix S3, where A is Kuu + S~; S~ - s I need only be positive semi-definite.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import check, kernels
from ...errors import names_options
from ...records import replace
from ...records.typed import Array, ArrayLike
from ...runtime.edge import public_call
from .iteration import check_matrix_and_factor


@public_call(checks=False)
def variance_interval(
    A: ArrayLike, L: ArrayLike, Kuf: ArrayLike, kff: ArrayLike, smallest: float
) -> tuple[Array, Array]:
    """Return certified bounds of the variances ``kff - diag(Kuf' A^-1 Kuf)``, from any factor L.

    Parameters
    ----------
    A : (M, M), symmetric positive definite
        Kuu + diag(s) of ``LikelihoodForm`` and ``Relaxed``.
    L : (M, M), lower
        What is above its diagonal is not read. The interval closes as T = L L' tends to A^-1.
    Kuf : (M, N)
    kff : (N,)
    smallest : float
        A positive lower bound of the eigenvalues of A: the smallest entry of s, if Kuu is positive
        semi-definite.

    Returns
    -------
    lower, upper : (N,) float64
        The upper one is the variance of ``Relaxed``. The width is ||(I - A T) k||^2 / smallest,
        plus an allowance for rounding on both sides, at the rate sqrt(M) eps of long sums (Higham
        and Mary 2019). Computed in float64 for all dtypes.

    Raises
    ------
    ValueError, TypeError
        A not symmetric, a diagonal entry of L that is zero or not finite, shapes that do not fit,
        ``smallest`` not positive.

    Notes
    -----
    4 M^2 N flops. Source: proposition 3 of the inverse-free paper.

    Examples
    --------
    >>> A = covariance.matrix(Z) + 0.1 * np.eye(6)
    >>> L, _ = fs.optim.inverse_factor(A)
    >>> Kuf = covariance.matrix(Z, X)
    >>> lower, upper = fs.optim.variance_interval(A, L, Kuf, np.ones(40), smallest=0.1)
    >>> bool((lower <= upper).all())
    True
    """
    matrix, root = check_matrix_and_factor(A, check.as_array("L", L))
    return _certify(matrix, root, Kuf, kff, smallest)


def _certify(A, L, Kuf, kff, smallest):
    if A.ndim != 2 or L.ndim != 2:
        raise ValueError(f"`A` and `L` must be single matrices here, got {A.shape} and {L.shape}")
    Kuf = _columns(Kuf, len(A))
    kff = check.as_array("kff", kff)
    if kff.shape != Kuf.shape[1:]:
        raise ValueError(
            f"`kff` must have one entry for each column of `Kuf`, got {kff.shape} for {Kuf.shape}"
        )
    check.finite("kff", kff)
    smallest = _floor(smallest)
    A, L, Kuf, kff = (
        np.ascontiguousarray(array, np.float64, like=array) for array in (A, L, Kuf, kff)
    )
    x, r = _solution_and_residual(A, L, Kuf)
    length = {name: np.sqrt(_squares(array)) for name, array in (("k", Kuf), ("x", x), ("r", r))}
    rate = math.sqrt(len(A)) * np.finfo(np.float64).eps
    # bound of the rounding error of r
    lost = rate * (math.sqrt(float(_squares(A).sum())) * length["x"] + length["k"])
    upper = kff - _column_products(x, Kuf + r)
    slack = length["x"] * lost + rate * (length["x"] * (length["k"] + length["r"]) + np.abs(kff))
    return upper - slack - (length["r"] + lost) ** 2 / smallest, upper + slack


@names_options
def variance_gap(
    Kuf: ArrayLike,
    smallest: float,
    *,
    noise_variance: float,
    tolerance: float,
    num_data: float | None = None,
) -> "VarianceGap":
    """Make a stopping rule for ``inverse_factor``, in nats of the bound.

    The iteration stops when the variances cost the bound no more than ``tolerance`` nats. With
    Gaussian noise of variance s2 the bound contains -sum_n v_n / (2 s2), so it stops at ``G = sum_n
    G_n <= 2 s2 tolerance``, where ``G_n = ||(I - A T) k_n||^2 / smallest`` is the width of
    ``variance_interval``.

    Parameters
    ----------
    Kuf : (M, N)
        Of the batch.
    smallest : float
        As in ``variance_interval``.
    noise_variance : float
    tolerance : float
        In nats.
    num_data : float, optional
        Size of the whole data set: G is scaled by num_data / N, as the bound is. Default: N.

    Returns
    -------
    VarianceGap
        For ``inverse_factor(A, gap=...)``. It costs 4 M^2 N flops per step, in addition to the
        4/3 M^3 of the step.

    Notes
    -----
    Source: section 3.3 of the inverse-free paper.

    Examples
    --------
    >>> A = covariance.matrix(Z) + 0.1 * np.eye(6)
    >>> Kuf = covariance.matrix(Z, X)
    >>> gap = fs.optim.variance_gap(Kuf, 0.1, noise_variance=0.1, tolerance=0.01)
    >>> L, info = fs.optim.inverse_factor(A, gap=gap)
    >>> np.allclose(L @ L.T @ A, np.eye(6), atol=0.1)
    True
    """
    Kuf = _columns(Kuf, None)
    noise = check.scalar("noise_variance", noise_variance)
    nats = check.scalar("tolerance", tolerance)
    for name, value in (("noise_variance", noise), ("tolerance", nats)):
        if value <= 0:
            raise ValueError(f"`{name}` must be positive, got {value:g}")
    return VarianceGap(
        Kuf, _floor(smallest), check.data_scale(num_data, Kuf.shape[1]), 2 * noise * nats
    )


@dataclass(frozen=True)
class VarianceGap:
    """Rule that ``variance_gap`` makes: stop when ``measure(A, L)`` is at most ``limit``.

    group : ``TrainingGroup`` of ``ranks`` if ``Kuf`` holds only the data of this rank, else None
    """

    Kuf: Any
    smallest: float
    scale: float
    limit: float
    group: Any = None

    def fit_to(self, A):
        """Return the rule in the dtype of A; ``ValueError`` if it does not fit."""
        if A.ndim != 2 or len(A) != len(self.Kuf):
            raise ValueError(
                f"the `Kuf` {self.Kuf.shape} of `gap` belongs to a single matrix A of as many rows,"
                f" got {A.shape}"
            )
        return replace(self, Kuf=np.ascontiguousarray(self.Kuf, A.dtype, like=A))

    def measure(self, A, L):
        """Return the sum of G_n over all data."""
        _, r = _solution_and_residual(A, L, self.Kuf)
        own = self.scale * float(_squares(r).sum(dtype=np.float64)) / self.smallest
        return own if self.group is None else self.group.total(own)


def _solution_and_residual(A, L, Kuf):
    """Return x = L L' k and r = k - A x for each column k."""
    x = kernels.multiply_triangular(
        L, kernels.multiply_triangular(L, Kuf, transpose=True), overwrite_b=True
    )
    return x, np.subtract(Kuf, kernels.matmul(A, x))


def _squares(A):
    return _column_products(A, A)


def _column_products(A, B):
    """Return sum_i A_ij B_ij of each column."""
    return kernels.column_moments(A, np.zeros(len(A), A.dtype, like=A), B)[1]


def _columns(Kuf, M) -> np.ndarray:
    Kuf = check.as_array("Kuf", Kuf)
    if Kuf.ndim != 2 or M not in (None, len(Kuf)):
        raise ValueError(
            f"`Kuf` must have shape (M, N){'' if M is None else f' with M = {M}'}, got {Kuf.shape}"
        )
    check.finite("Kuf", Kuf)
    return Kuf


def _floor(smallest):
    smallest = check.scalar("smallest", smallest)
    if smallest <= 0:
        raise ValueError(
            "`smallest` must be a positive lower bound of the eigenvalues of A, such as the least"
            f" entry of s, got {smallest:g}"
        )
    return smallest
