"""Control variates of sampled bounds: a sample's errors at some points predict those nearby.

At points P the exact values a = A phi_P' of the mean and of the dense columns, the rows A, are
known, and so are those of a sample, A_P. The errors e = A_P - a are zero on average, for every P
and every basis of the features phi_P. So a control keeps the basis that it was made with, and
hyperparameters can change meanwhile (Evans and Nair 2018, appendix F.3).

*Kriging* carries the errors over to the batch:

    p(x)  becomes  p(x) - k_xP K_PP^-1 e.

Everything unbiased stays unbiased, and a sample of smooth functions has smooth errors. With
Gaussian noise a gradient is phi_i' times the kriged residual that the other sample sees (unbiased
as before, because it is the product of two independent means); the points have no backward pass.
Other likelihoods: ``estimators``.

*A dense S* = K_zz is close to N = K_zP K_PP^-1 K_Pz (appendix F.2). A_i S_ij A_j' minus its part in
N, plus the average of that part, is A_i S_ij A_j' minus

    A_Pi K_PP^-1 A_Pj' - a K_PP^-1 a' = a K_PP^-1 (e_i + e_j)' + e_i K_PP^-1 e_j'.

Its gradient in A_i is phi_Pi' K_PP^-1 A_Pj' minus the dense phi_P' K_PP^-1 a'. The sample's
estimate of the latter, by the weights of its draws, replaces it: phi_Pi' K_PP^-1 e_j'. (F.1 has m /
|i u j|, which is biased for strata of unequal sizes.)
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..posteriors.base import covariance_factor
from ..records import leaf, record, replace, tree_map
from ..records.inducing_sets import naming_repeated
from ..records.typed import ArrayLike, Record
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .bases import Basis
from .bases.base import BasisWeights
from .model import QSGP, check_columns, check_inputs, lightly_checked


def _check_array(name, array, shape, dtype):
    """Check the shape, the dtype and the numbers of an array of a control."""
    if array.shape != shape:
        raise ValueError(
            f"`control.{name}` must have shape {shape}, got {array.shape}; make a new control"
        )
    if array.dtype != dtype and name not in ("coefficient", "moments"):
        raise TypeError(
            f"`control.{name}` is {array.dtype}, and the model and data are {dtype}; make one of"
            " this model"
        )
    check.finite(f"control.{name}", array.diagonal() if name == "factor" else array)


class Control:
    """Base of controls.

    Records with ``points`` (p, D), ``values`` a (1 + k, p), ``basis``, and ``factor``: chol(K_PP)
    or None.
    """

    coefficient: Any = 1.0  # a number or (1 + k,): factor of what is subtracted from products
    serves_all = False  # whether it serves likelihoods other than the Gaussian too

    def shapes(self, p, rows):
        """Return the shapes of the arrays, for p points and ``rows`` rows of the mean and dense
        columns.
        """
        return {"points": (p, self.points.shape[1]), "values": (rows, p), "factor": (p, p)}

    def check_against(self, model, dtype):
        """Return the control, checked against the model; arrays with an entry per function are not
        read.
        """
        ours, theirs = (
            _name(basis) if isinstance(basis, Basis) else None
            for basis in (self.basis, model.basis)
        )
        if ours != theirs:
            raise ValueError(
                f"`control` is one of {ours}, and the model has {theirs}; make one of this model"
            )
        rows = 1 + model.posterior.columns.shape[1]
        control, names = self._convert_arrays(model, rows)
        for name, shape in control.shapes(len(control.points), rows).items():
            if name in names:
                _check_array(name, getattr(control, name), shape, dtype)
        basis = lightly_checked(QSGP(self.basis, model.posterior, model.likelihood))[0].basis
        check_columns(basis, control.points, "control.points")
        return replace(control, basis=basis)

    def _convert_arrays(self, model, rows):
        """Return the control with its fields as arrays on one device, and the names of these.

        rows : of the mean and dense columns
        """
        spare = self._optional_fields - ({"factor"} if model.basis.dense_precision else set())
        given = {
            name: getattr(self, name) for name, kind in self._record_fields if kind != "record"
        }
        arrays = {
            name: check.as_array(f"control.{name}", a)
            for name, a in given.items()
            if a is not None or name not in spare
        }
        if [arrays[name].ndim for name in ("points", "values")] != [2, 2]:
            raise ValueError(
                "`control.points` and `control.values` must have two dimensions; make a new control"
            )
        if len(arrays["values"]) != rows:
            came = len(arrays["values"]) - 1
            raise ValueError(
                f"`control` was made with {came} dense columns, and the posterior has {rows - 1};"
                " make a new one"
            )
        one_device(
            *((f"control.{name}", array) for name, array in arrays.items()),
            ("posterior.mean", model.posterior.mean),
        )
        arrays |= {
            name: array[()]
            for name, array in arrays.items()
            if type(array) is np.ndarray and array.ndim == 0
        }
        return replace(self, **arrays), arrays.keys()

    def refit(self, model, jitter):
        """Return the control at the same points of the present model.

        This removes the rounding of many advances, and takes the present basis.
        """
        factor = None if self.factor is None else factor_at(model, self.points, jitter)
        return replace(
            self, basis=copy_basis(model.basis), values=values_at(model, self.points), factor=factor
        )

    def cross_covariance(self, X):
        """Return k_Px (p, n), which carries errors from the points to the batch, or None."""
        return None

    def kriging_weights(self, rows):
        """Return K_PP^-1 applied to rows (r, p). 2 r p^2 flops."""
        return self._solve(rows.T).T

    def errors_of(self, side):
        """Return the errors (1 + k, p) of a side at the points.

        2 (1 + k) p s flops, and the features there.
        """
        values, _ = self.basis.products(self.points, BasisWeights(side.weighted, units=side.units))
        return values - self.values

    def correct_squares(self, e_i, e_j, c, count):
        """Return ``(removed, i_points_bar, j_points_bar)`` of the squares over ``count`` data.

        removed (1 + k,) is subtracted from the squares, whose weight in the bound is c / 2. The
        cotangents are those of both sides' values at the points, or None. Here nothing is removed.
        """
        return np.zeros(len(self.values), like=self.values), None, None

    def correct_prior(self, e_i, e_j):
        """Return the same for sum_ij A_i S_ij A_j' with a dense S."""
        i_solved, j_solved = (self._solve(errors.T).T for errors in (e_i, e_j))
        removed = self._scale_sums((self.values + e_j) * i_solved + self.values * j_solved)
        return removed, 0.5 * j_solved, 0.5 * i_solved

    def _solve(self, B):
        """Return K_PP^-1 B (p, r)."""
        half = kernels.solve_triangular(self.factor, np.ascontiguousarray(B, like=B))
        return kernels.solve_triangular(self.factor, half, transpose=True, overwrite_b=True)

    def _scale_sums(self, terms):
        """Return the sum of each row (1 + k,), times its coefficient."""
        return self.coefficient * terms.sum(axis=1, dtype=np.float64)

    def pullback(self, side, points_bar, A_bar):
        """Add to ``A_bar`` the cotangents through the points; return it, and sums or None.

        Costs as much as ``errors_of``. ``update_coefficient`` takes the sums of both sides.
        """
        if points_bar is not None:
            A_bar += self._scale_rows(self._rows_bar(side, points_bar))
        return A_bar, None

    def _rows_bar(self, side, points_bar):
        """Return the cotangent of a side's rows through the points, without the coefficient."""
        weights = BasisWeights(side.weighted, units=side.units)
        bar, _, _ = self.basis.products_vjp(self.points, weights, points_bar, None, ())
        return side.w * bar

    def _scale_rows(self, rows):
        """Return rows times their coefficients."""
        each = self.coefficient if np.ndim(self.coefficient) == 0 else self.coefficient[:, None]
        return np.multiply(each, rows, dtype=rows.dtype)

    def update_coefficient(self, sums):
        """Return the control after a step in which ``pullback`` returned these sums."""
        return self


