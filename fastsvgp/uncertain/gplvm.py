"""The Bayesian GPLVM: inputs that nobody has seen, or that were measured with errors."""

import numpy as np

from .. import check, kernels, models
from ..bounds.svgp import SVGP
from ..check import weights as weighing
from ..check.scale import ALL_ROWS
from ..covariances import RBF, Covariance
from ..distributed.reduce import call_on_ranks
from ..inducing.principal_components import principal_directions
from ..likelihoods import Gaussian
from ..records import data, leaf, record, tree_map
from ..records.typed import Array, ArrayLike, Number, Seed
from ..runtime.dispatch import is_on_device
from ..runtime.edge import public_call
from .inputs import GaussianInputs
from .latent_bound import (
    Latent,
    check_covariance,
    check_prior,
    forward,
    gradient,
    groups_of,
    optimum,
    prior_of,
)

START_VARIANCE = 0.1  # of rows that start at principal components


@record
class GPLVM:
    """Sparse Gaussian process regression on inputs that are parameters, x_n ~ N(mean_n, var_n).

    With the standard prior a Bayesian GPLVM: a nonlinear form of principal components, which drops
    the latent columns that it does not need. With measured inputs and their errors as ``prior``,
    regression on noisy inputs. Gaussian noise, q(u) optimal and implicit.

    Parameters
    ----------
    covariance : RBF
        With one lengthscale for each latent column: long ones switch their columns off.
    inducing : (M, Q) array
    inputs : GaussianInputs
        The means and variances (N, Q) of the latent inputs of the N rows of Y.
    noise_variance : float
    prior : GaussianInputs, optional
        The mean and the variance, (N, Q), of the prior of each row. Default: 0 and 1.

    Examples
    --------
    >>> latent = fs.bounds.GPLVM(covariance, Z, fs.GaussianInputs(X, np.full_like(X, 0.1)), 0.1)
    >>> trained, info = fs.fit(latent, None, Y, steps=20)
    >>> trained.inputs.mean.shape, bool(info.values[-1] > info.values[0])
    ((40, 1), True)
    """

    covariance: Covariance
    inducing: Array
    inputs: GaussianInputs
    noise_variance: Number = leaf("positive")
    prior: GaussianInputs | None = data(default=None)

    def row_numbers(self):
        """Return what ``fit`` takes as X: the numbers (N, 1) of the rows."""
        return np.arange(len(self.inputs), dtype=np.float64)[:, None]


def _checked(model, X, Y, jitter, weights, scale):
    """Check the arguments of a bound; return the ``Latent``, the dtype, and the axes of outputs."""
    check.parts(model)
    check_covariance(model.covariance)
    if type(model.inputs) is not GaussianInputs:
        kind = type(model.inputs).__name__
        raise TypeError(f"`inputs` must be GaussianInputs, got a {kind}")
    Y = check.as_array("Y", Y)
    if is_on_device(Y) or is_on_device(model.inputs.mean):
        raise TypeError(
            "a GPLVM is computed on the host: use fs.to_host(model), and .get() of the arrays"
        )
    model, dtype = check.parameters(model, *((Y,) if Y.dtype.kind == "f" else ()))
    shape = model.inputs.mean.shape
    if len(shape) != 2 or model.inputs.var.shape != shape:
        raise ValueError(
            f"`inputs.mean` and `inputs.var` must both be (N, Q), got {shape} and"
            f" {model.inputs.var.shape}"
        )
    if np.ndim(model.inducing) != 2 or model.inducing.shape[1] != shape[1]:
        raise ValueError(
            f"`inducing` must be (M, {shape[1]}), as the columns of `inputs`, got"
            f" {np.shape(model.inducing)}"
        )
    model.covariance.check_dim(shape[1])
    if model.prior is not None:
        check_prior(model.prior, shape)
    rows = np.arange(shape[0]) if X is None else _row_numbers(X, shape[0])
    if Y.ndim not in (1, 2) or len(Y) != len(rows) or Y.size == 0:
        raise ValueError(
            f"`Y` must be ({len(rows)},) or ({len(rows)}, P), a row for each row of `inputs`, got"
            f" {Y.shape}"
        )
    weights = np.ones(len(rows)) if weights is None else weighing.shape_weights(weights, Y)
    weighing.check_values(weights)
    targets, _ = weighing.fill_targets(Y, weights)
    check.finite("Y", targets)
    targets = np.asarray(targets, np.float64).reshape(len(rows), -1)
    weights = np.asarray(weights, np.float64)
    weights, groups = groups_of(weights, targets.shape[1], scale.alone)
    wide = tree_map(lambda value: np.asarray(value, np.float64)[()], model)
    at = Latent(
        wide, rows, np.ascontiguousarray(targets.T), weights, groups, prior_of(model, rows),
        check.jitter_amount(jitter, np.dtype(np.float64)),
    )  # fmt: skip
    return at, dtype, Y.shape[1:]


def _row_numbers(X, N):
    X = check.as_array("X", X)
    rows = X.reshape(-1).astype(np.int64)
    if X.shape != (len(rows), 1) or (rows != X[:, 0]).any() or (rows < 0).any() or max(rows) >= N:
        raise ValueError(
            "`X` must be None: the inputs of a GPLVM are its own (or numbers (n, 1) of its rows)"
        )
    return rows


def _narrow(tree, dtype):
    return tree_map(lambda value: np.asarray(value, dtype)[()], tree)


