"""The bound in weight space from some data and some basis functions: unbiased, or below it on average, at a cost of neither.

With i and j independent samples of functions, w their weights (sums over a sample are sums over all functions on average),
phi_i the features of the batch and A = [mu, C_d] the mean and the dense columns of the chevron C as rows,

    p_i = phi_i (w A_0)_i,    X_i = phi_i (w A_1..k)_i,    V_i = (phi_i * phi_i) (w d^2)_i

are on average the mean, the dense part phi C_d, and the variance of the diagonal rest. So with c = num_data / (noise batch)

    Gaussian:  ell = -num_data log(2 pi noise) / 2 - c / 2 [(y - p_i)' (y - p_j) + sum X_i * X_j + sum V_i],
    KL       = (Q - log|S| - m) / 2 - sum_r<k log C_rr - sum_i w log d_i,
               Q = sum_i w S_ii (|A_i|^2 + d_i^2) for a diagonal S, and sum_ij (w A)_i S_ij (w A)_j + sum_i w S_ii d_i^2 else:

products of what i and j see are products of means. These are the estimators of Theorems 1 and 2 of Evans and Nair 2018 with two
sums done exactly that cost nothing: over coincidences of i and j in a diagonal S, and over the k dense columns.

*Other likelihoods*, log-concave ones, have a lower bound of that form. H(mean, sd) = E log p(y | mean + sd z), z ~ N(0, 1), is
jointly concave, and falls with |sd|. So where the mean of (mean^, sd^) is (mean, at least sd), that of H(mean^, sd^) is at most
H(mean, sd) (Jensen). V^ = V + sum_r X_ir X_jr is on average sd^2, and for any t > 0 that the sample does not know

    sd^ = (V^ / t + t) / 2,    E sd^ = (sd^2 / t + t) / 2 >= sd:

the tangent of the square root. (Theorem 3 as printed takes the variance for sd.) With a = dH/dmean, b = dH/dsd:
p_bar = a, V_bar = b / (2 t). Where both samples are there, mean^ and V are the means of theirs.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels, models
from ..bases.samples import BasisSample, checked_units, num_units, summed
from ..kernels import verdicts
from ..likelihoods import Gaussian
from ..posteriors.weights import ChevronWeights
from ..records import Marginals, restricted, tree_map
from .controls import KrigedControl
from .weight_space import QSGP, check_columns, checked_parts, lightly_checked, on_host


class SampledInfo(NamedTuple):
    """What a sampled bound saw: estimates ``mean`` and ``var`` (n,) at the batch, and its parts ``terms``: data term and KL."""

    mean: Any
    var: Any
    terms: tuple


@verdicts.retried
@models.public(QSGP)
def sampled_bound_and_grad(
    model, X, Y, sample, *, num_data=None, wrt=None, control=None, tangent=None
) -> tuple[float, QSGP, SampledInfo]:
    """An estimate of ``weight_bound`` and its gradient from a batch of data and a sample of basis functions.

    Parameters
    ----------
    model : QSGP
        Of one dtype. What the sample does not name is not looked at.
    X : (n, D) array
    Y : (n,) array
    sample : BasisSample
        As of ``draw_basis_sample``. j may be None where there are no dense columns and the likelihood is not Gaussian.
    num_data : float, optional
        Size of the whole data set; default n.
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all.
    control : KrigedControl, optional
        Of this posterior, for Gaussian noise: ``kriged_control``. Value and gradient stay unbiased, and vary far less.
    tangent : float or (n,) array, optional
        t above, for likelihoods that are not Gaussian: any positive guess of the standard deviations of f that did not see this
        sample, such as a running mean of ``info.var`` to the power 1/2; default the prior's. The gap it leaves is
        (sd - t)^2 / (2 t) in sd.

    Returns
    -------
    value : float
        Gaussian noise: unbiased. Else below the bound on average, by less the nearer ``tangent`` is and the larger the sample.
        With an ``InducingBasis`` it lacks log|S| / 2, which no sample tells.
    grad : QSGP
        Uphill: of the value, ``tangent`` held, or with ``control`` of the bound itself, unbiased. Those of ``posterior.mean``,
        ``posterior.columns``, ``posterior.diagonal``, ``basis.inducing`` and ``basis.precision`` are ``SparseRows``; None outside
        ``wrt``.
    info : SampledInfo

    Raises
    ------
    ValueError, TypeError
        As ``weight_bound``; units out of range, weights or ``tangent`` not positive, mixed dtypes, no j where it is needed, a
        likelihood that is not log-concave, hyperparameters of an ``InducingBasis``, whose log|S| has no gradient here.

    Notes
    -----
    4 (k + 2) n s flops for s functions on each side, and the features four times, for Gaussian noise three times: neither
    num_data nor m counts. With a control of p points 2 (k + 1) p s and the features there, and 2 p^2 n. Source: Evans and Nair
    2018, Theorems 1, 2 and 3, corrected and reduced as in the derivation above the code.
    """
    _, q = checked_parts(model)
    on_host("sampled_bound_and_grad", X, Y, q.mean, q.columns, q.diagonal)
    X, Y = check.inputs("X", X), check.as_array("Y", Y)
    model, dtype = lightly_checked(model, X=X, Y=Y)
    basis = model.basis
    X, units = X.astype(dtype, copy=False), num_units(basis)
    check_columns(basis, X)
    outputs = q.check_size(basis.num_functions())
    model.likelihood.check_settings()
    Y = check.targets(Y, len(X), outputs, model.likelihood, dtype)
    wrt = check.names(wrt, model)
    if basis.dense_precision and any(name == "basis" or name.startswith("basis.") for name in wrt):
        raise ValueError(
            f"sampled_bound_and_grad: log|S| of an {type(basis).__name__} has no gradient from a sample; leave `basis` out of "
            "`wrt` (weight_bound_and_grad has it)"
        )
    i, j = _sides(model, sample, units, dtype)
    scale = check.data_scale(num_data, len(X))
    weights = None if control is None else _kriging(control, model, X, dtype)
    if j is not None:
        j.see(X, control, weights)
    if isinstance(model.likelihood, Gaussian):
        _pull_by(j, i, model.likelihood, Y, scale)  # what j saw is enough: i is seen and pulled in one sweep
        i.see(X, control, weights, wrt)
        ell, likelihood_bar = _gaussian(model.likelihood, Y, i, j, scale)
    else:
        i.see(X)
        ell, likelihood_bar = _tangent(model.likelihood, Y, i, j, scale, _guesses(tangent, model, X))
    kl, prior_bars = _prior(basis, q, i, j, wrt)
    mean, var = i.moments(j)
    value = check.result(ell - kl, model)
    posterior_bar, basis_bar = _gathered(basis, q, i, j, X, wrt, prior_bars)
    return value, restricted(QSGP(basis_bar, posterior_bar, likelihood_bar), wrt), SampledInfo(mean, var, (ell, float(kl)))


def _kriging(control, model, X, dtype):
    """How the control's points tell of the batch, checked."""
    if not isinstance(control, KrigedControl):
        raise TypeError(f"`control` must be made by fastsvgp.kriged_control, got {type(control).__name__}")
    if not isinstance(model.likelihood, Gaussian):
        kind = type(model.likelihood).__name__
        raise TypeError(f"sampled_bound_and_grad: `control` is for Gaussian noise, not for a {kind} likelihood; leave it out")
    control.check_model(model)
    if control.values.dtype != dtype:
        raise TypeError(f"`control` is {control.values.dtype}, and the model and data are {dtype}; make one of this model")
    return control.weights(model.basis.covariance, X)


