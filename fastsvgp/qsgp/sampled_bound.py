"""Sampled bound in weight space, from a batch of data and a sample of basis functions.

Its estimate is unbiased, or below the bound on average; its cost depends neither on the number of
data nor on that of functions. With i and j independent samples of functions, w their weights (sums
over a sample are sums over all functions on average), phi_i the features of the batch and A = [mu,
C_d] the mean and the dense columns of the chevron C as rows,

    p_i = phi_i (w A_0)_i,    X_i = phi_i (w A_1..k)_i,    V_i = (phi_i * phi_i) (w d^2)_i

are on average the mean, the dense part phi C_d, and the variance of the diagonal rest. So with c =
num_data / (noise batch)

    Gaussian:  ell = -num_data log(2 pi noise) / 2
                     - c / 2 [(y - p_i)' (y - p_j) + sum X_i * X_j + sum V_i],
    KL       = (Q - log|S| - m) / 2 - sum_r<k log C_rr - sum_i w log d_i,
               Q = sum_i w S_ii (|A_i|^2 + d_i^2) for a diagonal S, else
               sum_ij (w A)_i S_ij (w A)_j + sum_i w S_ii d_i^2:

products of what i and j see are products of means. These are the estimators of Theorems 1 and 2 of
Evans and Nair 2018, with two sums that cost nothing done exactly: over coincidences of i and j in a
diagonal S (and in the jitter of a dense one), and over the columns of C. A sample with columns uses
the paper's own, in ``paper_estimators``.

*Other likelihoods*, log-concave ones, have a lower bound of that form. H(mean, sd) = E log p(y |
mean + sd z), z ~ N(0, 1), is jointly concave, and falls with |sd|. So if the mean of (mean^, sd^)
is (mean, at least sd), that of H(mean^, sd^) is at most H(mean, sd) (Jensen). V^ = V + sum_r X_ir
X_jr is on average sd^2, and for any t > 0 that does not depend on the sample

    sd^ = (V^ / t + t) / 2,    E sd^ = (sd^2 / t + t) / 2 >= sd:

the tangent of the square root. (Theorem 3 as printed takes the variance for sd.) With a = dH/dmean,
b = dH/dsd: p_bar = a, V_bar = b / (2 t). With both samples, mean^ and V are the means of theirs.
"""

from typing import Any, NamedTuple

from .. import check
from ..likelihoods import Gaussian
from ..records import plus, restricted
from ..records.typed import ArrayLike, Names, Record, RecordT
from ..runtime import deferred_checks
from ..runtime.edge import public_call
from .bases.samples import BasisSample, check_units, num_units
from .control_variates import check_control
from .estimators import BoundInputs, GaussianNoise, KrigedTangent, Tangent, vector
from .model import QSGP, check_columns, check_parts, lightly_checked
from .paper_estimators import PaperEstimator
from .sample_side import differentiates_weights, sparse_posterior_gradient


