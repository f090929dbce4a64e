"""Exact evidence lower bound in weight space.

f(x) = sum_i phi_i(x) w_i, prior w ~ N(0, S^-1), q(w) = N(mu, C C'): Evans and Nair 2018, equation
2, for any likelihood. With C_d the k dense columns of the chevron C and v the squares of the rest
of its diagonal, the data depend on q only through

    mean = phi mu,    H = phi C_d,    var = rowsum(H^2) + (phi * phi) v,

products of phi with rows W = [mu, C_d]' and with v. The prior depends on q through E[w' S w] =
sum_r W_r S W_r' + sum_i S_ii v_i:

    KL = (E[w' S w] - log |S| - m) / 2 - log det C.

Backward, with a, b the cotangents of mean and var: those of the products are [a, 2 b H] and b, and
the basis does the rest.
"""

from typing import Any

import numpy as np

from .. import check
from ..likelihoods import Likelihood
from ..records import Marginals, is_record, leaves, missing, record, replace, restricted, tree_map
from ..records.typed import AnyRecord, ArrayLike, Names, Record, RecordT
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from ..runtime.edge import public_call
from .bases import Basis
from .bases.base import BasisWeights
from .posterior import ChevronWeights


@record
class QSGP:
    """Gaussian process of m basis functions in weight space.

    A training step needs neither all data nor all functions.

    Parameters
    ----------
    basis : RandomFourier, InducingBasis or RelevanceBasis
    posterior : ChevronWeights
    likelihood : Likelihood
        With one latent function.

    Notes
    -----
    Source: Evans and Nair 2018, "Quadruply stochastic Gaussian processes".

    Examples
    --------
    >>> q = fs.qsgp.ChevronWeights(mean=np.zeros(50), columns=np.eye(50, 1), diagonal=np.ones(49))
    >>> weights = fs.QSGP(fs.qsgp.RandomFourier(covariance, num_features=50), q, gaussian)
    >>> mean, var = fs.predict_f(weights, X)
    >>> mean.shape
    (40,)
    """

    basis: Basis
    posterior: ChevronWeights
    likelihood: Likelihood


@public_call(QSGP, name="qsgp.bound")
def bound(
    model: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
) -> float:
    """Evaluate the evidence lower bound of a ``QSGP`` over all its functions, in nats.

    Parameters
    ----------
    model : QSGP
    X : (N, D) array
    Y : (N,) array
    num_data : float, optional
        Size of the whole data set: the data term is scaled by num_data / N. Default: N.
    jitter : float, optional
        Absolute amount added to the diagonal of S = K_zz of an ``InducingBasis``; default 1e-6 in
        float64, 1e-4 in float32.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    2 (k + 2) m N flops and the features, which are computed in parts and never stored; for an
    ``InducingBasis`` m^3 / 3 + 2 (k + 1) m^2 more. Equation 2 of Evans and Nair 2018; for a
    Gaussian likelihood and k = m its maximum is the log evidence.

    Examples
    --------
    >>> round(fs.qsgp.bound(weights, X, Y), 2)
    -279.18
    """
    model, X, Y, dtype = check_data(model, X, Y)
    terms = _Terms(model, X, Y, num_data, check.jitter_amount(jitter, dtype), need=False)
    return check.result(terms.data - terms.kl, model)


@public_call(QSGP, name="qsgp.bound_and_grad")
def bound_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
    wrt: Names | None = None,
) -> tuple[float, RecordT]:
    """Evaluate ``qsgp.bound`` and its gradient.

    Parameters
    ----------
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all.
    model, X, Y, num_data, jitter
        As in ``qsgp.bound``.

    Returns
    -------
    value : float
    grad : QSGP
        In natural space; None outside ``wrt``.

    Notes
    -----
    Three times the cost of the value.

    Examples
    --------
    >>> value, grad = fs.qsgp.bound_and_grad(weights, X, Y)
    >>> grad.posterior.columns.shape
    (50, 1)
    """
    given, X, Y, dtype = check_data(model, X, Y)
    wrt = check.names(wrt, given)
    terms = _Terms(given, X, Y, num_data, check.jitter_amount(jitter, dtype))
    posterior_bar, basis_bar = terms.pull(wrt)
    value = check.result(terms.data - terms.kl, given)
    return value, restricted(QSGP(basis_bar, posterior_bar, terms.likelihood_bar), wrt)


class _Terms:
    """Data term and KL of a batch, with their backward pass."""

    def __init__(self, model, X, Y, num_data, jitter, need=True):
        self._model, self._X, scale = model, X, check.data_scale(num_data, len(X))
        q = model.posterior
        self._W, self._v = q.to_rows()
        out, squares = model.basis.products(X, BasisWeights(self._W, self._v))
        self._H = out[1:]
        f = Marginals(out[0], squares + np.square(self._H).sum(axis=0))
        ell, f_bar, likelihood_bar = model.likelihood.expected_log_prob(Y, f, None, need=need)
        self.data = scale * ell
        if need:
            self._f_bar, self.likelihood_bar = (
                tree_map(lambda bar: bar * scale, tree) for tree in (f_bar, likelihood_bar)
            )
        self._energy = model.basis.energy(self._W, self._v, jitter)
        self.kl = 0.5 * (self._energy.quadratic - self._energy.log_det - len(self._v)) - q.log_det()

    def pull(self, wrt):
        """Return ``(posterior_bar, basis_bar)`` of data - kl."""
        q, basis, f_bar = self._model.posterior, self._model.basis, self._f_bar
        out_bar = np.concatenate([f_bar.mean[None], 2 * f_bar.var * self._H])
        weights = BasisWeights(self._W, self._v)
        of_data = basis.products_vjp(self._X, weights, out_bar, f_bar.var, wrt)
        of_prior = basis.energy_vjp(-0.5, 0.5, self._energy.saved, self._W, self._v, wrt)
        bar = q.to_rows_vjp(of_data[0] + of_prior[0], of_data[1] + of_prior[1])
        of_columns, of_rest = q.log_det_vjp(1.0)
        k = q.columns.shape[1]
        bar.columns.reshape(-1)[: k * k : k + 1] += of_columns
        return ChevronWeights(bar.mean, bar.columns, bar.diagonal + of_rest), basis.gradient(
            of_data[2], of_prior[2]
        )


