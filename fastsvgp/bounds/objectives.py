"""The evidence lower bound of SVGP: sum over data of E_q(f) log p(y | f), minus KL[q(u) || p(u)].

Hensman et al. 2013, 2015; handbook, "Non-Gaussian likelihoods". ``relay`` follows the equation for
every kind of model: the layer's pass computes covariance blocks and marginals, the likelihood the
expected log densities, and cotangents return in reverse order.
"""

from typing import Literal, Unpack, overload

import numpy as np

from .. import check
from ..check.scale import DataScale
from ..distributed.reduce import call_on_ranks
from ..records import leaves, replace_leaves, restricted, tree_map
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
from .layer_pass import KL
from .protocol import kind_of
from .relay import bound_of, value_and_grad
from .svgp import SVGP


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
    """Compute the evidence lower bound, in nats.

    Parameters
    ----------
    model : SVGP
        Any other kind of model with this bound is accepted too.
    X : (B, D) array
        Inputs: a batch or all data.
    Y : (B,) or (B, P) array
        Targets; integer labels (B,) for multi-class likelihoods. (B, 1) is read as (B,) if the
        posterior has no leading axis. Several columns of a target are a last axis: (B, P, C).
    num_data : float, optional
        Size of the whole data set. The data term is scaled by num_data / B. Default: the batch is
        the data.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32.
        The bound never changes it.
    rng : int or numpy.random.Generator, optional
        Used by likelihoods that sample and for random quantities.
    weights : (B,) or (B, P) array, optional
        Non-negative weight of each row or target; cast to the dtype of the bound. The data term
        sums w_n E log p(y_n | f_n): an integer weight repeats a row and 0 omits it. The factor
        num_data / B does not change. A target of weight 0 is never read, so NaN there marks a
        missing output. The inputs of a row are not read if all its targets have weight 0. Class
        labels take (B,).
    group : group of ``fs.distributed``, optional
        Ranks that make this call together with the same model. Every rank gets the result of one
        process. ``group.rows`` says whether X, Y and weights hold all rows, which the ranks divide,
        or the rows of this rank. One all-reduce; with rows per rank and ``num_data`` one more, of
        one number per rank. If a rank fails, the call raises ``RemoteError`` on all others.
    **random
        Random quantities of the posterior, drawn (an int) or given (an array). ``Relaxed`` has
        ``probes``, an int or an (M, K) array of +-1: the number of Hutchinson probes, or the
        probes, for an unbiased estimate of the traces in its KL divergence. Default: exact traces.
        ``DecoupledWeights`` has ``sampled``, an int or an (S,) array of row numbers of O: the
        columns, drawn without replacement or given, for an unbiased estimate of w' C_vv w in its
        KL divergence. Default: all columns. A ``DeepGP`` takes ``num_samples``, draws of its hidden
        layers per row (2), or ``draws``, an array (S, B, P) for each of them.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError
        Wrong shapes, dtypes, devices or labels; NaN or infinity; None in a field; ``num_data``
        smaller than the batch; weights that are negative or all zero. Also if finite numbers give a
        NaN (``Diverged``). An infinite value is returned.
    NotPositiveDefinite
        Kuu + jitter I could not be factorised. With a jitter of 0 also if a pivot is within
        rounding error of zero (at most 2 M eps times its diagonal entry), as for duplicated
        inducing inputs.
    MemoryError
        An array does not fit. Smaller batches help, unless (M, M) matrices are the largest.

    Notes
    -----
    About (1 + P) M^2 B + M^3 / 3 flops for P outputs; ``Marginal`` takes P M^3 / 3 more. On a
    device the value and the outcome of all checks are copied to the host once; ``elbo_and_grad``
    copies no more.

    Examples
    --------
    >>> round(fs.elbo(model, X, Y), 3)
    -279.181
    >>> round(fs.elbo(model, X[:10], Y[:10], num_data=40), 3)
    -247.535
    """
    options: dict = dict(weights=weights, jitter=jitter, rng=rng, **random)
    if group is not None:
        return call_on_ranks("elbo", bound_of, model, X, Y, group, num_data, options)
    return bound_of(model, X, Y, DataScale(num_data), **options)


