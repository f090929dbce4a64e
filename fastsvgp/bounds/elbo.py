"""The evidence lower bound of SVGP: sum over data of E_q(f) log p(y | f), minus KL[q(u) || p(u)].

Hensman et al. 2013, 2015; handbook, "Non-Gaussian likelihoods". The relay below reads like the
equation: rooms hand each other covariance blocks and marginals, and their cotangents come back the
same way. A batch goes through in parts (``data_term``); all that is M x M is a sum over them.
"""

from typing import Literal, Unpack, overload

import numpy as np

from .. import check
from ..check import weights as weighing
from ..covariances import Covariance
from ..distributed import reduce
from ..distributed.data_scale import DataScale
from ..likelihoods import Likelihood
from ..means import Mean
from ..posteriors import Posterior
from ..records import plus, record, restricted, tree_map
from ..records.typed import (
    Array,
    ArrayLike,
    Group,
    Names,
    OfBound,
    OfDraws,
    OfGroupedBound,
    Random,
    Record,
    RecordT,
    Seed,
)
from ..runtime.edge import public_call
from .data_term import bound_of, less_kl, sweep
from .layer_pass import LayerBars
from .posterior_passes import layer_pass


@record
class SVGP:
    """A sparse variational Gaussian process.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array, or a record
        Inducing inputs Z. ``InducingPair(Z, O)`` for posteriors with two sets, or the record that
        the covariance takes.
    posterior : Posterior
        ``Whitened``, ``Marginal``, ``LikelihoodForm``, ``Relaxed``, ``InverseFreeWhitened``,
        ``AbsorbedDualSites`` or ``DualSites``; with an ``InducingPair`` ``WhitenedOrthogonal``,
        ``Orthogonal``, ``Decoupled`` or ``DecoupledWeights``. Leading axes of its fields are
        outputs (or classes).
    likelihood : Likelihood
    mean : Mean, optional
        Added to the latent function; ``None`` is zero.

    Examples
    --------
    >>> model = fs.SVGP(covariance=fs.RBF(variance=1.0, lengthscales=np.ones(1)), inducing=Z,
    ...                 posterior=fs.Whitened(mean=np.zeros(6), scale_tril=np.eye(6)),
    ...                 likelihood=fs.Gaussian(variance=0.1))
    >>> model.posterior
    Whitened(mean=<float64 (6,)>, scale_tril=<float64 (6, 6)>)
    """

    covariance: Covariance
    inducing: Array | Record
    posterior: Posterior
    likelihood: Likelihood
    mean: Mean | None = None


