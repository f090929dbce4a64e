"""Cross-validation from sums: folds are subtracted, and no row is read again.

With the sums of all rows and of fold f, at parameters trained on the rest,

    log p(y_f | y_rest) = log p(y) - log p(y_rest)
    |y_f - Phi_f w|^2 = y_f'y_f - 2 w'h_f + w'Gamma_f w,    w the mean weights given the rest.

The densities of single rows are not functions of these sums: their variances differ by row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..covariances import Covariance
from ..hilbert.collapsed import BasisGP, evidence, squared_errors
from ..hilbert.sums import SufficientSums
from . import fit


class FoldScores(NamedTuple):
    """The scores of a covariance in ``compare``.

    Parameters
    ----------
    model : BasisGP
        Trained on all rows.
    log_density : float
        Of the rows of a fold jointly, given the other rows: mean over all folds, per row and
        output.
    rmse : float
        Of held-out targets.
    log_densities : tuple of float
        The same for each fold.

    Examples
    --------
    >>> basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), 20, 1.5)
    >>> folds = [fs.bounds.sufficient_sums(basis, X[i::4], Y[i::4]) for i in range(4)]
    >>> scores = fs.bounds.compare(sum(folds[1:], folds[0]), [fs.RBF(1.0, 0.5)], folds)
    >>> len(scores[0].log_densities)
    4
    """

    model: Any
    log_density: float
    rmse: float
    log_densities: tuple[float, ...]


def compare(
    sums: SufficientSums,
    covariances: Sequence[Covariance],
    folds: Sequence[SufficientSums],
    *,
    noise_variance: float | None = None,
    steps: int | None = None,
) -> list[FoldScores]:
    """Compare covariances by cross-validation from sums, at a cost free of the number of rows.

    Parameters
    ----------
    sums : SufficientSums
        Of all rows.
    covariances : sequence of Covariance
        To start from. The terms of each are those of the basis.
    folds : sequence of SufficientSums
        Of disjoint sets of these rows, in the same basis.
    noise_variance : float, optional
        To start from. Default: a tenth of the mean square of the targets.
    steps : int, optional
        Of each training, as in ``fit``.

    Returns
    -------
    list of FoldScores
        In the order of the covariances. The best has the largest ``log_density``.

    Raises
    ------
    ValueError, TypeError
        A fold that leaves no rows, or is of another basis; and as ``fit``.

    Notes
    -----
    For each covariance one training for each fold, which starts from the last, and one of all
    rows, of some tens of m^3 flops for each iteration.

    Examples
    --------
    >>> basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), 20, 1.5)
    >>> folds = [fs.bounds.sufficient_sums(basis, X[i::4], Y[i::4]) for i in range(4)]
    >>> smooth, rough = fs.bounds.compare(
    ...     sum(folds[1:], folds[0]), [fs.RBF(1.0, 0.5), fs.Matern12(1.0, 0.5)], folds)
    >>> smooth.log_density > rough.log_density
    True
    """
    for name, given in (("sums", [sums]), ("folds", folds)):
        if not len(given) or not all(isinstance(one, SufficientSums) for one in given):
            kinds = ", ".join(sorted({type(one).__name__ for one in given})) or "none"
            raise TypeError(f"compare: `{name}` must be SufficientSums, got {kinds}")
    rests = [sums - fold for fold in folds]
    if noise_variance is None:
        noise_variance = 0.1 * float(np.mean(sums.squares)) / sums.count
    noise_variance = check.scalar("noise_variance", noise_variance)
    return [
        _scores(BasisGP(covariance, sums.basis, noise_variance), sums, folds, rests, steps)
        for covariance in covariances
    ]


def _scores(model, sums, folds, rests, steps):
    joint, errors, P = [], 0.0, np.size(sums.squares)
    for fold, rest in zip(folds, rests, strict=True):
        model, info = fit(model, rest, steps=steps)
        joint.append(evidence(model, sums) - evidence(model, rest))
        errors += squared_errors(info.svgp, fold)
    counts = [P * fold.count for fold in folds]
    each = tuple(one / count for one, count in zip(joint, counts, strict=True))
    model, _ = fit(model, sums, steps=steps)
    rmse = float(np.sqrt(max(errors, 0.0) / sum(counts)))
    return FoldScores(model, sum(joint) / sum(counts), rmse, each)
