"""Control variates of sampled bounds: what a sample gets wrong at some points tells what it gets wrong nearby.

At points P the exact values a = phi_P A of the mean and of the dense columns A are known, and those of a sample, p_P, come with
it. Kriging takes the difference from them to the batch,

    p(x)  becomes  p(x) - k_xP K_PP^-1 (p_P - a):

on average what is taken off is nothing, whatever P is, so all that was unbiased still is; and what a sample of smooth functions
gets wrong is smooth. A gradient is phi_i' times the kriged residual that the other sample sees (unbiased as before, for it is
the product of two independent means); nothing goes back through p_P.
"""

from typing import Any

import numpy as np

from .. import check, kernels, models
from ..bases.samples import SparseRows
from ..inducing import naming_repeated
from ..kernels import verdicts
from ..records import leaf, record, replace, static
from .weight_space import QSGP, check_columns, checked_inputs, checked_parts, lightly_checked, on_host


@record
class KrigedControl:
    """What ``kriged_control`` makes: ``points`` (p, D), ``factor`` chol(K_PP + jitter I), and ``values`` (1 + k, p) of the mean
    and the dense columns there. ``basis`` says of which basis it is; it holds for the hyperparameters that it was made with.
    """

    points: Any = leaf()
    factor: Any = leaf("tril")
    values: Any = leaf()
    basis: Any = static(default="")

    def check_model(self, model):
        """Refuse a control of another basis, or of another number of dense columns."""
        if self.basis != _name(model.basis):
            raise ValueError(f"`control` is one of {self.basis}, and the model has {_name(model.basis)}; make one of this model")
        shapes = [check.as_array(f"control.{name}", getattr(self, name)).shape for name in ("points", "factor", "values")]
        if [len(shape) for shape in shapes] != [2, 2, 2] or shapes[1] != shapes[0][:1] * 2 or shapes[2][1] != shapes[0][0]:
            raise ValueError(f"`control` has points, factor and values of shapes {shapes}; make it by fastsvgp.kriged_control")
        model.posterior.check_size(model.basis.num_functions())
        expected = 1 + model.posterior.columns.shape[1]
        if self.values.shape[0] != expected:
            came = self.values.shape[0] - 1
            raise ValueError(f"`control` was made with {came} dense columns, and the posterior has {expected - 1}; make it anew")

    def renewed(self, model):
        """The same points with exact values anew, without the rounding of many advances."""
        W, _ = model.posterior.by_rows()
        return replace(self, values=model.basis.products(self.points, W, None)[0])

    def weights(self, covariance, X):
        """K_PP^-1 K_PX (p, n): 2 p^2 n flops."""
        K = covariance.Kff(self.points, X)
        half = kernels.solve_triangular(self.factor, K, overwrite_b=True)
        return kernels.solve_triangular(self.factor, half, transpose=True, overwrite_b=True)


@verdicts.retried
@models.public(QSGP)
def kriged_control(model, points, *, jitter=None) -> KrigedControl:
    """A control variate for ``sampled_bound_and_grad``.

    Parameters
    ----------
    model : QSGP
    points : (p, D) array
        Some hundred of the inputs, say.
    jitter : float, optional
        Added to the diagonal of K_PP; default as in ``elbo``.

    Returns
    -------
    KrigedControl
        Of this posterior: after it has moved, ``advance_control``, or make another.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite

    Notes
    -----
    2 (1 + k) m p flops and the features, once; p^3 / 3.
    """
    on_host("kriged_control", points)
    model, points, dtype = checked_inputs(model, points, "points")
    with naming_repeated(points, "points"):
        factor = kernels.cholesky(model.basis.covariance.Kff(points), check.jitter_amount(jitter, dtype))
    control = KrigedControl(points.copy(), factor, None, basis=_name(model.basis)).renewed(model)
    check.result(float(np.abs(control.values).sum()), model)
    return control


@models.public(QSGP)
def advance_control(model, control, change) -> KrigedControl:
    """The control after the posterior has moved.

    Parameters
    ----------
    model : QSGP
        Of the basis that the control is of.
    control : KrigedControl
    change : ChevronWeights
        Of ``SparseRows``: what was added to ``mean`` and ``columns``; None where nothing was. ``diagonal`` is not looked at.

    Returns
    -------
    KrigedControl

    Raises
    ------
    ValueError, TypeError

    Notes
    -----
    2 (1 + k) p s flops for s functions, and their features.
    """
    if not isinstance(control, KrigedControl):
        raise TypeError(f"`control` must be made by fastsvgp.kriged_control, got {type(control).__name__}")
    checked_parts(model)
    control.check_model(model)
    model, _ = lightly_checked(model)
    check_columns(model.basis, control.points, "control.points")
    parts = {name: getattr(change, name, None) for name in ("mean", "columns")}
    for name, part in parts.items():
        if part is not None and not isinstance(part, SparseRows):
            raise TypeError(f"`change.{name}` must be a fastsvgp.SparseRows or None, got {type(part).__name__}")
    parts = {name: part for name, part in parts.items() if part is not None and len(part.rows)}
    if not parts:
        return control
    basis, k = model.basis, model.posterior.columns.shape[1]
    units = np.unique(np.concatenate([part.rows for part in parts.values()]) // basis.width)
    functions = basis.functions(units)
    if functions[0] < 0 or functions[-1] >= basis.num_functions():
        raise ValueError(f"`change` names functions beyond the {basis.num_functions()} of the basis")
    W = np.zeros((1 + k, len(functions)), control.values.dtype)
    if "mean" in parts:
        W[0, np.searchsorted(functions, parts["mean"].rows)] = parts["mean"].values
    if "columns" in parts:
        rows = parts["columns"].rows
        W[1:, np.searchsorted(functions, rows)] = np.where(rows[:, None] >= np.arange(k), parts["columns"].values, 0).T
    moved, _ = basis.products(control.points, W, None, units)
    return replace(control, values=control.values + moved)


def _name(basis):
    seed = f", seed {basis.seed}" if hasattr(basis, "seed") else ""
    return f"{type(basis).__name__} of {basis.num_functions()} functions{seed}"