@public_call(SVGP)
def elbo(
    model: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    group: Group | None = None,
    **random: Unpack[OfDraws],
) -> float:
    """The evidence lower bound, in nats.

    Parameters
    ----------
    model : SVGP
        Or any kind of model that has this bound.
    X : (B, D) array
        A batch of inputs, or all of them.
    Y : (B,) or (B, P) array
        Targets; integer labels (B,) for multi-class likelihoods. (B, 1) is (B,) where the posterior
        has no leading axis.
    num_data : float, optional
        Size of the whole data set: the data term is scaled by num_data / B. Default: the batch is
        the data.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32.
        Never changed.
    rng : int or numpy.random.Generator, optional
        For likelihoods that sample, and for random quantities.
    weights : (B,) or (B, P) array, optional
        How often each row, or each target, counts: zero or more, in the dtype of the bound. The sum
        over data is of w_n E log p(y_n | f_n), so that integers are rows repeated and 0 is a row
        left out; num_data / B stays as it is. A target of weight 0 is never read: NaN there is a
        missing output. Nor are the inputs of a row of which no target counts. Labels of classes
        take (B,).
    group : group of ``fs.distributed``, optional
        Several ranks, each in this call with the same model: the result is that of one process, on
        every rank. ``group.rows`` says whether X, Y and weights are all rows, of which each rank
        takes its part, or its own. One sum over the ranks; with rows of their own and ``num_data``
        one more, of a number for each rank. A rank that fails ends the call on all:
        ``RemoteError``.
    **random
        Random quantities of the posterior, drawn or given. ``Relaxed`` has ``probes``, an int or an
        (M, K) array of +-1: estimate the traces of its KL divergence without bias by Hutchinson's
        method, with that many random probes or with these. Default: exact traces.
        ``DecoupledWeights`` has ``sampled``, an int or an (S,) array of row numbers of O: estimate
        w' K_vv w of its KL divergence without bias from that many columns, drawn without
        replacement, or from these. Default: all of them.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError
        Shapes, dtypes, devices, NaN or infinity, None in a field, labels, ``num_data`` below the
        batch, weights that are negative or all zero; also a NaN that comes of finite numbers. An
        infinite value is returned.
    NotPositiveDefinite
        Kuu + jitter I could not be factorised. With a jitter of 0 also where a pivot is so small
        that it may be rounding alone (at most 2 M eps of its diagonal entry), as duplicated
        inducing inputs leave it.
    MemoryError
        Says how much was asked for, and which argument drives it.

    Notes
    -----
    About (1 + P) M^2 B + M^3 / 3 flops for P outputs; ``Marginal`` takes P M^3 / 3 more. On a
    device one copy to the host holds the value and whether all is well; ``elbo_and_grad`` copies no
    more.

    Examples
    --------
    >>> round(fs.elbo(model, X, Y), 3)
    -279.181
    >>> round(fs.elbo(model, X[:10], Y[:10], num_data=40), 3)
    -247.535
    """
    return reduce.evaluate(
        "elbo", bound_of, model, X, Y, lambda: [reduce.NUMBER], group=group, num_data=num_data,
        weights=weights, jitter=jitter, rng=rng, **random,
    )  # fmt: skip


