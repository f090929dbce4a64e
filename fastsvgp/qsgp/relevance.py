"""Relevance vectors: optimal precisions of a ``RelevanceBasis``, and pruning of its functions.

In a precision s_i the bound is log s_i / 2 - s_i E[w_i^2] / 2, for every likelihood; its maximum is
s_i = 1 / E[w_i^2], with E[w_i^2] = mu_i^2 + Sigma_ii, Sigma = C C'. If the data do not need a
function, its mean falls to 0 and its precision grows without bound over alternate updates of mean,
variances and precision: the weight is 0, and the function can be removed.
"""

import numpy as np

from .. import check
from ..records import leaves, replace
from ..records.typed import AnyRecord, ArrayLike, Record, RecordT
from ..runtime.edge import public_call
from .bases import RelevanceBasis
from .model import QSGP, check_parts, refuse_device_arrays


@public_call(QSGP)
def optimal_precision(model: RecordT) -> RecordT:
    """Return the model with its optimal precisions, s_i = 1 / (mu_i^2 + Sigma_ii).

    Parameters
    ----------
    model : QSGP
        With a ``RelevanceBasis``; any likelihood.

    Returns
    -------
    QSGP

    Raises
    ------
    ValueError, TypeError
        Another basis; parts of the model that do not fit each other.

    Notes
    -----
    3 m (k + 1) flops. Alternated with ``optimal_weights``, or with steps of the posterior, no
    update lowers the bound. Source: Evans and Nair 2018, section I.3; the expectation-maximisation
    of Tipping 2001, appendix A.

    Examples
    --------
    >>> q = fs.qsgp.ChevronWeights(np.ones(40), np.eye(40, 1), np.ones(39))
    >>> sparse = fs.QSGP(fs.qsgp.RelevanceBasis(covariance, X, np.ones(40)), q, gaussian)
    >>> fs.qsgp.optimal_precision(sparse).basis.precision[:2]
    array([0.5, 0.5])
    """
    given, dtype = _check("optimal_precision", model)
    q = given.posterior
    second = np.square(q.mean, dtype=np.float64) + q.variances()
    basis = replace(given.basis, precision=(1 / second).astype(dtype))
    return replace(given, basis=basis)  # type: ignore[return-value]


@public_call(QSGP)
def relevance_vectors(
    model: Record, threshold: float = 1e4
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the numbers of the functions whose precision is below a threshold, increasing.

    Parameters
    ----------
    model : QSGP
        With a ``RelevanceBasis``.
    threshold : float
        The paper's 10^4 suits targets and functions of about 1: a prior standard deviation of the
        weight of 0.01.

    Returns
    -------
    (r,) array of int64
        Their inputs are ``model.basis.inducing`` at these rows.

    Raises
    ------
    ValueError, TypeError
        As ``optimal_precision``; a threshold that is not positive.

    Examples
    --------
    >>> q = fs.qsgp.ChevronWeights(np.ones(40), np.eye(40, 1), np.ones(39))
    >>> precision = np.where(np.arange(40) % 10 == 0, 1.0, 1e6)
    >>> sparse = fs.QSGP(fs.qsgp.RelevanceBasis(covariance, X, precision), q, gaussian)
    >>> fs.qsgp.relevance_vectors(sparse)
    array([ 0, 10, 20, 30])
    """
    threshold = check.scalar("threshold", threshold)
    check.positive("threshold", threshold, "")
    model, _ = _check("relevance_vectors", model)
    return np.flatnonzero(model.basis.precision < threshold)


@public_call(QSGP)
def prune(model: RecordT, keep: ArrayLike) -> RecordT:
    """Return the model of only some of its functions: their inputs, precisions and posterior.

    Parameters
    ----------
    model : QSGP
        With a ``RelevanceBasis``.
    keep : sequence of r row numbers, each once, or mask (m,)
        In any order: the functions keep theirs.

    Returns
    -------
    QSGP
        With min(k, r) dense columns. Arrays with an entry per function are new; hyperparameters are
        those of the model.

    Raises
    ------
    ValueError, TypeError
        Another basis; rows that do not exist, repeated rows, or none.

    Notes
    -----
    The posterior is the exact marginal of q if all of the first k rows are kept. Otherwise the
    marginal may not be a chevron; the result is then the nearest chevron in KL[marginal ||
    chevron]. It has the marginal's means, all of its variances, and its covariances with the first
    k of the kept rows. 2 r k^2 flops. An ``InducingBasis`` is rejected, because without some of its
    inputs it has another prior.

    Examples
    --------
    >>> q = fs.qsgp.ChevronWeights(np.ones(40), np.eye(40, 1), np.ones(39))
    >>> sparse = fs.QSGP(fs.qsgp.RelevanceBasis(covariance, X, np.ones(40)), q, gaussian)
    >>> fs.qsgp.prune(sparse, np.arange(0, 40, 2)).basis.inducing.shape
    (20, 1)
    """
    given, _ = _check("prune", model)
    basis = given.basis
    rows = _rows(keep, basis.num_functions())
    posterior = given.posterior.marginal(rows)
    return replace(given, basis=basis.take(rows), posterior=posterior)  # type: ignore[return-value]


def _check(name, model) -> tuple[AnyRecord, np.dtype]:
    """Return ``(model, dtype)``, checked and cast."""
    basis, _ = check_parts(model)
    if not isinstance(basis, RelevanceBasis):
        raise TypeError(
            f"{name}: `basis` of the model must be a fastsvgp.qsgp.RelevanceBasis, which has one"
            f" precision per function, got {type(basis).__name__}"
        )
    refuse_device_arrays(name, *(value for _, _, value in leaves(model)))
    model, dtype = check.parameters(model)
    model.basis.check_settings()
    model.posterior.check_size(model.basis.num_functions())
    return model, dtype


def _rows(keep, m):
    """Return the row numbers that ``keep`` means, increasing."""
    keep = check.as_array("keep", keep)
    refuse_device_arrays("prune", keep)
    if keep.dtype.kind == "b":
        if keep.shape != (m,):
            raise ValueError(
                f"prune: `keep` is a mask of shape {keep.shape}, but there are {m} functions: use"
                f" ({m},)"
            )
        keep = np.flatnonzero(keep)
    if keep.size == 0:
        raise ValueError(
            "prune: `keep` names no function, and a model needs one; relevance_vectors takes a"
            " larger threshold"
        )
    return np.sort(check.row_numbers("keep", keep, m).astype(np.int64))