def _bound_and_grad(model, X, Y, scale=ALL_ROWS, *, jitter, weights, wrt=None):
    at, dtype, _ = _checked(model, X, Y, jitter, weights, scale)
    wrt = check.names(wrt, model)
    half = forward(at, scale)
    value = check.result(half.value, model)
    grad = _narrow(gradient(at, half, wrt, scale), dtype)
    return value, scale.all_reduce_gradient(0.0, grad)[1]


def _bound(model, X, Y, scale=ALL_ROWS, *, jitter, weights):
    at, *_ = _checked(model, X, Y, jitter, weights, scale)
    return check.result(forward(at, scale).value, model)


def _optimum(model, X, Y, scale=ALL_ROWS, *, jitter, weights):
    at, dtype, axes = _checked(model, X, Y, jitter, weights, scale)
    half = forward(at, scale)
    check.result(half.value, model)
    noise = Gaussian(at.model.noise_variance)
    svgp = SVGP(at.model.covariance, at.model.inducing, optimum(at, half, axes), noise)
    return _narrow(svgp, dtype)


def _on_ranks(name, function, model, X, Y, group, **options):
    if group is None:
        return function(model, X, Y, **options)
    X = model.row_numbers() if X is None else X
    return call_on_ranks(name, function, model, X, Y, group, None, options)


def collapsed_bound(sgpr, X, Y, *, jitter=None, weights=None, group=None):
    given = dict(jitter=jitter, weights=weights)
    return _on_ranks("collapsed_bound", _bound, sgpr, X, Y, group, **given)


def collapsed_bound_and_grad(sgpr, X, Y, *, jitter=None, weights=None, wrt=None, group=None):
    given = dict(jitter=jitter, weights=weights, wrt=wrt)
    return _on_ranks("collapsed_bound_and_grad", _bound_and_grad, sgpr, X, Y, group, **given)


def optimal_svgp(sgpr, X, Y, *, jitter=None, weights=None, group=None):
    given = dict(jitter=jitter, weights=weights)
    return _on_ranks("optimal_svgp", _optimum, sgpr, X, Y, group, **given)


models.register(
    GPLVM,
    instead="predict with info.svgp of model, info = fs.fit(model, None, Y), at GaussianInputs",
    collapsed_bound=collapsed_bound,
    collapsed_bound_and_grad=collapsed_bound_and_grad,
    optimal_svgp=optimal_svgp,
)


@public_call()
def start_gplvm(
    Y: ArrayLike, Q: int, M: int, *, weights: ArrayLike | None = None, rng: Seed = None
) -> GPLVM:
    """Make a ``GPLVM`` whose latent inputs start at the principal components of Y.

    From random rows training ends in the empty solution, in which all latent columns are off.

    Parameters
    ----------
    Y : (N, P) array
        Standardised: of mean 0, and of standard deviations of about 1.
    Q : int
        Number of latent columns, at most P and below N: take more than needed, training switches
        the others off.
    M : int
        Number of inducing inputs, at most N: rows drawn at random.
    weights : (N, P) or (N,) array, optional
        Numbers of weight 0 are missing: means of their columns replace them here.
    rng : int or numpy.random.Generator, optional

    Returns
    -------
    GPLVM

    Raises
    ------
    ValueError
        ``Q`` above P, ``M`` above N, NaN where no weight is 0.

    Notes
    -----
    2 N P^2 + 9 P^3 flops.

    Examples
    --------
    >>> start = fs.bounds.start_gplvm(np.hstack([X, X**2, np.sin(X)]), 2, 10, rng=0)
    >>> start.inputs.mean.shape, start.inducing.shape
    ((40, 2), (10, 2))
    """
    Y = check.as_array("Y", Y)
    if Y.ndim != 2:
        raise ValueError(f"`Y` must be (N, P), got {Y.shape}")
    (N, P), Q, M = Y.shape, check.whole("Q", Q), check.whole("M", M)
    if Q > P or Q >= N:
        raise ValueError(
            f"start_gplvm: `Q` is {Q}, but `Y` has {P} columns and {N} rows; choose a smaller Q"
        )
    if M > N:
        raise ValueError(f"start_gplvm: `M` is {M}, but `Y` has {N} rows; choose a smaller M")
    if weights is None:
        check.finite("Y", Y)
        seen, values = np.ones(Y.shape), np.asarray(Y, np.float64)
    else:
        counted = weighing.shape_weights(weights, Y)
        weighing.check_values(counted)
        seen = np.broadcast_to(counted.reshape(N, -1) > 0, Y.shape)
        values = np.where(seen, Y, 0).astype(np.float64)
        check.finite("Y", values)
    centre = values.sum(0) / np.maximum(seen.sum(0), 1)
    centred = np.where(seen, values - centre, 0.0)
    directions, deviations = principal_directions(centred, Q)
    scores = kernels.matmul(centred, np.ascontiguousarray(directions.T))
    scores /= np.maximum(deviations, 1e-12 * max(1.0, float(deviations.max())))
    variance = float(np.square(centred).sum() / max(seen.sum(), 1)) or 1.0
    dtype = Y.dtype if Y.dtype.kind == "f" else np.dtype(np.float64)
    chosen = check.generator(rng).choice(N, M, replace=False)
    return _narrow(
        GPLVM(
            RBF(variance, np.full(Q, np.sqrt(Q))),
            scores[chosen],
            GaussianInputs(scores, np.full(scores.shape, START_VARIANCE)),
            0.5 * variance,
        ),
        dtype,
    )