# with ``inputs=True`` a third result comes
@overload
def elbo_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: Literal[False] = ..., **options: Unpack[OfGroupedBound]
) -> tuple[float, RecordT]: ...  # fmt: skip
@overload
def elbo_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: Literal[True], **options: Unpack[OfGroupedBound]
) -> tuple[float, RecordT, Array]: ...  # fmt: skip
@overload
def elbo_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: bool, **options: Unpack[OfGroupedBound]
) -> tuple[float, RecordT] | tuple[float, RecordT, Array]: ...
@public_call(SVGP)
def elbo_and_grad(
    model,
    X,
    Y,
    *,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    wrt=None,
    inputs=False,
    group=None,
    **random,
):
    """The evidence lower bound, in nats, and its gradient in natural space.

    Parameters
    ----------
    model : SVGP
        Or any kind of model that has this bound.
    X : (B, D) array
        A batch of inputs, or all of them.
    Y : (B,) or (B, P) array
        Targets; integer labels (B,) for multi-class likelihoods. (B, 1) is (B,) where the posterior
        has no leading axis.
    num_data : float, optional
        Size of the whole data set: the data term, and its gradient, are scaled by num_data / B.
        Default: the batch is the data.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32.
        Never changed.
    rng : int or numpy.random.Generator, optional
        For likelihoods that sample, and for random quantities. The gradient is that of the number
        returned, an estimate or not.
    weights : (B,) or (B, P) array, optional
        How often each row, or each target, counts: zero or more. num_data / B stays as it is. A
        target of weight 0 is never read (NaN there is a missing output), nor are the inputs of a
        row of which no target counts: its row of ``X_bar`` is 0. Labels of classes take (B,).
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate, such as ``("covariance", "posterior.mean")``;
        default all. Work that only the others need is skipped.
    inputs : bool
        Return the gradient in X too, mean function included: for networks and other layers below.
        With ``wrt=()`` it is the only gradient.
    group : group of ``fs.distributed``, optional
        Several ranks, each in this call with the same model: value and gradient are those of one
        process, on every rank. ``group.rows`` says whether X, Y and weights are all rows, of which
        each rank takes its part, or its own. One sum over the ranks holds the value and all
        gradients.
    **random
        Random quantities of the posterior, an int to draw them or an array to give them: ``probes``
        of ``Relaxed``, (M, K) of +-1, and ``sampled`` of ``DecoupledWeights``, (S,) row numbers of
        O. They estimate the KL divergence without bias; ``elbo`` says how. Default: exact.

    Returns
    -------
    value : float
    grad : SVGP
        The derivative of the value with respect to each field, in its place; ``None`` for fields
        not asked for. Gradients of triangular factors are lower triangular.
    X_bar : (B, D), only with ``inputs``
        With a ``group`` that of this rank's rows.

    Raises
    ------
    ValueError, TypeError
        Shapes, dtypes, devices, NaN or infinity, None in a field, labels, names in ``wrt``,
        ``num_data`` below the batch, weights that are negative or all zero; also a NaN that comes
        of finite numbers.
    NotPositiveDefinite
        Kuu + jitter I could not be factorised.
    RemoteError
        Another rank of the group failed.
    MemoryError
        Says how much was asked for, and which argument drives it.

    Notes
    -----
    With ``Whitened``, one output: min(4 B + 14/3 M, 5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for the
    value and all gradients; with ``LikelihoodForm`` (3 B + 2 M) M^2. A long batch goes through in
    parts of at least 1024 rows, so memory is that of a few (M, M) and (M, part) arrays, however
    long the batch.

    Examples
    --------
    >>> value, grad = fs.elbo_and_grad(model, X, Y)
    >>> grad.covariance.lengthscales.shape, grad.inducing.shape
    ((1,), (6, 1))
    >>> value, grad, X_bar = fs.elbo_and_grad(model, X, Y, wrt=("likelihood",), inputs=True)
    >>> grad.covariance is None, X_bar.shape
    (True, (40, 1))
    """
    return reduce.evaluate(
        "elbo_and_grad", value_and_grad, model, X, Y, lambda: [reduce.of_gradient(model, wrt)], group=group, wrt=wrt,
        num_data=num_data, weights=weights, jitter=jitter, rng=rng, inputs=inputs, **random,
    )  # fmt: skip


@overload
def data_term_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: Literal[False] = ..., **options: Unpack[OfBound]
) -> tuple[float, RecordT]: ...  # fmt: skip
@overload
def data_term_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: Literal[True], **options: Unpack[OfBound]
) -> tuple[float, RecordT, Array]: ...
@overload
def data_term_and_grad(
    model: RecordT, X: ArrayLike, Y: ArrayLike, *, inputs: bool, **options: Unpack[OfBound]
) -> tuple[float, RecordT] | tuple[float, RecordT, Array]: ...
@public_call(SVGP)
def data_term_and_grad(
    model,
    X,
    Y,
    *,
    num_data=None,
    jitter=None,
    rng=None,
    weights=None,
    wrt=None,
    inputs=False,
    **random,
):
    """The data term of the bound, num_data / B sum E log p(y | f), and its gradient: ``elbo`` = data term - KL term.

    Data terms of shards add up.

    Parameters
    ----------
    model, X, Y, num_data, jitter, rng, wrt, inputs, weights, **random
        As in ``elbo_and_grad``.

    Returns
    -------
    value : float
    grad : SVGP
        As in ``elbo_and_grad``.
    X_bar : (B, D), only with ``inputs``

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``elbo_and_grad``.

    Examples
    --------
    >>> data, data_grad = fs.data_term_and_grad(model, X, Y)
    >>> kl, kl_grad = fs.kl_term_and_grad(model)
    >>> round(data - kl - fs.elbo(model, X, Y), 9) + 0.0
    0.0
    """
    options = dict(weights=weights, jitter=jitter, rng=rng, wrt=wrt, inputs=inputs)
    return value_and_grad(model, X, Y, DataScale(num_data), with_kl=False, **options, **random)


