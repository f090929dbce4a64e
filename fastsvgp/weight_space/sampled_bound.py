"""The bound in weight space from some data and some basis functions: unbiased, or below it on average, at a cost of neither.

With i and j independent samples of functions, w their weights (sums over a sample are sums over all
functions on average), phi_i the features of the batch and A = [mu, C_d] the mean and the dense
columns of the chevron C as rows,

    p_i = phi_i (w A_0)_i,    X_i = phi_i (w A_1..k)_i,    V_i = (phi_i * phi_i) (w d^2)_i

are on average the mean, the dense part phi C_d, and the variance of the diagonal rest. So with c =
num_data / (noise batch)

    Gaussian:  ell = -num_data log(2 pi noise) / 2 - c / 2 [(y - p_i)' (y - p_j) + sum X_i * X_j + sum V_i],
    KL       = (Q - log|S| - m) / 2 - sum_r<k log C_rr - sum_i w log d_i,
               Q = sum_i w S_ii (|A_i|^2 + d_i^2) for a diagonal S, and sum_ij (w A)_i S_ij (w A)_j
               + sum_i w S_ii d_i^2 else:

products of what i and j see are products of means. These are the estimators of Theorems 1 and 2 of
Evans and Nair 2018 with two sums done exactly that cost nothing: over coincidences of i and j in a
diagonal S, the jitter of a dense one included, and over the columns of C. A sample that has columns
gets theirs, of ``paper_estimators``.

*Other likelihoods*, log-concave ones, have a lower bound of that form. H(mean, sd) = E log p(y | mean + sd z), z ~ N(0, 1), is
jointly concave, and falls with |sd|. So where the mean of (mean^, sd^) is (mean, at least sd), that of H(mean^, sd^) is at most
H(mean, sd) (Jensen). V^ = V + sum_r X_ir X_jr is on average sd^2, and for any t > 0 that the sample does not know

    sd^ = (V^ / t + t) / 2,    E sd^ = (sd^2 / t + t) / 2 >= sd:

the tangent of the square root. (Theorem 3 as printed takes the variance for sd.) With a = dH/dmean,
b = dH/dsd: p_bar = a, V_bar = b / (2 t). Where both samples are there, mean^ and V are the means of
theirs.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..likelihoods import Gaussian
from ..records import replace, restricted
from ..records.typed import ArrayLike, Names, Record, RecordT
from ..runtime import deferred_checks
from ..runtime.edge import public_call
from .bases.samples import BasisSample, checked_units, num_units, there
from .control_variates import checked_control
from .kriged_tangent import kriged_tangent, tangent as tangent_at
from .paper_estimators import DrawnColumns
from .qsgp import QSGP, check_columns, checked_parts, lightly_checked
from .sample_side import Side, gathered, moves


class SampledInfo(NamedTuple):
    """What a sampled bound saw.

    Parameters
    ----------
    mean, var : (n,)
        Estimates at the batch.
    terms : tuple of float
        For Gaussian noise L_mu, L_Sigma and L_const, of which the value is minus half the sum
        (Evans and Nair 2018, equation 2); else the data term and the KL. On a device they are
        there, 0-d.
    control : KrigedControl or PairedControl, optional
        As the step leaves it, with what that says of a running coefficient.

    Examples
    --------
    >>> info = fs.SampledInfo(mean=np.zeros(3), var=np.ones(3), terms=(1.0, 2.0, 0.5))
    >>> info.control is None
    True
    """

    mean: Any
    var: Any
    terms: tuple
    control: Any = None


@public_call(QSGP)
def sampled_bound_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    sample: BasisSample,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
    wrt: Names | None = None,
    control: Record | None = None,
    tangent: ArrayLike | None = None,
) -> tuple[float, RecordT, SampledInfo]:
    """An estimate of ``weight_bound`` and its gradient from a batch of data and a sample of basis functions.

    Parameters
    ----------
    model : QSGP
        Of one dtype. What the sample does not name is not looked at.
    X : (n, D) array
    Y : (n,) array
    sample : BasisSample
        As of ``draw_basis_sample``. j may be None where there are no dense columns, no Gaussian
        noise, and no control. With ``columns`` the estimators are those of the paper's Theorems 1
        and 2 and Proposition 2, and other likelihoods than Gaussian ones have the bound of its
        Theorem 3, corrected: unbiased, or below, as these, and further from the truth.
    num_data : float, optional
        Size of the whole data set; default n.
    jitter : float, optional
        As in ``weight_bound``: an ``InducingBasis`` has S = K_zz + jitter I in all bounds.
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all.
    control : KrigedControl or PairedControl, optional
        Of this posterior, for any likelihood: ``kriged_control``; for Gaussian noise:
        ``paired_control``. What is unbiased stays so, and varies far less; the value of other
        likelihoods is nearer the bound.
    tangent : float or (n,) array, optional
        t above, for likelihoods that are not Gaussian: any positive guess of the standard
        deviations of f that did not see this sample, such as a running mean of ``info.var`` to the
        power 1/2; default the prior's. The gap it leaves is (sd - t)^2 / (2 t) in sd. Theorem 3 has
        none.

    Returns
    -------
    value : float
        Gaussian noise: unbiased. Else below the bound on average, by less the nearer ``tangent`` is
        and the larger the sample. With an ``InducingBasis`` it lacks log|S| / 2, which no sample
        tells.
    grad : QSGP
        Uphill: of the value, ``tangent`` held, or with ``control`` unbiased: of the bound itself,
        and where the likelihood is not Gaussian of the value's average. Those of
        ``posterior.mean``, ``posterior.columns``, ``posterior.diagonal``, ``basis.inducing`` and
        ``basis.precision`` are ``SparseRows``; None outside ``wrt``.
    info : SampledInfo

    Raises
    ------
    ValueError, TypeError
        As ``weight_bound``; units out of range, weights or ``tangent`` not positive, mixed dtypes,
        no j where it is needed, a likelihood that is not log-concave, hyperparameters of an
        ``InducingBasis``, whose log|S| has no gradient here, a control of another basis or number
        of dense columns, one of ``paired_control`` where the likelihood is not Gaussian; columns
        and ``control`` or ``tangent``.

    Notes
    -----
    4 (k + 2) n s flops for s functions on each side, and the features three times (four where the
    likelihood is not Gaussian): neither num_data nor m counts. With a control of p points 2 (k + 1)
    p s and the features there, twice that where something goes back through them (``controls``,
    ``kriged_tangent``), and 4 (k + 1) p^2 for kriging. With columns k is how many distinct dense
    ones were drawn. Source: Evans and Nair 2018, Theorems 1, 2 and 3, corrected and reduced as in
    the derivation above the code.

    Examples
    --------
    >>> sample = fs.draw_basis_sample(weights.basis, 10, rng=0)
    >>> value, grad, info = fs.sampled_bound_and_grad(weights, X[:8], Y[:8], sample, num_data=40)
    >>> grad.posterior.mean.values.shape
    (30,)
    """
    _, q = checked_parts(model)
    deferred_checks.defer(q.mean, X)
    X, Y = check.inputs("X", X), check.as_array("Y", Y)
    given, dtype = lightly_checked(model, X=X, Y=Y)
    basis, q = given.basis, given.posterior
    X, units = X.astype(dtype, copy=False), num_units(basis)
    check_columns(basis, X)
    outputs = q.check_size(basis.num_functions())
    given.likelihood.check_settings()
    Y = check.targets(Y, len(X), outputs, given.likelihood, dtype)
    wrt = check.names(wrt, given)
    if basis.dense_precision and any(name == "basis" or name.startswith("basis.") for name in wrt):
        raise ValueError(
            f"sampled_bound_and_grad: log|S| of an {type(basis).__name__} has no gradient from a"
            " sample; leave `basis` out of `wrt` (weight_bound_and_grad has it)"
        )
    control = control if control is None else checked_control(control, given, X, dtype)
    parts, jitter = (
        checked_sample(given, sample, units, dtype, control, tangent),
        check.jitter_amount(jitter, dtype),
    )
    value, bars, info = estimated(
        given, X, Y, parts, check.data_scale(num_data, len(X)), wrt, tangent, control, jitter
    )
    return check.result(value, given), restricted(QSGP(*bars), wrt), info


def estimated(model, X, Y, parts, scale, wrt, tangent, control=None, jitter=0.0):
    """``(value, (basis_bar, posterior_bar, likelihood_bar), SampledInfo)`` of the parts of a sample; all of it checked."""
    basis, likelihood, gaussian = (
        model.basis,
        model.likelihood,
        isinstance(model.likelihood, Gaussian),
    )
    i, j, drawn = _sides(model, gaussian, *parts)
    seen = X, control, None if control is None else control.near(X)
    if j is not None:
        j.see(*seen)
    if gaussian and drawn is None:
        _pull_by(j, i, Y, scale / _number(likelihood.variance))
        i.see(*seen, wrt)
    else:
        i.see(*seen)
    if drawn is not None:
        data, likelihood_bar, (mean, var) = drawn.data_term(likelihood, Y, i, j, scale)
        prior, prior_bars, log_bars = drawn.prior(basis, i, j, wrt, jitter)
    else:
        if gaussian:
            data, likelihood_bar = _gaussian(likelihood, Y, i, j, scale, control)
        elif control is not None:
            data, likelihood_bar = kriged_tangent(
                likelihood, Y, i, j, scale, _guesses(tangent, model, X), *seen[1:]
            )
        else:
            data, likelihood_bar = _tangent(likelihood, Y, i, j, scale, _guesses(tangent, model, X))
        prior, prior_bars, log_bars = _prior(basis, model.posterior, i, j, wrt, control, jitter)
        mean, var = i.moments(j)
    terms = data + prior if gaussian else _vector(Y, data, 0.5 * prior.sum())
    value = -0.5 * terms.sum() if gaussian else terms[0] - terms[1]
    sides, posterior_bar, basis_bar = [side for side in (i, j) if side is not None], None, None
    if moves(wrt):
        posterior_bar, basis_bar = gathered(basis, sides, X, wrt, control, prior_bars, log_bars)
        control = control if control is None else control.learnt(sides)
        if drawn is not None:
            posterior_bar = replace(posterior_bar, columns=drawn.widened(posterior_bar.columns))
    terms = tuple(terms if deferred_checks.on_device(terms) else terms.tolist())
    return value, (basis_bar, posterior_bar, likelihood_bar), SampledInfo(mean, var, terms, control)


def checked_sample(model, sample, units, dtype, control=None, tangent=None):
    """What there is of i, j and columns, each None or ``(units, weights)``."""
    if not isinstance(sample, BasisSample):
        raise TypeError(
            "`sample` must be a fastsvgp.BasisSample, as draw_basis_sample makes it, got"
            f" {type(sample).__name__}"
        )
    q, gaussian = model.posterior, isinstance(model.likelihood, Gaussian)
    if not gaussian and not getattr(model.likelihood, "log_concave", False):
        kind = type(model.likelihood).__name__
        raise TypeError(
            f"sampled_bound_and_grad: a {kind} likelihood is not log-concave: its bound has no"
            " estimate from below"
        )
    k, paper = q.columns.shape[1], sample.columns is not None
    if control is not None and not (gaussian or control.serves_all):
        kind = type(model.likelihood).__name__
        raise TypeError(
            f"`control` of paired_control is for Gaussian noise, not for a {kind} likelihood: use"
            " kriged_control"
        )
    needs = ((gaussian, "Gaussian noise"), (k, "dense columns"), (paper, "columns"), (control is not None, "a control"),
             (model.basis.dense_precision, "a dense precision S"))  # fmt: skip
    why = next((what for wanted, what in needs if wanted), None)
    if sample.j is None and why is not None:
        raise ValueError(f"`sample` has no j, needed for {why}: draw_basis_sample(..., pair=True)")
    if paper and (control is not None or tangent is not None and not gaussian):
        name = "tangent" if control is None else "control"
        raise ValueError(
            f"`{name}` is for the reduced estimators, and `sample` has columns; leave out the one"
            " or the other"
        )
    if paper and deferred_checks.on_device(q.mean):
        raise TypeError(
            "estimators that draw columns work on NumPy arrays: leave `columns` out of `sample`, or"
            " use to_host"
        )
    i = checked_units("i", sample.i, sample.weight_i, units, dtype, q.mean)
    j = (
        None
        if sample.j is None
        else checked_units("j", sample.j, sample.weight_j, units, dtype, q.mean)
    )
    if not paper:
        return i, j, None
    m = len(q.mean)
    return (
        i,
        j,
        checked_units(
            "columns", sample.columns, sample.weight_columns, m, dtype, known="C has {} columns"
        ),
    )


def _sides(model, gaussian, of_i, of_j, of_columns):
    """``(i, j or None, DrawnColumns or None)``."""
    if of_columns is None:
        pivots = model.posterior.columns.diagonal()
        check.finite("diagonal of posterior.columns", pivots)
        check.positive("diagonal of posterior.columns", pivots)
        return (
            Side(model, *of_i, rest=True),
            None if of_j is None else Side(model, *of_j, rest=not gaussian),
            None,
        )
    drawn = DrawnColumns(model.posterior, *of_columns)
    i, j = Side(model, *of_i, gaussian, drawn.dense), Side(model, *of_j, not gaussian, drawn.dense)
    drawn.weigh(i, j)
    return i, j, drawn


def _pull_by(other, side, Y, c):
    """The cotangents of a side for Gaussian noise, which need the other side alone."""
    V_bar = None
    if side.rest:
        V_bar = np.empty_like(Y)
        V_bar[:] = -0.5 * c
    side.pull(0.5 * c * (Y - other.p), -0.5 * c * other.X, V_bar)


def _gaussian(likelihood, Y, i, j, scale, control):
    """``(what the data say of L_mu, L_Sigma, L_const, likelihood_bar)``; j gets its cotangents."""
    noise, n, known = _number(likelihood.variance), scale * len(Y), _sum(Y * Y)
    c = scale / noise
    squares = _vector(Y, _sum((Y - i.p) * (Y - j.p)), _sum(i.X * j.X) + _sum(i.V))
    if control is not None:
        squares -= _of_rows(control.of_squares(i, j, c, len(Y)))
    _pull_by(i, j, Y, c)
    terms = _vector(
        Y, c * (squares[0] - known), c * squares[1], n * np.log(2 * np.pi * noise) + c * known
    )
    return terms, Gaussian((-0.5 * (n - c * squares.sum()) / noise).astype(Y.dtype))


def _guesses(tangent, model, X):
    """t of each datum."""
    if tangent is None:
        return np.sqrt(model.basis.covariance.kff(X))
    tangent = there(check.as_array("tangent", tangent), X)
    if tangent.shape not in ((), (len(X),)):
        raise ValueError(
            f"`tangent` must be a number or have shape ({len(X)},), one for each row of `X`, got"
            f" {tangent.shape}"
        )
    check.finite("tangent", tangent)
    check.positive("tangent", tangent, "")
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


def _prior(basis, q, i, j, wrt, control, jitter):
    """``(what the prior says of L_mu, L_Sigma, L_const; {field of the basis: cotangent of -KL}; cotangents of log det C in the
    dense columns)``; the sides get theirs of the rest.
    """
    quadratics, log_det, bars = basis.sampled_energy(i, j, wrt, jitter)
    if control is not None and basis.dense_precision:
        quadratics = _vector(i.p, *quadratics) - _of_rows(control.of_prior(i, j))
    logs = np.log(q.columns.diagonal(), dtype=np.float64).sum()
    logs += (i.w * np.log(i.pivots, dtype=np.float64)).sum()
    reciprocals = np.zeros((i.k, i.k), q.mean.dtype, like=q.mean)
    reciprocals.reshape(-1)[:: i.k + 1] = 1 / q.columns.diagonal()
    i.log_bar = i.below * (i.w / i.pivots)
    terms = _vector(i.p, quadratics[0], quadratics[1] - 2 * logs, -log_det - basis.num_functions())
    return terms, bars, ((i.dense, reciprocals),)


def _of_rows(terms):
    """``(that of the mean, those of the dense columns together)``."""
    return _vector(terms, terms[0], terms[1:].sum())


def _vector(like, *numbers):
    """Of float64, where ``like`` is; nobody waits for numbers that are there."""
    found = np.empty(len(numbers), like=like)
    for at, number in enumerate(numbers):
        found[at] = number
    return found


def _number(value):
    """A parameter as a float, or as it is on a device."""
    return value if deferred_checks.on_device(value) else float(value)


def _sum(values):
    return values.sum(dtype=np.float64)