def check_control(control, model, X, dtype):
    """Return the control, checked. O(its size)."""
    check_kind(control)
    model.posterior.check_size(model.basis.num_functions())
    control = control.check_against(model, dtype)
    if control.points.shape[1] != X.shape[1]:
        raise ValueError(
            f"`control` has points of {control.points.shape[1]} columns, and `X` has {X.shape[1]}"
        )
    return control


def check_kind(control):
    """Raise ``TypeError`` unless this is a control."""
    if not isinstance(control, Control):
        raise TypeError(
            "`control` must be made by fastsvgp.qsgp.kriging_control_variate or"
            " paired_control_variate, got"
            f" {type(control).__name__}"
        )


@record
class KrigedControl(Control):
    """Result of ``kriging_control_variate``: the function at some points, with the factor of K_PP.

    Parameters
    ----------
    points : (p, D)
    factor : (p, p)
        chol(K_PP + jitter I).
    values : (1 + k, p)
        Mean and dense columns at the points.
    basis : record
        Basis of the features, as it was when the control was made.

    Examples
    --------
    >>> fs.qsgp.kriging_control_variate(weights, X[::4]).points.shape
    (10, 1)
    """

    serves_all = True

    points: Any = leaf()
    factor: Any = leaf("tril")
    values: Any = leaf()
    basis: Any

    def cross_covariance(self, X):
        return self.basis.covariance.Kff(self.points, X)


