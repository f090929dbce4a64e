"""Sampled bounds from given features, for example a neural network's last layer.

The caller computes the features, Phi_i of the functions i and Phi_j of the functions j, and gets
their cotangents back. A stand-in basis holds them: its units are their columns.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..likelihoods import Likelihood
from ..records import missing
from ..records.typed import ArrayLike, Record
from ..runtime.edge import public_call
from .bases import Basis, InducingBasis
from .bases.samples import BasisSample, sum_rows
from .estimators import BoundInputs
from .model import QSGP, check_likelihood, refuse_device_arrays
from .posterior import ChevronWeights
from .sampled_bound import SampledInfo, check_sample, estimate


@public_call()
def sampled_bound_and_grad_from_features(
    Phi_i: ArrayLike,
    Phi_j: ArrayLike | None,
    posterior: Record,
    likelihood: Likelihood,
    Y: ArrayLike,
    sample: BasisSample,
    *,
    precision: ArrayLike,
    num_data: float | None = None,
    tangent: ArrayLike | None = None,
) -> tuple[float, tuple[Any, ...], SampledInfo]:
    """Evaluate ``sampled_bound_and_grad`` for given features.

    f(x) = sum_i phi_i(x) w_i of m functions, prior w ~ N(0, S^-1).

    Parameters
    ----------
    Phi_i : (n, s) array
        Features of the batch: one column per function in ``sample.i``, in its order, repeats
        included.
    Phi_j : (n, s') array or None
        The same for ``sample.j``; None if that is None.
    posterior : ChevronWeights
        Over all m weights.
    likelihood : Likelihood
    Y : (n,) array
    sample : BasisSample
        Its units are functions, from 0 to m - 1; default weights m / s.
    precision : (m,) or (m, m) array
        Diagonal of S, positive; or S, symmetric positive definite. Only the entries in the sample
        are read.
    num_data : float, optional
        As in ``sampled_bound_and_grad``.
    tangent : float or (n,) array, optional
        As there, but default 1, because the prior's standard deviation of f would need all
        functions.

    Returns
    -------
    value : float
        As there. With (m, m) precisions it lacks log|S| / 2.
    bars : (Phi_i_bar, Phi_j_bar, precision_bar, posterior_bar, likelihood_bar)
        Uphill, of the value with ``tangent`` held fixed. Those of features are (n, s) and (n, s')
        or None. Those of ``precision`` and of each field of ``posterior`` are ``SparseRows``; that
        of a dense S is None, because log|S| is missing.
    info : SampledInfo

    Raises
    ------
    ValueError, TypeError
        As ``sampled_bound_and_grad``; features whose shapes do not fit the sample.

    Notes
    -----
    4 (k + 2) n s flops for s functions on each side; a dense S adds 4 (k + 1) s s'.

    Examples
    --------
    >>> Phi = np.cos(X[:8] * np.arange(1, 6))
    >>> q = fs.qsgp.ChevronWeights(np.zeros(5), np.eye(5, 1), np.ones(4))
    >>> sample = fs.qsgp.BasisSample(i=np.arange(5), j=np.arange(5))
    >>> bound = fs.qsgp.sampled_bound_and_grad_from_features
    >>> round(bound(Phi, Phi, q, gaussian, Y[:8], sample, precision=np.ones(5))[0], 3)
    -98.165
    """
    refuse_device_arrays("sampled_bound_and_grad_from_features", Phi_i, Phi_j, Y, precision)
    basis, q, likelihood, Y, dtype = _check(
        Phi_i, Phi_j, posterior, likelihood, Y, sample, precision
    )
    model = QSGP(basis, q, likelihood)
    parts = basis.replace_by_columns(
        *check_sample(model, sample, basis.num_functions(), dtype, tangent=tangent)
    )
    n = len(basis.Phi_i)
    Y = check.targets(Y, n, (), likelihood, dtype, names=("Phi_i", "Y"))
    scale = check.data_scale(num_data, n)
    wrt = ("basis", "posterior", "likelihood")
    tangent = 1.0 if tangent is None else tangent
    task = BoundInputs(model, basis.Phi_i, Y, scale, wrt, tangent, None, near=None, jitter=0.0)
    value, bars, info = estimate(task, *parts)
    seen: Any = None  # stands for the basis
    return check.result(value, QSGP(seen, q, likelihood)), (*bars[0], *bars[1:]), info


class _Features(Basis):
    """Features of two samples as a stand-in for a basis with a diagonal S.

    Units are the columns of Phi_i, then those of Phi_j.
    """

    per_function = ("precision",)

    def __init__(self, Phi_i, Phi_j, precision):
        self.Phi_i, self.Phi_j, self.precision, self.numbers = Phi_i, Phi_j, precision, None

    def replace_by_columns(self, of_i, of_j, of_columns):
        """Replace the functions in the parts of a sample by columns."""
        named = [part for part in (of_i, of_j) if part is not None]
        self.numbers = np.concatenate([numbers for numbers, _ in named])
        s = len(of_i[0])
        of_i = np.arange(s), of_i[1]
        return (
            of_i,
            None if of_j is None else (np.arange(s, len(self.numbers)), of_j[1]),
            of_columns,
        )

    def num_functions(self):
        return len(self.precision)

    def functions(self, units):
        return self.numbers[units]

    def _side(self, units):
        """Return ``(name, features)`` of the side of these columns."""
        return ("Phi_i", self.Phi_i) if units[0] == 0 else ("Phi_j", self.Phi_j)

    def products(self, X, weights):
        W, v, units, _ = weights
        _, phi = self._side(units)
        squares = (
            None if v is None else kernels.matmul(v[None], np.square(phi), transpose_b=True)[0]
        )
        return kernels.matmul(W, phi, transpose_b=True), squares

    def products_vjp(self, X, weights, out_bar, squares_bar, need):
        W, v, units, _ = weights
        name, phi = self._side(units)
        phi_bar, v_bar = kernels.matmul(out_bar, W, transpose_a=True), None
        if v is not None:
            v_bar = kernels.matmul(squares_bar[None], np.square(phi))[0]
            phi_bar += 2 * squares_bar[:, None] * phi * v
        return kernels.matmul(out_bar, phi), v_bar, {name: phi_bar}

    def precisions(self, functions):
        return _positive(self.precision[functions])

    def sampled_gradient(self, parts):
        """Return ``(Phi_i_bar, Phi_j_bar, precision_bar)``."""
        bars = {name: (functions, bar) for functions, part in parts for name, bar in part.items()}
        features = [bars[name][1] if name in bars else None for name in ("Phi_i", "Phi_j")]
        return *features, sum_rows(bars["precision"]) if "precision" in bars else None


class _FeaturesWithDenseS(_Features):
    """The same for a dense S (m, m)."""

    dense_precision = True
    sampled_energy = InducingBasis.sampled_energy
    sampled_precision = InducingBasis.sampled_precision

    def sampled_covariance(self, i, j):
        S_ij = self.precision[np.ix_(i.functions, j.functions)]
        check.finite("precision", S_ij)
        to_i = kernels.matmul(j.weighted, S_ij, transpose_b=True)
        to_j = kernels.matmul(i.weighted, S_ij)
        return _positive(self.precision[i.functions, i.functions]), to_i, to_j


def _positive(precision):
    """Return entries of the diagonal of S, checked."""
    check.finite("precision", precision)
    check.positive("precision", precision)
    return precision


def _check(Phi_i, Phi_j, posterior, likelihood, Y, sample, precision):
    """Return ``(basis, posterior, likelihood, Y, dtype)``, all in one dtype.

    Arrays with an entry per function are not cast.
    """
    if not isinstance(posterior, ChevronWeights):
        raise TypeError(
            f"`posterior` must be a fastsvgp.qsgp.ChevronWeights, got {type(posterior).__name__}"
        )
    for path in missing(posterior):
        raise TypeError(f"`posterior.{path}` is None where an array must be{check.PARTIAL}")
    check.parts(QSGP(None, posterior, likelihood), ("likelihood",))
    check_likelihood(likelihood)
    if not isinstance(sample, BasisSample):
        raise TypeError(
            "`sample` must be a fastsvgp.qsgp.BasisSample, as draw_basis_sample makes it, got"
            f" {type(sample).__name__}"
        )
    if (Phi_j is None) != (sample.j is None):
        raise ValueError(
            "`Phi_j` must have the features of the functions `sample.j`, and be None where that is"
            " None"
        )
    seen = {
        name: check.as_array(name, phi)
        for name, phi in (("Phi_i", Phi_i), ("Phi_j", Phi_j))
        if phi is not None
    }
    Y, precision = check.as_array("Y", Y), check.as_array("precision", precision)
    q = ChevronWeights(
        *(
            check.as_array(f"posterior.{n}", getattr(posterior, n))
            for n in ("mean", "columns", "diagonal")
        )
    )
    whole = {"precision": precision} | {
        f"posterior.{n}": getattr(q, n) for n in ("mean", "columns", "diagonal")
    }
    named = seen | whole | ({"Y": Y} if Y.dtype.kind == "f" else {})
    dtype = check.common_dtype(*named.values(), names=tuple(named))
    for name, array in whole.items():
        if array.dtype != dtype:
            raise TypeError(
                f"`{name}` is {array.dtype}, and the features or data are {dtype}; give one dtype"
                " to all"
            )
    seen = _check_features(seen, sample, dtype)
    if precision.ndim not in (1, 2) or len(set(precision.shape)) != 1 or 0 in precision.shape:
        raise ValueError(
            f"`precision` must have shape (m,) or (m, m) for m functions, got {precision.shape}"
        )
    q.check_size(len(precision))
    likelihood, _ = check.parameters(likelihood, np.empty(0, dtype), prefix="likelihood.")
    likelihood.check_settings()
    basis = (_Features if precision.ndim == 1 else _FeaturesWithDenseS)(
        seen["Phi_i"], seen.get("Phi_j"), precision
    )
    return basis, q, likelihood, Y, dtype


def _check_features(seen, sample, dtype):
    """Return the features of a sample by name, finite and in one dtype."""
    found = {}
    for name, phi in seen.items():
        functions = np.shape(sample.i if name == "Phi_i" else sample.j)
        if (
            phi.ndim != 2
            or 0 in phi.shape
            or phi.shape[1:] != functions
            or len(phi) != len(seen["Phi_i"])
        ):
            raise ValueError(
                f"`{name}` must have a row for each datum, one or more, and a column for each"
                f" function of `sample.{name[-1]}`, got {phi.shape} for {functions}"
            )
        check.finite(name, phi)
        found[name] = np.ascontiguousarray(phi, dtype)
    return found