def check_parts(model):
    """Return ``(basis, posterior)``; ``TypeError`` if a part of the model has the wrong type."""
    check.parts(model, ("likelihood",))
    if not isinstance(model.basis, Basis) or not isinstance(model.posterior, ChevronWeights):
        raise TypeError(
            "`basis` of the model must be a fastsvgp.qsgp.RandomFourier, InducingBasis or"
            " RelevanceBasis, and `posterior` a fastsvgp.qsgp.ChevronWeights, got"
            f" {type(model.basis).__name__} and {type(model.posterior).__name__}"
        )
    check_likelihood(model.likelihood)
    covariance = model.basis.covariance
    if not is_record(covariance) or not hasattr(covariance, "check_dim"):
        what = (
            f"{covariance.__name__}, a class"
            if isinstance(covariance, type)
            else type(covariance).__name__
        )
        raise TypeError(
            f"`basis.covariance` must be a record such as fastsvgp.RBF(...), got {what}"
        )
    return model.basis, model.posterior


def check_likelihood(likelihood):
    """Reject likelihoods of several functions per output, or of targets of several columns."""
    kind, K = type(likelihood).__name__, likelihood.latents_per_output
    if K != 1:
        raise TypeError(
            f"`likelihood` is a {kind}, which takes {K} latent functions per output, and a QSGP has"
            " one; use an SVGP"
        )
    if check.num_columns(likelihood) != 1:
        raise TypeError(
            f"`likelihood` is a {kind}, whose targets have the columns"
            f" {', '.join(likelihood.target_columns)}, and a QSGP takes targets of one column; use"
            " an SVGP"
        )


def check_data(model, X, Y) -> tuple[AnyRecord, np.ndarray, np.ndarray, np.dtype]:
    """Return ``(model, X, Y, dtype)`` of a bound, checked and cast."""
    Y = check.as_array("Y", Y)
    model, X, dtype = check_inputs(model, X, "X", *((Y,) if Y.dtype.kind == "f" else ()))
    return model, X, check.targets(Y, len(X), (), model.likelihood, dtype), dtype


def lightly_checked(model, **data) -> tuple[AnyRecord, np.dtype]:
    """Return ``(model, dtype)`` with hyperparameters checked and cast, and one dtype throughout.

    Arrays with an entry per function are not read.
    """
    for path in missing(model):
        raise TypeError(f"`{path}` is None where a number or an array must be{check.PARTIAL}")
    named = {path: check.as_array(path, value) for path, _, value in leaves(model)} | data
    one_device(*named.items())
    arrays = {
        path: value
        for path, value in named.items()
        if value.ndim and (path != "Y" or value.dtype.kind == "f")
    }
    dtype = check.common_dtype(*arrays.values(), names=tuple(arrays))
    for path, value in arrays.items():
        if value.dtype != dtype and path not in data:
            raise TypeError(
                f"`{path}` is {value.dtype}, and the model or data are {dtype}; give one dtype"
                " to all"
            )
    of_dtype = np.empty(
        0,
        dtype,
        like=next((value for value in named.values() if deferred_checks.on_device(value)), None),
    )
    covariance, _ = check.parameters(model.basis.covariance, of_dtype, prefix="basis.covariance.")
    likelihood, _ = check.parameters(model.likelihood, of_dtype, prefix="likelihood.")
    basis, posterior = (
        tree_map(lambda a: check.as_array("model", a), part)
        for part in (model.basis, model.posterior)
    )
    given: Any = QSGP(replace(basis, covariance=covariance), posterior, likelihood)
    return given, dtype


def refuse_device_arrays(name, *arrays):
    """Reject arrays on a device."""
    if deferred_checks.on_device(*arrays):
        raise TypeError(
            f"{name} works on NumPy arrays: move the model by fastsvgp.to_host(model), and data by"
            " .get()"
        )


def check_columns(basis, X, name="X"):
    """Reject inputs, called ``name``, that do not fit a basis."""
    try:
        basis.check_columns(X.shape[1])
    except ValueError as error:
        raise ValueError(f"`{name}` has {X.shape[1]} columns. {error}") from None
    check.codes(basis.covariance, X, name)
    if hasattr(basis, "inducing"):
        check.codes(basis.covariance, basis.inducing, "basis.inducing")


def check_inputs(model, X, name, *others) -> tuple[AnyRecord, np.ndarray, np.dtype]:
    """Return ``(model, X, dtype)``, checked and cast to the dtype common with other arrays."""
    check_parts(model)
    X = check.inputs(name, X)
    model, dtype = check.parameters(model, X, *others, names=(name, "Y"))
    check_columns(model.basis, X, name)
    model.posterior.check_size(model.basis.num_functions())
    model.likelihood.check_settings()
    return model, X.astype(dtype, copy=False), dtype
