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
from ..records import restricted
from .controls import checked_control
from .kriged_tangent import kriged_tangent
from .kriged_tangent import tangent as tangent_at
from .weight_space import QSGP, check_columns, checked_parts, lightly_checked, on_host


class SampledInfo(NamedTuple):
    """What a sampled bound saw: estimates ``mean`` and ``var`` (n,) at the batch, its parts ``terms``: data term and KL, and the
    ``control``, with what the step says of a running coefficient.
    """

    mean: Any
    var: Any
    terms: tuple
    control: Any = None


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
        As of ``draw_basis_sample``. j may be None where there are no dense columns, no Gaussian noise, and no control.
    num_data : float, optional
        Size of the whole data set; default n.
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all.
    control : KrigedControl or PairedControl, optional
        Of this posterior, for any likelihood: ``kriged_control``; for Gaussian noise: ``paired_control``. What is unbiased stays
        so, and varies far less; the value of other likelihoods is nearer the bound.
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
        Uphill: of the value, ``tangent`` held, or with ``control`` unbiased: of the bound itself, and where the likelihood is not
        Gaussian of the value's average. Those of ``posterior.mean``, ``posterior.columns``, ``posterior.diagonal``,
        ``basis.inducing`` and ``basis.precision`` are ``SparseRows``; None outside ``wrt``.
    info : SampledInfo

    Raises
    ------
    ValueError, TypeError
        As ``weight_bound``; units out of range, weights or ``tangent`` not positive, mixed dtypes, no j where it is needed, a
        likelihood that is not log-concave, hyperparameters of an ``InducingBasis``, whose log|S| has no gradient here.

    Notes
    -----
    4 (k + 2) n s flops for s functions on each side, and the features six times: neither num_data nor m counts. With a control
    of p points 2 (k + 1) p s and the features there, twice that where something goes back through them (``controls``,
    ``kriged_tangent``), and 2 p^2 n for kriging. Source: Evans and Nair 2018, Theorems 1, 2 and 3, corrected and reduced as in
    the derivation above the code.
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
    control = control if control is None else checked_control(control, model, X, dtype)
    carried = control if control is None else control.carried(X)
    i, j = _sides(model, sample, units, dtype, control)
    scale = check.data_scale(num_data, len(X))
    for side in (i, j):
        if side is not None:
            side.see(X, control, carried)
    if isinstance(model.likelihood, Gaussian):
        ell, likelihood_bar = _gaussian(model.likelihood, Y, i, j, scale, control)
    elif control is not None:
        ell, likelihood_bar = kriged_tangent(model.likelihood, Y, i, j, scale, _guesses(tangent, model, X), carried)
    else:
        ell, likelihood_bar = _tangent(model.likelihood, Y, i, j, scale, _guesses(tangent, model, X))
    kl, prior_bars = _prior(basis, q, i, j, wrt, control)
    mean, var = i.moments(j)
    value = check.result(ell - kl, model)
    posterior_bar, basis_bar, control = _gathered(basis, q, i, j, X, wrt, prior_bars, control)
    info = SampledInfo(mean, var, (ell, float(kl)), control)
    return value, restricted(QSGP(basis_bar, posterior_bar, likelihood_bar), wrt), info


def _sides(model, sample, units, dtype, control):
    """The two sides of a sample, the second perhaps None."""
    if not isinstance(sample, BasisSample):
        raise TypeError(f"`sample` must be a fastsvgp.BasisSample, as draw_basis_sample makes it, got {type(sample).__name__}")
    q, gaussian = model.posterior, isinstance(model.likelihood, Gaussian)
    if not gaussian and not getattr(model.likelihood, "log_concave", False):
        kind = type(model.likelihood).__name__
        raise TypeError(f"sampled_bound_and_grad: a {kind} likelihood is not log-concave: its bound has no estimate from below")
    if control is not None and not (gaussian or control.serves_all):
        kind = type(model.likelihood).__name__
        raise TypeError(f"`control` of paired_control is for Gaussian noise, not for a {kind} likelihood: use kriged_control")
    if sample.j is None and (gaussian or q.columns.shape[1] or model.basis.dense_precision or control is not None):
        k = q.columns.shape[1]
        why = "Gaussian noise" if gaussian else "dense columns" if k else "a control" if control else "a dense precision S"
        raise ValueError(f"`sample` has no j, which {why} need: draw_basis_sample(..., pair=True)")
    i = Side(model, *checked_units("i", sample.i, sample.weight_i, units, dtype), rest=True)
    if sample.j is None:
        return i, None
    return i, Side(model, *checked_units("j", sample.j, sample.weight_j, units, dtype), rest=not gaussian)