class SampledInfo(NamedTuple):
    """Estimates of a sampled bound besides its value and gradient.

    Parameters
    ----------
    mean, var : (n,)
        Moments of f at the batch.
    terms : tuple of float
        For Gaussian noise L_mu, L_Sigma and L_const, whose sum is -2 times the value (Evans and
        Nair 2018, equation 2); else the data term and the KL. On a device 0-d arrays there.
    control : KrigedControl or PairedControl, optional
        The control after the step, with a new estimate of a running coefficient.

    Examples
    --------
    >>> info = fs.qsgp.SampledInfo(mean=np.zeros(3), var=np.ones(3), terms=(1.0, 2.0, 0.5))
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
    """Estimate ``qsgp.bound`` and its gradient from a batch of data and a sample of functions.

    Parameters
    ----------
    model : QSGP
        All in one dtype. Entries of functions outside the sample are not read.
    X : (n, D) array
    Y : (n,) array
    sample : BasisSample
        From ``draw_basis_sample``. j may be None if there are no dense columns, no Gaussian noise
        and no control. With ``columns`` the estimators are those of the paper's Theorems 1 and 2
        and Proposition 2, and likelihoods other than Gaussian ones have the bound of its Theorem
        3, corrected. They are unbiased or below the bound like the others, but less accurate.
    num_data : float, optional
        Size of the whole data set; default n.
    jitter : float, optional
        As in ``qsgp.bound``: an ``InducingBasis`` has S = K_zz + jitter I in all bounds.
    wrt : sequence of str, optional
        Dotted names of fields to differentiate, as in ``elbo_and_grad``; default all.
    control : KrigedControl or PairedControl, optional
        ``kriging_control_variate`` of this posterior, for any likelihood, or
        ``paired_control_variate``, for Gaussian noise. Unbiased estimates stay unbiased and vary
        far less; the value of other likelihoods comes closer to the bound.
    tangent : float or (n,) array, optional
        t above, for likelihoods that are not Gaussian: any positive guess of the standard
        deviations of f that is independent of this sample, such as the square root of a running
        mean of ``info.var``; default the prior's. The gap in sd is (sd - t)^2 / (2 t). Theorem 3
        does not use it.

    Returns
    -------
    value : float
        Gaussian noise: unbiased. Else below the bound on average; the gap shrinks with a better
        ``tangent`` and a larger sample. With an ``InducingBasis`` it lacks log|S| / 2, which a
        sample does not determine.
    grad : QSGP
        Uphill: the gradient of the value with ``tangent`` held fixed. With ``control`` it is
        unbiased: for the bound itself, or for the average value if the likelihood is not Gaussian.
        Those of ``posterior.mean``, ``posterior.columns``, ``posterior.diagonal``,
        ``basis.inducing`` and ``basis.precision`` are ``SparseRows``; None outside ``wrt``.
    info : SampledInfo

    Raises
    ------
    ValueError, TypeError
        As ``qsgp.bound``. Also: units out of range; weights or ``tangent`` not positive; mixed
        dtypes; a missing j; a likelihood that is not log-concave; hyperparameters of an
        ``InducingBasis`` in ``wrt``, because log|S| has no gradient here; a control of another
        basis or number of dense columns; a ``paired_control_variate`` with a likelihood that is not
        Gaussian; columns together with ``control`` or ``tangent``.

    Notes
    -----
    4 (k + 2) n s flops for s functions on each side, and the features three times (four times if
    the likelihood is not Gaussian), independent of num_data and m. A control of p points adds 2 (k
    + 1) p s and the features there, twice that if the points have a backward pass
    (``control_variates``, ``estimators``), and 4 (k + 1) p^2 for kriging. With columns k is the
    number of distinct dense columns drawn. Source: Evans and Nair 2018, Theorems 1, 2 and 3,
    corrected and reduced as in the derivation above the code.

    Examples
    --------
    >>> sample = fs.qsgp.draw_basis_sample(weights.basis, 10, rng=0)
    >>> value, grad, info = fs.qsgp.sampled_bound_and_grad(weights, X[:8], Y[:8], sample,
    ...     num_data=40)
    >>> grad.posterior.mean.values.shape
    (30,)
    """
    _, q = check_parts(model)
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
            " sample; leave `basis` out of `wrt`, or use bound_and_grad"
        )
    own: Any = None if control is None else check_control(control, given, X, dtype)
    parts = check_sample(given, sample, units, dtype, own, tangent)
    scale, jitter = check.data_scale(num_data, len(X)), check.jitter_amount(jitter, dtype)
    near = None if own is None else own.cross_covariance(X)
    task = BoundInputs(given, X, Y, scale, wrt, tangent, own, near, jitter)
    value, bars, info = estimate(task, *parts)
    return check.result(value, given), restricted(QSGP(*bars), wrt), info


def estimate(task, of_i, of_j, of_columns):
    """Return ``(value, (basis_bar, posterior_bar, likelihood_bar), SampledInfo)`` of a bound.

    The parts of the sample are checked.
    """
    estimator = _estimator(task, of_i, of_j, of_columns)
    data = estimator.data_term()
    prior = estimator.prior(data)
    if isinstance(task.model.likelihood, Gaussian):
        terms = data.terms + prior.terms
        value = -0.5 * terms.sum()
    else:
        terms = vector(task.Y, data.terms, 0.5 * prior.terms.sum())
        value = terms[0] - terms[1]
    posterior_bar, basis_bar, control = None, None, task.control
    if differentiates_weights(task.wrt):
        posterior_bar, basis_bar, control = _gradients(estimator, data, prior)
    terms = tuple(terms if deferred_checks.on_device(terms) else terms.tolist())
    info = SampledInfo(*data.moments, terms, control)
    return value, (basis_bar, posterior_bar, data.likelihood_bar), info


def _estimator(task, of_i, of_j, of_columns):
    if of_columns is not None:
        return PaperEstimator(task, of_i, of_j, of_columns)
    if isinstance(task.model.likelihood, Gaussian):
        return GaussianNoise(task, of_i, of_j)
    return (Tangent if task.control is None else KrigedTangent)(task, of_i, of_j)


def _gradients(estimator, data, prior):
    """Return ``(posterior_bar, basis_bar, control)``, the control with its new coefficient."""
    task, control, i = estimator.task, estimator.task.control, estimator.i
    sides = [side for side in (i, estimator.j) if side is not None]
    basis_parts, weight_bars, sums = [(i.functions, prior.basis_bars)], [], []
    for number, side in enumerate(sides):
        seen, bars = data.seen[number], data.bars[number]
        own, basis_bars = side.backward(task.X, task.wrt, seen, bars, prior.weight_bars[number])
        basis_parts.append((side.functions, basis_bars))
        if control is not None:
            A_bar, of_side = control.pullback(side, plus(prior.points[number], bars.points), own.A)
            own = own._replace(A=A_bar)
            sums.append(of_side)
        weight_bars.append(own)
    gradient = sparse_posterior_gradient(sides, weight_bars, prior.log_bar, prior.log_bars)
    if control is not None:
        control = control.update_coefficient(sums)
    basis_bar = task.model.basis.sampled_gradient(basis_parts)
    return estimator.posterior_gradient(gradient), basis_bar, control


def check_sample(model, sample, units, dtype, control=None, tangent=None):
    """Return i, j and columns of a sample, each None or ``(units, weights)``."""
    if not isinstance(sample, BasisSample):
        raise TypeError(
            "`sample` must be a fastsvgp.qsgp.BasisSample, as draw_basis_sample makes it, got"
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
            f"`control` of paired_control_variate is for Gaussian noise, not for a {kind}"
            " likelihood: use"
            " kriging_control_variate"
        )
    needs = (
        (gaussian, "Gaussian noise"),
        (k, "dense columns"),
        (paper, "columns"),
        (control is not None, "a control"),
        (model.basis.dense_precision, "a dense precision S"),
    )
    why = next((what for wanted, what in needs if wanted), None)
    if sample.j is None and why is not None:
        raise ValueError(f"`sample` has no j, needed for {why}: draw_basis_sample(..., pair=True)")
    if paper and (control is not None or tangent is not None and not gaussian):
        name = "tangent" if control is None else "control"
        raise ValueError(
            f"`{name}` is for the reduced estimators, and `sample` has columns; leave one of them"
            " out"
        )
    if paper and deferred_checks.on_device(q.mean):
        raise TypeError(
            "estimators that draw columns work on NumPy arrays: leave `columns` out of `sample`, or"
            " use to_host"
        )
    i = check_units("i", sample.i, sample.weight_i, units, dtype, q.mean)
    j = columns = None
    if sample.j is not None:
        j = check_units("j", sample.j, sample.weight_j, units, dtype, q.mean)
    if paper:
        m, weights = len(q.mean), sample.weight_columns
        columns = check_units(
            "columns", sample.columns, weights, m, dtype, known="C has {} columns"
        )
    return i, j, columns