@public_call(QSGP)
def kriging_control_variate(
    model: Record, points: ArrayLike, *, jitter: float | None = None
) -> KrigedControl:
    """Make a control variate for ``sampled_bound_and_grad`` that kriges errors to the batch.

    Parameters
    ----------
    model : QSGP
    points : (p, D) array
        For example some hundred of the inputs.
    jitter : float, optional
        Added to the diagonal of K_PP; default as in ``elbo``.

    Returns
    -------
    KrigedControl
        For this posterior: after a step call ``update_control_variate``, or make a new one.
        Hyperparameters can change meanwhile; the variance grows with the change.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite

    Notes
    -----
    2 (1 + k) m p flops and the features, once; p^3 / 3.

    Examples
    --------
    >>> control = fs.qsgp.kriging_control_variate(weights, X[::4])
    >>> sample = fs.qsgp.draw_basis_sample(weights.basis, 10, rng=0)
    >>> value, grad, info = fs.qsgp.sampled_bound_and_grad(weights, X, Y, sample, control=control)
    >>> control.values.shape
    (2, 10)
    """
    deferred_checks.defer(points)
    model, points, dtype = check_inputs(model, points, "points")
    factor = factor_at(model, points, check.jitter_amount(jitter, dtype))
    return KrigedControl(points.copy(), factor, values_at(model, points), copy_basis(model.basis))


def factor_at(model, points, jitter):
    """Return chol(K_PP + jitter I)."""
    with naming_repeated(points, "points"):
        return covariance_factor(model.basis.covariance.Kff(points), jitter)


def values_at(model, points):
    """Return the exact mean and dense columns at points (1 + k, p)."""
    W, _ = model.posterior.to_rows()
    values, _ = model.basis.products(points, BasisWeights(W))
    check.result(np.abs(values).sum(), model)
    return values


def copy_basis(basis):
    """Copy a basis, so that later changes of its arrays in place do not affect the control."""
    return tree_map(lambda a: a.copy() if deferred_checks.on_device(a) else np.copy(a)[()], basis)


def _name(basis):
    basis.check_settings()
    seed = f", seed {basis.seed}" if hasattr(basis, "seed") else ""
    return f"{type(basis).__name__} of {basis.num_functions()} functions{seed}"