# ``inputs=True`` adds a third result
@overload
def elbo_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    inputs: Literal[False] = ...,
    **options: Unpack[OfGroupedBound],
) -> tuple[float, RecordT]: ...
@overload
def elbo_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    inputs: Literal[True],
    **options: Unpack[OfGroupedBound],
) -> tuple[float, RecordT, Array]: ...
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
    """Compute the evidence lower bound, in nats, and its gradient in natural space.

    ``ravel`` makes flat vectors of model and gradient, without constraints, for any optimiser.

    Parameters
    ----------
    model : SVGP
        Any other kind of model with this bound is accepted too.
    X : (B, D) array
        Inputs: a batch or all data.
    Y : (B,) or (B, P) array
        Targets; integer labels (B,) for multi-class likelihoods. (B, 1) is read as (B,) if the
        posterior has no leading axis. Several columns of a target are a last axis: (B, P, C).
    num_data : float, optional
        Size of the whole data set. The data term and its gradient are scaled by num_data / B.
        Default: the batch is the data.
    jitter : float, optional
        Absolute amount added to the diagonal of Kuu; default 1e-6 in float64, 1e-4 in float32.
        The bound never changes it.
    rng : int or numpy.random.Generator, optional
        Used by likelihoods that sample and for random quantities. The gradient is that of the
        returned number, also if that is an estimate.
    weights : (B,) or (B, P) array, optional
        Non-negative weight of each row or target; cast to the dtype of the bound. The factor
        num_data / B does not change. A target of weight 0 is never read, so NaN there marks a
        missing output. The inputs of a row are not read if all its targets have weight 0; its row
        of ``X_bar`` is 0. Class labels take (B,).
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate, for example
        ``("covariance", "posterior.mean")``; default all. Work that only other fields need is
        skipped.
    inputs : bool
        Return the gradient in X too, mean function included: for networks and other layers below.
        With ``wrt=()`` no other gradient is computed.
    group : group of ``fs.distributed``, optional
        Ranks that make this call together with the same model. Every rank gets the value and the
        gradient of one process. ``group.rows`` says whether X, Y and weights hold all rows, which
        the ranks divide, or the rows of this rank. One all-reduce holds the value and all
        gradients.
    **random
        Random quantities of the posterior, drawn (an int) or given (an array): ``probes`` of
        ``Relaxed``, (M, K) of +-1, and ``sampled`` of ``DecoupledWeights``, (S,) row numbers of O.
        They give unbiased estimates of the KL divergence, see ``elbo``. Default: exact. And
        ``num_samples`` or ``draws`` of a ``DeepGP``.

    Returns
    -------
    value : float
    grad : SVGP
        Holds in each field the derivative of the value with respect to that field; ``None`` for
        fields that ``wrt`` leaves out. Gradients of triangular factors are lower triangular.
    X_bar : (B, D), only with ``inputs``
        With a ``group`` the gradient in the rows of this rank.

    Raises
    ------
    ValueError, TypeError
        Wrong shapes, dtypes, devices, labels or names in ``wrt``; NaN or infinity; None in a field;
        ``num_data`` smaller than the batch; weights that are negative or all zero. Also if finite
        numbers give a NaN (``Diverged``).
    NotPositiveDefinite
        Kuu + jitter I could not be factorised.
    RemoteError
        Another rank of the group failed.
    MemoryError
        An array does not fit. Smaller batches help, unless (M, M) matrices are the largest.

    Notes
    -----
    With ``Whitened``, one output: min(4 B + 14/3 M, 5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for the
    value and all gradients; with ``LikelihoodForm`` (3 B + 2 M) M^2. A long batch is processed in
    chunks of at least 1024 rows, so memory is a few (M, M) and (M, chunk) arrays for any batch
    size.

    Examples
    --------
    >>> value, grad = fs.elbo_and_grad(model, X, Y)
    >>> grad.covariance.lengthscales.shape, grad.inducing.shape
    ((1,), (6, 1))
    >>> value, grad, X_bar = fs.elbo_and_grad(model, X, Y, wrt=("likelihood",), inputs=True)
    >>> grad.covariance is None, X_bar.shape
    (True, (40, 1))
    """
    options = dict(weights=weights, jitter=jitter, rng=rng, wrt=wrt, inputs=inputs, **random)
    if group is not None:
        return call_on_ranks("elbo_and_grad", value_and_grad, model, X, Y, group, num_data, options)
    return value_and_grad(model, X, Y, DataScale(num_data), **options)


@overload
def data_term_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    inputs: Literal[False] = ...,
    **options: Unpack[OfBound],
) -> tuple[float, RecordT]: ...
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
    """Compute the data term of the bound, num_data / B sum E log p(y | f), and its gradient.

    ``elbo`` = data term - KL term. Data terms of shards add up.

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
    >>> data, data_grad = fs.bounds.data_term_and_grad(model, X, Y)
    >>> kl, kl_grad = fs.bounds.kl_term_and_grad(model)
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
    """Compute KL[q(u) || p(u)] and its gradient: subtract both from the data term.

    M^3 / 3 flops for ``Whitened``, whose KL does not depend on the covariance; 4 M^3 per output for
    ``Marginal``.

    Parameters
    ----------
    model, jitter, wrt, rng, **random
        As in ``elbo_and_grad``.

    Returns
    -------
    value : float
    grad : SVGP
        Ascent direction of the KL divergence; zeros in the likelihood.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``elbo_and_grad``.

    Examples
    --------
    >>> moved = fs.records.replace_at(model, "posterior.mean", np.ones(6))
    >>> kl, grad = fs.bounds.kl_term_and_grad(moved)
    >>> round(kl, 6), grad.posterior.mean
    (3.0, array([1., 1., 1., 1., 1., 1.]))
    """
    kind = kind_of(model)
    model, _, _, dtype = kind.checked(model)
    wrt = check.names(wrt, model)
    quantities = kind.quantities(model, None, dtype, rng, random)
    layer = kind.begin(model, check.jitter_amount(jitter, dtype), need=(*wrt, KL), **quantities)
    kl, grad = layer.kl(), kind.gradient(model, layer.finish(1.0), None)
    found = {path: bar for path, _, bar in leaves(restricted(grad, wrt)) if bar is not None}
    zeros = restricted(tree_map(lambda value: np.zeros_like(value)[()], model), wrt)
    return check.result(kl, model), replace_leaves(zeros, found)