class Side:
    """One sample: the weights of its functions, what the batch sees of them, and the cotangents.

    A (1 + k, s) : mean and dense columns as rows; squares (s,) : of the rest of the diagonal; w (s,) : how often each counts
    p (n,), X_ (k, n), V (n,) : see above; V is None without ``rest``
    """

    def __init__(self, model, units, weights, rest):
        basis, q = model.basis, model.posterior
        self.basis, self.units, self.rest = basis, units, rest
        self.functions = f = basis.functions(units)
        self.w = np.repeat(weights, basis.width)
        self.k = k = q.columns.shape[1]
        self.A = np.empty((1 + k, len(f)), q.mean.dtype)
        self.A[0] = q.mean[f]
        self.A[1:] = np.where(f[:, None] >= np.arange(k), q.columns[f], 0).T
        self.below = f >= k
        self.d = np.zeros(len(f), q.mean.dtype)
        self.d[self.below] = q.diagonal[f[self.below] - k]
        for name, values in (("mean", self.A[0]), ("columns", self.A[1:]), ("diagonal", self.d)):
            if not np.isfinite(values).all():
                check.finite(f"posterior.{name}", np.tril(q.columns) if name == "columns" else getattr(q, name))
        check.positive("posterior.diagonal", self.d[self.below])
        self.A_bar, self.squares_bar = np.zeros_like(self.A), np.zeros_like(self.d)

    def see(self, X, control=None, carried=None):
        """Forward; what a control's points show to be wrong, carried over (p, n), is taken off."""
        out, self.V = self.basis.products(X, self.w * self.A, self.w * self.d**2 if self.rest else None, self.units)
        if control is not None:
            control.see(self)
        if carried is not None:
            out = out - kernels.matmul(self.errors, carried)
        self.p, self.X = out[0], out[1:]

    def moments(self, other):
        """Estimates ``(mean, var)`` of f at the batch."""
        if other is None:
            return self.p, self.V
        V = self.V if other.V is None else 0.5 * (self.V + other.V)
        return 0.5 * (self.p + other.p), V + (self.X * other.X).sum(axis=0)

    def pull(self, p_bar, X_bar, V_bar):
        """Keep the cotangents of what was seen."""
        self.seen = np.concatenate([p_bar[None], X_bar]), V_bar


def _gaussian(likelihood, Y, i, j, scale, control):
    """``(ell, likelihood_bar)``; the sides get their cotangents."""
    noise = float(likelihood.variance)
    c, residuals = scale / noise, (Y - i.p, Y - j.p)
    squares = _sum(residuals[0] * residuals[1]) + _sum(i.X * j.X) + _sum(i.V)
    if control is not None:
        squares -= control.of_squares(i, j, c, len(Y))
    n = scale * len(Y)
    constant = np.full_like(Y, -0.5 * c)
    i.pull(0.5 * c * residuals[1], -0.5 * c * j.X, constant)
    j.pull(0.5 * c * residuals[0], -0.5 * c * i.X, None)
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
    ell, p_bar, V_bar, likelihood_bar = tangent_at(likelihood, Y, mean, V, scale, t)
    if j is None:
        i.pull(p_bar, i.X, V_bar)  # k = 0: there is no X, nor a cotangent of it
    else:
        i.pull(0.5 * p_bar, V_bar * j.X, 0.5 * V_bar)
        j.pull(0.5 * p_bar, V_bar * i.X, 0.5 * V_bar)
    return ell, likelihood_bar


def _prior(basis, q, i, j, wrt, control):
    """``(KL, {field of the basis: cotangent of -KL})``; the sides get theirs."""
    quadratic, log_det, bars = basis.sampled_energy(i, j, wrt)
    if control is not None and basis.dense_precision:
        quadratic -= control.of_prior(i, j)
    logs = np.log(q.columns.diagonal(), dtype=np.float64).sum()
    logs += np.multiply(i.w[i.below], np.log(i.d[i.below], dtype=np.float64)).sum()
    return 0.5 * (quadratic - log_det - basis.num_functions()) - logs, bars


def _gathered(basis, q, i, j, X, wrt, prior_bars, control):
    """``(posterior_bar, basis_bar)`` of all sides: sparse rows; and the control after them."""
    if not any(name.partition(".")[0] in ("posterior", "basis") for name in wrt):
        return None, None, control
    sides, parts = [side for side in (i, j) if side is not None], [(i.functions, prior_bars)]
    for side in sides:
        out_bar, V_bar = side.seen
        W_bar, v_bar, bars = basis.products_vjp(
            out_bar, V_bar, X, side.w * side.A, side.w * side.d**2 if side.rest else None, wrt, side.units
        )
        side.A_bar += side.w * W_bar
        if control is not None:
            control.pull(side)
        if side.rest:
            side.squares_bar += side.w * v_bar
        parts.append((side.functions, bars))
    k = side.k
    columns = [(side.functions, np.where(side.functions[:, None] >= np.arange(k), side.A_bar[1:].T, 0)) for side in sides]
    diagonal = [(s.functions[s.below] - k, (2 * s.d * s.squares_bar)[s.below]) for s in sides]
    diagonal.append((i.functions[i.below] - k, i.w[i.below] / i.d[i.below]))
    pivots = np.zeros((k, k), q.mean.dtype)
    pivots.reshape(-1)[:: k + 1] = 1 / q.columns.diagonal()
    posterior_bar = ChevronWeights(
        summed(*((side.functions, side.A_bar[0]) for side in sides)),
        summed(*columns, (np.arange(k), pivots)),
        summed(*diagonal),
    )
    return posterior_bar, basis.sampled_gradient(parts), None if control is None else control.learnt(sides)


def _sum(values):
    return values.sum(dtype=np.float64)