def _sides(model, sample, units, dtype):
    """The two sides of a sample, the second perhaps None."""
    if not isinstance(sample, BasisSample):
        raise TypeError(f"`sample` must be a fastsvgp.BasisSample, as draw_basis_sample makes it, got {type(sample).__name__}")
    q, gaussian = model.posterior, isinstance(model.likelihood, Gaussian)
    if not gaussian and not getattr(model.likelihood, "log_concave", False):
        kind = type(model.likelihood).__name__
        raise TypeError(f"sampled_bound_and_grad: a {kind} likelihood is not log-concave: its bound has no estimate from below")
    if sample.j is None and (gaussian or q.columns.shape[1] or model.basis.dense_precision):
        why = "Gaussian noise" if gaussian else "dense columns" if q.columns.shape[1] else "a dense precision S"
        raise ValueError(f"`sample` has no j, which {why} need: draw_basis_sample(..., pair=True)")
    i = Side(model, *checked_units("i", sample.i, sample.weight_i, units, dtype), rest=True)
    if sample.j is None:
        return i, None
    return i, Side(model, *checked_units("j", sample.j, sample.weight_j, units, dtype), rest=not gaussian)


class Side:
    """One sample: the weights of its functions, what the batch sees of them, and the cotangents.

    weighted : w A, and w d^2 or without ``rest`` None
    A (1 + k, s) : mean and dense columns as rows; squares (s,) : of the rest of the diagonal; w (s,) : how often each counts
    p (n,), X_ (k, n), V (n,) : see above; V is None without ``rest``
    """

    def __init__(self, model, units, weights, rest):
        basis, q = model.basis, model.posterior
        self.basis, self.units, self.rest = basis, units, rest
        self.functions = f = basis.functions(units)
        self.w = np.repeat(weights, basis.width)
        self.k = k = q.columns.shape[1]
        self.A = kernels.empty((1 + k, len(f)), q.mean)
        self.A[0] = q.mean[f]
        self.below = f >= k
        if k:
            kernels.gather_rows(q.columns, f, self.A[1:])
            head = np.flatnonzero(~self.below)
            self.A[1:, head] = np.where(f[head] >= np.arange(k)[:, None], self.A[1:, head], 0)
        self.d = np.zeros(len(f), q.mean.dtype)
        self.d[self.below] = q.diagonal[f[self.below] - k]
        for name, values in (("mean", self.A[0]), ("columns", self.A[1:]), ("diagonal", self.d)):
            if not np.isfinite(values).all():
                check.finite(f"posterior.{name}", np.tril(q.columns) if name == "columns" else getattr(q, name))
        check.positive("posterior.diagonal", self.d[self.below])
        self.A_bar, self.squares_bar = kernels.empty(self.A.shape, self.A), np.zeros_like(self.d)
        self.A_bar[...] = 0
        weighted = np.multiply(self.w, self.A, out=kernels.empty(self.A.shape, self.A))
        self.weighted = weighted, self.w * self.d**2 if rest else None
        self.seen = self.bars = None
        self.kept = []

    def see(self, X, control=None, weights=None, wrt=()):
        """Forward, and back where cotangents are there already; with a control what its points show, carried over by weights
        (p, n), is taken off.
        """
        if self.seen is not None and _moves(wrt):
            bars = *self.seen, X, *self.weighted, wrt
            (out, self.V), self.bars = self.basis.products_and_vjp(*bars, self.units, self.kept)
        else:
            out, self.V = self.basis.products(X, *self.weighted, self.units, self.kept)
        if control is not None:
            there, _ = self.basis.products(control.points, self.weighted[0], None, self.units)
            out = out - kernels.matmul(there - control.values, weights)
        self.p, self.X = out[0], out[1:]

    def back(self, X, wrt):
        """``(W_bar, v_bar, {field: cotangent})`` of what was seen."""
        if self.bars is None:
            self.bars = self.basis.products_vjp(*self.seen, X, *self.weighted, wrt, self.units, self.kept)
        return self.bars

    def moments(self, other):
        """Estimates ``(mean, var)`` of f at the batch."""
        if other is None:
            return self.p, self.V
        V = self.V if other.V is None else 0.5 * (self.V + other.V)
        return 0.5 * (self.p + other.p), V + (self.X * other.X).sum(axis=0)

    def pull(self, p_bar, X_bar, V_bar):
        """Keep the cotangents of what was seen."""
        self.seen = np.concatenate([p_bar[None], X_bar]), V_bar


