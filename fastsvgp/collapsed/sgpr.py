"""The collapsed bound of SGPR and its optimal q(u).

Titsias 2009; handbook, "SGPR" and appendices VI, VII. With beta = 1 / noise, L = chol(Kuu), Lam =
L^-1 Kuf, B = I + beta Lam Lam', R = chol(B), c = beta R^-1 Lam y:

    bound = log N(y | 0, Qff + noise I) - beta t / 2,     t = tr(Kff - Qff) = sum kff - |Lam|_F^2
          = -N/2 log(2 pi noise) - sum log R_ii - beta |y|^2 / 2 + |c|^2 / 2 - beta t / 2.

Gradient, per output, with w = L^-T R^-T c and e = y - Kfu w (the weights of the mean and its
residual):

    Kuf_bar = beta (w e' + L^-T (I - B^-1) Lam),     kff_bar = -beta / 2,     y_bar = -beta e
    Kuu_bar = -1/2 (w w' + L^-T (B - 2 I + B^-1) L^-1)
    noise_bar = beta^2 |e|^2 / 2 - beta (N - M + tr B^-1) / 2 + beta^2 t / 2

P outputs share the covariance: the terms without y count P times.

With data weights, W = diag(omega), each sum over data is weighted, including Lam Lam' = sum lam_n
lam_n' and N = sum 1:

    B = I + beta Lam W Lam',    c = beta R^-1 Lam W y,    t = sum omega kff - tr(Lam W Lam')
    bound = -1/2 (sum omega) log(2 pi noise) - sum log R_ii - beta sum omega y^2 / 2 + |c|^2 / 2
            - beta t / 2,

the bound sum omega_n E log N(y_n | f_n, noise) - KL at its optimum q(v) = N(m, B^-1), m = R^-T c =
beta B^-1 Lam W y. Gradient: q(v) is held fixed, because it is optimal, and with e = y - Lam' m, the
e of above,

    bound = -1/2 (sum omega) log(2 pi noise)
            - beta/2 sum omega_n (e_n^2 + kff_n - |lam_n|^2 + lam_n' B^-1 lam_n) - KL
    y_bar = -beta W e,    kff_bar = -beta omega / 2
    Lam_bar = beta (m (W e)' + (I - B^-1) Lam W)        each column times its weight
    Kuf_bar = L^-T Lam_bar
            = beta (w (W e)' + L^-T (I - B^-1) Lam W)   w = L^-T m as above
    Lam W e = Lam W y - Lam W Lam' m = (B m - (B - I) m) / beta = m / beta
    Lam_bar Lam' = m m' + (I - B^-1) (B - I)
                 = m m' + B - 2 I + B^-1                the whitening rule gives the Kuu_bar above
    noise_bar = beta^2 / 2 (sum omega e^2 + t + tr(Lam W Lam' B^-1)) - beta / 2 sum omega
    beta tr(Lam W Lam' B^-1) = tr((B - I) B^-1) = M - tr B^-1

so in noise_bar only N and |e|^2 become weighted. The weights (N,) belong to rows and are shared by
the outputs, as B is.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels, models
from ..bounds.predictor import predictor
from ..bounds.svgp import SVGP
from ..check import weights as weighing
from ..check.scale import ALL_ROWS
from ..covariances import Covariance
from ..distributed.reduce import call_on_ranks
from ..likelihoods import Gaussian
from ..likelihoods.base import in_dtype, total, weighted
from ..means import Mean
from ..posteriors import Whitened
from ..posteriors.base import add_to_diagonals
from ..records import Blocks, leaf, plus, record, restricted
from ..records.typed import AnyRecord, Array, ArrayLike, Group, Names, Number, Record, RecordT
from ..runtime import deferred_checks
from ..runtime.edge import public_call
from .forward_pass import forward


@record
class SGPR:
    """Sparse Gaussian process regression: Gaussian noise, q(u) optimal and implicit.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array, or a record that the covariance takes
    noise_variance : float
    mean : Mean, optional

    Examples
    --------
    >>> sgpr = fs.SGPR(covariance, inducing=Z, noise_variance=0.1)
    >>> trained, info = fs.fit(sgpr, X, Y, steps=20)
    >>> trained.noise_variance < 0.1
    True
    """

    covariance: Covariance
    inducing: Array | Record
    noise_variance: Number = leaf("positive")
    mean: Mean | None = None


@public_call(SGPR)
def collapsed_bound(
    sgpr: Record,
    X: ArrayLike | Record,
    Y: ArrayLike | None = None,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    group: Group | None = None,
) -> float:
    """Compute the collapsed bound, in nats: 2 M^2 N flops, 8 M^2 N for an ``OrthogonalSGPR``.

    Parameters
    ----------
    sgpr, X, Y, jitter, weights, group
        As in ``collapsed_bound_and_grad``.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``collapsed_bound_and_grad``.

    Examples
    --------
    >>> round(fs.collapsed_bound(sgpr, X, Y), 3)
    -4.474
    """
    options = dict(weights=weights, jitter=jitter)
    if group is not None:
        return call_on_ranks("collapsed_bound", _bound, sgpr, X, Y, group, None, options)
    return _bound(sgpr, X, Y, **options)


def _bound(sgpr, X, Y, scale=ALL_ROWS, *, jitter, weights):
    form = FORMS[type(sgpr)]
    sgpr, X, Y, jitter, weights = check_weighted_sgpr(weights, form.check, sgpr, X, Y, jitter)
    return form.total(form.forward(sgpr, X, Y, jitter, weights, scale, keep=False), sgpr, scale)


@public_call(SGPR)
def collapsed_bound_and_grad(
    sgpr: RecordT,
    X: ArrayLike | Record,
    Y: ArrayLike | None = None,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    wrt: Names | None = None,
    group: Group | None = None,
) -> tuple[float, RecordT]:
    """Compute the collapsed bound of SGPR and its gradient.

    Parameters
    ----------
    sgpr : SGPR, OrthogonalSGPR or BasisGP
    X : (N, D) array; of a BasisGP also SufficientSums
        All data.
    Y : (N,) or (N, P) array; none with sums
        P outputs share covariance, inducing inputs and noise; their bounds are summed.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32.
    weights : (N,) array, optional
        Non-negative weight of each row, as in ``elbo``. All outputs of a row have one weight,
        because they share the covariance of q(u).
    group : group of ``fs.distributed``, optional
        As in ``elbo``, with two all-reduces: first Lam Lam' and Lam y with the scalar sums, then
        the gradient. An ``OrthogonalSGPR`` reduces the value in the second one, so
        ``collapsed_bound`` has both too.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all.

    Returns
    -------
    value : float
    grad : record of the kind of ``sgpr``
        In natural space; ``None`` for fields that ``wrt`` leaves out.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite

    Notes
    -----
    4 M^2 N + 10/3 M^3 flops; 14 M^2 N + 29 M^3 for ``OrthogonalSGPR`` with M2 = M. Memory for two
    (M, N) arrays in addition to the covariance block. On a device the value and the outcome of all
    checks are copied to the host once.

    Examples
    --------
    >>> value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y)
    >>> grad.inducing.shape
    (6, 1)
    """
    options = dict(weights=weights, jitter=jitter, wrt=wrt)
    if group is not None:
        name = "collapsed_bound_and_grad"
        return call_on_ranks(name, _bound_and_grad, sgpr, X, Y, group, None, options)
    return _bound_and_grad(sgpr, X, Y, **options)


def _bound_and_grad(sgpr, X, Y, scale=ALL_ROWS, *, jitter, weights, wrt=None):
    form = FORMS[type(sgpr)]
    sgpr, X, Y, jitter, weights = check_weighted_sgpr(weights, form.check, sgpr, X, Y, jitter)
    wrt = check.names(wrt, sgpr)
    s = form.forward(sgpr, X, Y, jitter, weights, scale)
    grad = form.gradient(s, sgpr, X, wrt, scale)
    value = check.result(s.value, sgpr)
    share, grad = scale.all_reduce_gradient(value if form.shares else 0.0, grad)
    return share if form.shares else value, grad


@public_call(SGPR)
def optimal_svgp(
    sgpr: Record,
    X: ArrayLike | Record,
    Y: ArrayLike | None = None,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    group: Group | None = None,
) -> SVGP:
    """Compute the SVGP with the optimal q(u), whose bound equals the collapsed bound.

    q(v) = N(B^-1 beta Lam y, B^-1) with u = L v. Long data are processed in chunks. On a device
    only the value of the bound and the outcome of all checks are copied to the host.

    Parameters
    ----------
    sgpr, X, Y, jitter, weights, group
        As in ``collapsed_bound_and_grad``.

    Returns
    -------
    SVGP, or BasisSVGP
        With a ``Whitened`` posterior (``WhitenedOrthogonal`` for an ``OrthogonalSGPR``) and a
        ``Gaussian`` likelihood. One reversed Cholesky factorisation of B gives the lower factor of
        B^-1 (appendix VII of the handbook gives an upper factor).

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``collapsed_bound_and_grad``.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X, Y)
    >>> round(fs.elbo(best, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    options = dict(weights=weights, jitter=jitter)
    if group is not None:
        return call_on_ranks("optimal_svgp", _optimum, sgpr, X, Y, group, None, options)
    return _optimum(sgpr, X, Y, **options)


def _optimum(sgpr, X, Y, scale=ALL_ROWS, *, jitter, weights):
    form = FORMS[type(sgpr)]
    sgpr, X, Y, jitter, weights = check_weighted_sgpr(weights, form.check, sgpr, X, Y, jitter)
    s = form.forward(sgpr, X, Y, jitter, weights, scale, keep=False)
    posterior = form.optimum(s)
    form.total(s, sgpr, scale)
    return SVGP(
        sgpr.covariance, sgpr.inducing, posterior, Gaussian(variance=sgpr.noise_variance), sgpr.mean
    )


class CollapsedForm(NamedTuple):
    """What the collapsed functions need from a kind of model.

    check : ``check(sgpr, X, Y, jitter)``
    forward : ``forward(sgpr, X, Y, jitter, weights, scale, keep)``, a state with its ``value``
    gradient : ``gradient(state, sgpr, X, wrt, scale)``, on ranks this rank's share
    optimum : ``optimum(state)``, the optimal posterior
    shares : whether the value of a state is this rank's share, not that of all rows
    """

    check: Any
    forward: Any
    gradient: Any
    optimum: Any
    shares: bool

    def total(self, s, sgpr, scale):
        """Return the value of a state for all rows."""
        value = check.result(s.value, sgpr)
        return scale.all_reduce(value)[0] if self.shares else value


FORMS: dict[type, CollapsedForm] = {}  # by class of the model


def _whitened_optimum(s):
    mean = kernels.solve_triangular(s.R, s.c, transpose=True)
    tril = kernels.cholesky_of_inverse(s.B)
    if len(s.shape) == 1:
        return Whitened(mean[:, 0].copy(), tril)
    trils = np.repeat(tril[None], s.shape[0], axis=0)
    return Whitened(np.ascontiguousarray(mean.T, like=mean), trils)


class InPlace(NamedTuple):
    """Terms of another bound that replace those of the collapsed gradient, summed over outputs.

    Lam_bar : (M, N), replaces P beta (I - B^-1) Lam W
    C : (M, M), lower triangle, replaces P (B - 2 I + B^-1)
    noise : added to the cotangent of the noise variance
    covariance : added to the cotangent of the covariance, besides that of the blocks
    """

    Lam_bar: Any
    C: Any
    noise: Any
    covariance: Any


def gradient(s, sgpr, X, wrt, scale=ALL_ROWS, others=None):
    """Compute the gradient at rows X, restricted to ``wrt``. Consumes the ``State`` of ``forward``.

    others : InPlace of another bound with the same mean of q(u)
    """
    part = scale.kl  # this rank's share of the terms of all rows
    P, N = s.y.shape
    M = s.L.shape[0]
    beta, real = s.beta, s.y.dtype.type
    real_beta = in_dtype(beta, s.y.dtype)
    # (M, P)
    w = kernels.solve_triangular(
        s.L, kernels.solve_triangular(s.R, s.c, transpose=True), transpose=True
    )
    e = s.y - kernels.matmul(w, s.blocks.Kuf, transpose_a=True)  # (P, N)
    B_inverse = kernels.cholesky_inverse(s.R)
    s.R = None
    trace = np.trace(B_inverse, dtype=float)
    squares = total(np.square(e, dtype=float), s.weights) + part * P * s.t
    e = weighted(e, s.weights)
    # an overflow to infinity is correct
    with np.errstate(over="ignore"):
        noise_bar = 0.5 * beta * (beta * squares - part * P * (s.count - M + trace)) + (
            0 if others is None else others.noise
        )
    covariance_bar = inducing_bar = mean_bar = None
    roots = {name.partition(".")[0] for name in wrt}
    need = tuple(name for name in wrt if name.partition(".")[0] == "covariance") + (
        ("inducing",) if "inducing" in roots else ()
    )
    if need:
        # Phi(C) + Phi(C)' = C for symmetric C: the whitening rule gives -1/2 L^-T C L^-1
        if others is None:
            C, s.B = s.B, None
            C += B_inverse
            add_to_diagonals(C, -2)
            C *= part * P
        else:
            C = others.C
        Kuu_bar = kernels.whitening_vjp(C, s.L, overwrite_c=True)
        for weight in w.T:
            kernels.add_outer(Kuu_bar, real(-0.5 * part) * weight, weight)
        if others is None:
            add_to_diagonals(B_inverse, -1)
            B_inverse *= -P * real_beta  # P beta (I - B^-1)
            F = kernels.solve_triangular(s.L, B_inverse, transpose=True, overwrite_b=True)
            Kuf_bar = kernels.matmul(F, s.Lam)
            s.Lam = F = None
            if s.weights is not None:
                Kuf_bar *= s.weights
        else:
            Kuf_bar = kernels.solve_triangular(
                s.L, others.Lam_bar, transpose=True, overwrite_b=True
            )
        for weight, residual in zip(w.T, e, strict=True):
            kernels.add_outer(Kuf_bar, real_beta * weight, residual)
        bars = Blocks(Kuu_bar, Kuf_bar, weighted(kernels.full(N, -0.5 * beta * P, s.y), s.weights))
        covariance_bar, inducing_bar, _ = sgpr.covariance.blocks_vjp(
            bars, s.blocks, sgpr.inducing, X, need
        )
        covariance_bar = plus(covariance_bar, None if others is None else others.covariance)
    if sgpr.mean is not None and "mean" in roots:
        mean_bar, _ = sgpr.mean.vjp((real_beta * e).reshape(s.shape), X, ("mean",))
    noise_bar = in_dtype(noise_bar, s.y.dtype) if "noise_variance" in roots else None
    return restricted(SGPR(covariance_bar, inducing_bar, noise_bar, mean_bar), wrt)


def check_sgpr(sgpr, X, Y, jitter, num_sets=1) -> tuple[AnyRecord, np.ndarray, np.ndarray, float]:
    """Check the arguments of a collapsed bound and cast them to one dtype; Y as (N,) or (P, N)."""
    check.parts(sgpr)
    check.defer(sgpr, X)
    X = check.inputs("X", X)
    Y = check.as_array("Y", Y)
    check.one_device(("X", X), ("Y", Y))
    sgpr, dtype = check.parameters(sgpr, X, *((Y,) if Y.dtype.kind == "f" else ()))
    if np.ndim(sgpr.noise_variance):
        raise ValueError(
            f"`noise_variance` has shape {np.shape(sgpr.noise_variance)}; give one number, for all"
            " data and outputs"
        )
    if not deferred_checks.none(sgpr.noise_variance < np.finfo(dtype).tiny):
        raise ValueError(
            f"`noise_variance` is {float(sgpr.noise_variance):g}, and its inverse is beyond the"
            f" range of {dtype}; give a larger one: for standardised targets 1e-6 is small"
        )
    check.inducing_for(X, sgpr)
    _, D = check.inducing(sgpr, num_sets, type(sgpr).__name__)
    check.columns(X, D, owner=sgpr.covariance.columns_of)
    check.codes(sgpr.covariance, X)
    if Y.ndim not in (1, 2) or Y.shape[0] != X.shape[0] or Y.size == 0:
        raise ValueError(
            f"`Y` must be ({X.shape[0]},) or ({X.shape[0]}, P), one row for each row of `X`, got"
            f" {Y.shape}"
        )
    check.finite("Y", Y)
    if sgpr.mean is not None:
        sgpr.mean.check_shapes(D, Y.shape[1:])
    Y = np.ascontiguousarray(Y.T, dtype, like=Y)
    return sgpr, X.astype(dtype, copy=False), Y, check.jitter_amount(jitter, dtype)


def check_weighted_sgpr(
    weights, check_one, sgpr, X, Y, jitter
) -> tuple[AnyRecord, np.ndarray, np.ndarray, float, np.ndarray | None]:
    """Apply ``check_one`` of the kind of model, and check weights (N,); None stays None."""
    if weights is None:
        return *check_one(sgpr, X, Y, jitter), None
    (sgpr, X, Y, jitter), weights = weighing.through(
        lambda X, Y: check_one(sgpr, X, Y, jitter), X, Y, weights
    )
    if weights.ndim > 1 and weights.shape[1] > 1:
        raise ValueError(
            f"`weights` has shape {weights.shape}, but the outputs share one covariance of q(u) and"
            f" so one weight per row; give ({len(X)},), one {type(sgpr).__name__} per output, or"
            " train an SVGP"
        )
    return sgpr, X, Y, jitter, np.ascontiguousarray(weights.reshape(-1), Y.dtype, like=Y)


FORMS[SGPR] = CollapsedForm(check_sgpr, forward, gradient, _whitened_optimum, shares=False)
ADVICE = (
    "predict with info.svgp of model, info = fs.fit(...), or fs.optimal_svgp(model, X, Y); its"
    " bound: fs.collapsed_bound"
)


def predictor_at_optimum(model, X=None, Y=None, *, jitter=None, dtype=None):
    """Make a predictor of the optimal q(u) for the data."""
    if X is None or Y is None:
        kind = type(model).__name__
        raise TypeError(f"predictor: an {kind} has no q(u); pass its `X` and `Y`")
    return predictor(optimal_svgp(model, X, Y, jitter=jitter), jitter=jitter, dtype=dtype)


models.register(SGPR, instead=ADVICE, predictor=predictor_at_optimum)
