"""Inputs of new rows from their targets: q(x) under a trained model."""

import numpy as np

from .. import check
from ..bounds.predictor import predictor
from ..bounds.svgp import SVGP
from ..check import weights as weighing
from ..likelihoods import Gaussian
from ..records import Marginals
from ..records.inducing_sets import stack_sets
from ..records.typed import ArrayLike, Record
from ..runtime.blas_scope import blas_threads_for
from ..runtime.edge import public_call
from .closed_form import ClosedFormPass
from .inputs import GaussianInputs
from .latent_bound import check_prior

FAR = 25.0  # logarithm of a variance at which a line search has gone astray


@public_call()
def infer_inputs(
    model: SVGP,
    Y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    prior: GaussianInputs | None = None,
    starts: int = 3,
    steps: int = 200,
    jitter: float | None = None,
) -> GaussianInputs:
    """Find the inputs of new rows from their targets, of which some can be missing.

    The variances say how far the targets that are seen determine an input. Predictions at the
    result of missing targets take them into account; at the means alone they are overconfident.

    Parameters
    ----------
    model : SVGP
        With Gaussian noise and a sum of RBF covariances: ``info.svgp`` of a trained ``GPLVM``, or
        any other. A predictor of one is taken too.
    Y : (N, P) array, or (N,) for a model of one output
    weights : (N, P) or (N,) array, optional
        Numbers of weight 0 are missing, and never read.
    prior : GaussianInputs, optional
        (N, Q): of measured inputs with their errors. Default: 0 and 1, as of a ``GPLVM``.
    starts : int
        Number of searches. Each row starts at the inducing inputs whose predictions are nearest to
        its targets, and keeps the best.
    steps : int
        Iterations of each search.
    jitter : float, optional
        As in ``elbo``.

    Returns
    -------
    GaussianInputs
        Means and variances (N, Q).

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        Shapes, NaN where no weight is 0, another likelihood or covariance.

    Notes
    -----
    L-BFGS-B on sum_p w_p E log p(y_p | f_p(x)) - KL[q(x) || p(x)] of all rows together. An
    evaluation is a prediction with its pullback: M^2 / 2 (1 exponential + 8 P + 6 Q flops) a row.

    Examples
    --------
    >>> found = fs.bounds.infer_inputs(model, Y[:3])
    >>> found.mean.shape, found.var.shape
    ((3, 1), (3, 1))
    """
    if not isinstance(model, SVGP) or not isinstance(model.likelihood, Gaussian):
        kind = type(getattr(model, "likelihood", model)).__name__
        raise TypeError(
            f"infer_inputs: `model` must be an SVGP with a Gaussian likelihood, got a {kind}; of a"
            " GPLVM give info.svgp"
        )
    fast = predictor(model, jitter=jitter, dtype=np.float64)
    Z, outputs = stack_sets(fast.inducing), fast.posterior.alpha.shape[:-1]
    Y = check.as_array("Y", Y)
    if Y.ndim != 1 + len(outputs) or Y.shape[1:] != outputs or not len(Y):
        raise ValueError(
            f"`Y` must have shape (N{''.join(f', {P}' for P in outputs)}), the outputs of `model`,"
            f" got {Y.shape}"
        )
    weights = np.ones(Y.shape) if weights is None else weighing.shape_weights(weights, Y)
    weighing.check_values(weights)
    targets, _ = weighing.fill_targets(Y, weights)
    check.finite("Y", targets)
    N, Q = len(Y), Z.shape[1]
    if prior is not None:
        check_prior(prior, (N, Q))
    weights = np.broadcast_to(weights.reshape(N, -1), (N, targets.size // N))
    search = _Search(
        fast,
        np.asarray(targets, np.float64).reshape(N, -1).T,
        np.asarray(weights, np.float64).T,
        (0.0, 1.0) if prior is None else (np.asarray(prior.mean), np.asarray(prior.var)),
    )
    best = None
    with blas_threads_for((model, Y)):
        for start in search.starts(Z, min(check.whole("starts", starts), len(Z))):
            mean, var = search.run(start, check.whole("steps", steps))
            values = search.values(mean, var)
            if best is None:
                best = values, mean, var
            else:
                better = values > best[0]
                pairs = zip((values, mean, var), best, strict=True)
                best = tuple(
                    np.where(better.reshape(-1, *[1] * (one.ndim - 1)), one, old)
                    for one, old in pairs
                )
    dtype = stack_sets(model.inducing).dtype
    return GaussianInputs(*(values.astype(dtype) for values in best[1:]))


class _Search:
    """The bound of rows as a function of their means and variances; targets, weights (P, N)."""

    def __init__(self, fast: Record, Y, weights, prior):
        self.model, self.Y, self.weights, self.prior = fast, Y, weights, prior
        self.noise = np.asarray(fast.likelihood.variance, np.float64).reshape(-1, 1)

    def starts(self, Z, count):
        """Yield means (N, Q): the inducing inputs nearest in the targets that are seen."""
        exact = GaussianInputs(Z, np.full(Z.shape, 1e-12))
        work = ClosedFormPass(self.model, exact, np.dtype(np.float64))
        f = work.means(exact).reshape(len(self.Y), -1)
        far = np.stack([(self.weights * (self.Y - column[:, None]) ** 2).sum(0) for column in f.T])
        order = far.argsort(axis=0)
        for place in range(count):
            yield Z[order[place]]

    def bound(self, mean, var):
        """Return the bound (N,) of each row, and its gradient in ``mean`` and ``var``."""
        X = GaussianInputs(mean, var)
        work = ClosedFormPass(self.model, X, np.dtype(np.float64), ("inputs",))
        f, residuals = work.forward(X)
        shape, (m0, v0) = f.mean.shape, self.prior
        apart, w = self.Y - f.mean.reshape(self.Y.shape), self.weights
        squares = apart**2 + f.var.reshape(self.Y.shape)
        values = (-0.5 * w * (np.log(2 * np.pi * self.noise) + squares / self.noise)).sum(0)
        bars = w * apart / self.noise, -0.5 * w / np.broadcast_to(self.noise, w.shape)
        X_bar = work.pull(residuals, Marginals(*(bar.reshape(shape) for bar in bars)))
        values -= 0.5 * ((var + (mean - m0) ** 2) / v0 - 1 - np.log(var / v0)).sum(1)
        mean_bar = X_bar.mean - (mean - m0) / v0
        return values, mean_bar, X_bar.var - 0.5 * (1 / v0 - 1 / var)

    def values(self, mean, var):
        return self.bound(mean, var)[0]

    def run(self, start, steps):
        """Return the means and variances after a search from these means."""
        from scipy.optimize import minimize

        shape, size = start.shape, start.size
        scale = np.broadcast_to(self.prior[1], shape)

        def loss(vector):
            mean, logs = vector[:size].reshape(shape), vector[size:].reshape(shape)
            if np.abs(logs).max() > FAR:
                return 1e300, np.zeros(2 * size)
            var = scale * np.exp(logs)
            values, mean_bar, var_bar = self.bound(mean, var)
            grad = np.concatenate([mean_bar.ravel(), (var_bar * var).ravel()])
            return -values.sum(), -grad

        begin = np.concatenate([start.ravel(), np.full(size, np.log(0.1))])
        options = {"maxiter": steps, "maxfun": 20 * steps, "ftol": 1e-15, "gtol": 1e-9}
        found = minimize(loss, begin, jac=True, method="L-BFGS-B", options=options).x
        return found[:size].reshape(shape), scale * np.exp(found[size:].reshape(shape))