def _moves(wrt):
    """Whether anything is differentiated that the functions' weights or features depend on."""
    return any(name.partition(".")[0] in ("posterior", "basis") for name in wrt)


def _pull_by(other, side, likelihood, Y, scale):
    """The cotangents of a side for Gaussian noise, which need the other alone."""
    c = scale / float(likelihood.variance)
    side.pull(0.5 * c * (Y - other.p), -0.5 * c * other.X, np.full_like(Y, -0.5 * c) if side.rest else None)


def _gaussian(likelihood, Y, i, j, scale):
    """``(ell, likelihood_bar)``; j gets its cotangents."""
    noise = float(likelihood.variance)
    c, residuals = scale / noise, (Y - i.p, Y - j.p)
    squares = _sum(residuals[0] * residuals[1]) + _sum(i.X * j.X) + _sum(i.V)
    n = scale * len(Y)
    _pull_by(i, j, likelihood, Y, scale)
    bar = -0.5 * (n - c * squares) / noise
    return -0.5 * (n * np.log(2 * np.pi * noise) + c * squares), Gaussian(Y.dtype.type(bar))


def _guesses(tangent, model, X):
    """t of each datum."""
    if tangent is None:
        return np.sqrt(model.basis.covariance.kff(X))
    tangent = check.as_array("tangent", tangent)
    if tangent.shape not in ((), (len(X),)):
        raise ValueError(f"`tangent` must be a number or have shape ({len(X)},), one for each row of `X`, got {tangent.shape}")
    check.finite("tangent", tangent)
    check.positive("tangent", tangent)
    return np.broadcast_to(tangent, (len(X),)).astype(X.dtype)