@public_call(SVGP)
def kl_term_and_grad(
    model: RecordT,
    *,
    jitter: float | None = None,
    wrt: Names | None = None,
    rng: Seed = None,
    **random: Unpack[Random],
) -> tuple[float, RecordT]:
    """KL[q(u) || p(u)] and its gradient (of the KL itself: subtract it), as ``elbo_and_grad`` with no data.

    M^3 / 3 flops for ``Whitened``, whose KL does not depend on the covariance; 4 M^3 an output for
    ``Marginal``.

    Parameters
    ----------
    model, jitter, wrt, rng, **random
        As in ``elbo_and_grad``.

    Returns
    -------
    value : float
    grad : SVGP
        Uphill of the KL itself; zeros in the likelihood.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``elbo_and_grad``.

    Examples
    --------
    >>> kl, grad = fs.kl_term_and_grad(fs.replace_at(model, "posterior.mean", np.ones(6)))
    >>> round(kl, 6), grad.posterior.mean
    (3.0, array([1., 1., 1., 1., 1., 1.]))
    """
    given, _, _, dtype = check.svgp(model)
    wrt = check.names(wrt, given)
    through = given.posterior.kl_depends_on_Kuu
    need = [
        path for path in wrt if through or path.partition(".")[0] not in ("covariance", "inducing")
    ]
    layer = layer_pass(
        given,
        check.jitter_amount(jitter, dtype),
        need=tuple(need),
        **check.drawn(random, given, dtype, rng),
    )
    kl, bars = layer.kl(), layer.finish(1.0)
    of_Kuu = bars if through else tree_map(_zero, given)
    likelihood_bar = tree_map(_zero, given.likelihood)
    grad = SVGP(of_Kuu.covariance, of_Kuu.inducing, bars.posterior, likelihood_bar, bars.mean)
    return check.result(kl, given), restricted(grad, wrt)


def _zero(value):
    return np.zeros_like(value)[()]


def value_and_grad(
    model, X, Y, scale, *, weights, jitter, rng, wrt=None, inputs=False, with_kl=True, direction=None, **random
):  # fmt: skip
    """``elbo_and_grad`` with a ``DataScale``; with a ``direction`` in place of the gradient, or without the KL term."""
    inputs = check.flag("inputs", inputs)
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights)
    wrt = check.names(wrt, model)
    need, more = (*wrt, "inputs") if inputs else wrt, check.drawn(random, model, dtype, rng)
    if direction is not None:
        more["direction"] = direction
    layer = layer_pass(model, check.jitter_amount(jitter, dtype), len(X), need, **more)
    return relay(model, layer, X, Y, scale, rng, wrt, inputs, with_kl, weights)


def relay(model, layer, X, Y, scale, rng, wrt, inputs=False, with_kl=True, weights=None):
    """``(value, grad)``, and X_bar with ``inputs``, through a layer's pass that begins; arguments as ``check`` left them."""
    value, likelihood_bar, X_bars = None, None, []
    for part in sweep(model, layer, X, Y, scale, rng, weights=weights):
        value, likelihood_bar = plus(part.ell, value), plus(part.likelihood_bar, likelihood_bar)
        X_bars.append(layer.pull(part.rows, part.f_bar))
        del part  # its memory is the next part's
    value = 0.0 if value is None else value
    if with_kl:
        value = less_kl(value, layer, scale)
    bars = layer.finish(-scale.kl if with_kl else 0.0) if wrt else LayerBars(None, None, None, None)
    value = check.result(value, model, leave=True)
    grad = SVGP(bars.covariance, bars.inducing, bars.posterior, likelihood_bar, bars.mean)
    value, grad = scale.all_reduce_gradient(value, restricted(grad, wrt))
    if not inputs:
        return value, grad
    return value, grad, X_bars[0] if len(X_bars) == 1 else np.concatenate(X_bars)
