"""Control variates of Evans and Nair 2018: products of both samples' values at some points.

The bound for Gaussian noise has (c / 2) sum_x r_i r_j over the batch, r = y - p, and c / 2 of the
dense columns' X_i X_j. At p of the data the same products are known exactly, with the errors e of
``control_variates`` and b = a - y for the mean (a for columns):

    (count / p) [sum_P (b + e_i) (b + e_j) - sum_P b^2]
        = (count / p) [sum_P b (e_i + e_j) + e_i e_j],

zero on average, and correlated with the batch's term: subtracting it times a coefficient reduces
the variance. Without targets at the points b is a: eq. 3 and Proposition 3. With them it also has
the data-target term of appendix F.2, Phi' y of all data estimated from the points. Without that
term the value of a good fit, whose r is far smaller than p, would vary more than without a control.
The gradient in A_i is (c / 2) (count / p) phi_Pi' e_j in both cases, with the dense phi_P' b
replaced by the weights of the draws as in ``control_variates``.

*The coefficient* that minimises the variance of a gradient g + beta h, h of mean 0, is beta = -E<g,
h> / E|h|^2: one for the mean and one per dense column, estimated only from earlier steps, because
the present one would cause a bias.
"""

from typing import Any, Literal

import numpy as np

from .. import check
from ..records import leaf, record, replace
from ..records.typed import ArrayLike, Record
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .control_variates import Control, copy_basis, factor_at, values_at
from .model import QSGP, check_inputs

KEPT = 0.99  # weight of the earlier steps in the estimate of the coefficient


@record
class PairedControl(Control):
    """Result of ``paired_control_variate``: the function at some points, and its coefficient.

    Parameters
    ----------
    points : (p, D)
    values : (1 + k, p)
        Mean and dense columns at the points.
    basis : record
        Basis that the control was made with.
    coefficient : () or (1 + k,)
        One per row of ``values`` if it is running.
    factor : (p, p), optional
        chol(K_PP + jitter I), for a dense S.
    targets : (p,), optional
    moments : (2, 1 + k), optional
        Running sums of <g, h> and ``|h|^2``.

    Examples
    --------
    >>> fs.qsgp.paired_control_variate(weights, X[::4]).coefficient
    1.0
    """

    points: Any = leaf()
    values: Any = leaf()
    basis: Any
    coefficient: Any = leaf()
    factor: Any = leaf("tril", default=None)
    targets: Any = leaf(default=None)
    moments: Any = leaf(default=None)

    def shapes(self, p, rows):
        each = (rows,) if np.ndim(self.coefficient) else ()
        return super().shapes(p, rows) | {
            "coefficient": each,
            "targets": (p,),
            "moments": (2, rows),
        }

    def correct_squares(self, e_i, e_j, c, count):
        ratio, known = count / len(self.points), self.values
        if self.targets is not None:
            known = known.copy()
            known[0] -= self.targets
        removed = ratio * self._scale_sums((known + e_j) * e_i + known * e_j)
        return removed, 0.5 * c * ratio * e_j, 0.5 * c * ratio * e_i

    def pullback(self, side, points_bar, A_bar):
        rows = self._rows_bar(side, points_bar)
        sums = np.stack([(other * rows).sum(axis=1, dtype=np.float64) for other in (A_bar, rows)])
        A_bar += self._scale_rows(rows)
        return A_bar, sums

    def update_coefficient(self, sums):
        if self.moments is None:
            return self
        moments = KEPT * self.moments + sum(sums)
        known = moments[1] > 0
        least = -moments[0] / np.where(known, moments[1], 1.0)
        return replace(self, moments=moments, coefficient=np.where(known, least, 1.0))


@public_call(QSGP)
def paired_control_variate(
    model: Record,
    points: ArrayLike,
    coefficient: float | Literal["running"] = 1.0,
    *,
    targets: ArrayLike | None = None,
    jitter: float | None = None,
) -> PairedControl:
    """Make the control variate of Evans and Nair 2018 for ``sampled_bound_and_grad``.

    For Gaussian noise.

    Parameters
    ----------
    model : QSGP
    points : (p, D) array
        Some hundred of the inputs, drawn at random.
    coefficient : float or "running"
        Factor of the control. "running": estimated from earlier steps to minimise the variance of
        the gradient of the mean, and of each dense column; 1 at first. ``info.control`` of a step
        has the new estimate, for ``update_control_variate``.
    targets : (p,) array, optional
        Targets at the points. They improve only the value.
    jitter : float, optional
        Added to the diagonal of K_PP, for a dense S; default as in ``elbo``.

    Returns
    -------
    PairedControl
        For this posterior: after a step call ``update_control_variate``, or make a new one.
        Hyperparameters can change meanwhile.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite

    Notes
    -----
    2 (1 + k) m p flops and the features, once; p^3 / 3 for an ``InducingBasis``, whose prior term
    it reduces too. A step costs 4 (1 + k) p flops more per function, and its features at the points
    twice. Source: Evans and Nair 2018, equation 3, Proposition 3 and appendix F;
    ``kriging_control_variate`` has less variance.

    Examples
    --------
    >>> fs.qsgp.paired_control_variate(weights, X[::4], "running").coefficient.shape
    (2,)
    """
    deferred_checks.defer(points)
    model, points, dtype = check_inputs(model, points, "points")
    running = isinstance(coefficient, str) and coefficient == "running"
    if isinstance(coefficient, str) and not running:
        raise ValueError(
            'paired_control_variate: `coefficient` must be a number or "running", got'
            f" {coefficient!r:.200}"
        )
    if not running:
        coefficient = check.scalar("coefficient", coefficient)
    if targets is not None:
        targets = check.as_array("targets", targets)
        one_device(("points", points), ("targets", targets))
        if targets.shape != (len(points),):
            raise ValueError(
                f"`targets` must have shape ({len(points)},), one for each of `points`, got"
                f" {targets.shape}"
            )
        check.finite("targets", targets)
        targets = targets.astype(dtype)
    factor = (
        factor_at(model, points, check.jitter_amount(jitter, dtype))
        if model.basis.dense_precision
        else None
    )
    values = values_at(model, points)
    rows = len(values)
    coefficients = np.zeros(rows, like=values) + 1 if running else coefficient
    moments = np.zeros((2, rows), like=values) if running else None
    return PairedControl(
        points.copy(), values, copy_basis(model.basis), coefficients, factor, targets, moments
    )