def _tangent(likelihood, Y, i, j, scale, t):
    mean, V = i.moments(j)
    sd = 0.5 * (V / t + t)
    var = np.maximum(sd * sd, np.finfo(sd.dtype).tiny ** 0.5)  # at 0 the derivative in sd is 0, whatever that in var is
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, Marginals(mean, var), None)
    p_bar, V_bar = scale * f_bar.mean, scale * f_bar.var * sd / t
    if j is None:
        i.pull(p_bar, i.X, V_bar)  # k = 0: there is no X, nor a cotangent of it
    else:
        i.pull(0.5 * p_bar, V_bar * j.X, 0.5 * V_bar)
        j.pull(0.5 * p_bar, V_bar * i.X, 0.5 * V_bar)
    return scale * ell, tree_map(lambda bar: bar * scale, likelihood_bar)


def _prior(basis, q, i, j, wrt):
    """``(KL, {field of the basis: cotangent of -KL})``; the sides get theirs."""
    quadratic, log_det, bars = basis.sampled_energy(i, j, wrt)
    logs = np.log(q.columns.diagonal(), dtype=np.float64).sum()
    logs += np.multiply(i.w[i.below], np.log(i.d[i.below], dtype=np.float64)).sum()
    return 0.5 * (quadratic - log_det - basis.num_functions()) - logs, bars


def _gathered(basis, q, i, j, X, wrt, prior_bars):
    """``(posterior_bar, basis_bar)`` of all sides: sparse rows."""
    if not _moves(wrt):
        return None, None
    sides, parts = [side for side in (i, j) if side is not None], [(i.functions, prior_bars)]
    for side in sides:
        W_bar, v_bar, bars = side.back(X, wrt)
        side.A_bar += np.multiply(side.w, W_bar, out=W_bar)
        if side.rest:
            side.squares_bar += side.w * v_bar
        parts.append((side.functions, bars))
    k = side.k
    columns = [(side.functions, side.A_bar[1:].T) for side in sides if k]
    diagonal = [_of_diagonal(side, side is i) for side in sides if side.rest]
    pivots = np.zeros((k, k), q.mean.dtype)
    pivots.reshape(-1)[:: k + 1] = 1 / q.columns.diagonal()
    columns = summed(*columns, (np.arange(k), pivots))
    head = columns.rows[: np.searchsorted(columns.rows, k)]
    columns.values[: len(head)][head[:, None] < np.arange(k)] = 0
    mean = summed(*((side.functions, side.A_bar[0]) for side in sides))
    posterior_bar = ChevronWeights(mean, columns, summed(*diagonal))
    return posterior_bar, basis.sampled_gradient(parts)


def _of_diagonal(side, log_det):
    """What a side adds to the gradient in the diagonal beyond the dense columns, of log det C too if it is the side to tell."""
    d = side.d[side.below]
    bar = 2 * d * side.squares_bar[side.below]
    return side.functions[side.below] - side.k, bar + side.w[side.below] / d if log_det else bar


def _sum(values):
    return values.sum(dtype=np.float64)
