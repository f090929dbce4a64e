"""Inputs of new rows from their targets: q(x) under a trained model."""

from typing import Any

import numpy as np

from .. import check
from ..bounds.predictor import predictor
from ..bounds.svgp import SVGP
from ..check import weights as weighing
from ..likelihoods import Gaussian
from ..records import Marginals
from ..records.inducing_sets import stack_sets
from ..records.typed import ArrayLike
from ..runtime.blas_scope import blas_threads_for
from ..runtime.edge import public_call
from .closed_form import ClosedFormPass
from .inputs import GaussianInputs
from .latent_bound import check_prior

FIRST = 0.1  # of the variance of the prior, that of a row at its start
CONVERGED = 1e-9  # largest gradient over 1 + |bound| of a row that is done
TINY = 1e-11  # fall over 1 + |bound| that a last step promises; rounding hides it
LONGEST, HALVINGS = 2.0, 30  # largest change of a coordinate in a step, and halvings of a step


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
    BFGS on sum_p w_p E log p(y_p | f_p(x)) - KL[q(x) || p(x)] of each row. An evaluation is a
    prediction with its pullback: M^2 / 2 (1 exponential + 8 P + 6 Q flops) a row.

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
        (np.zeros((N, Q)), np.ones((N, Q)))
        if prior is None
        else tuple(np.asarray(field, np.float64) for field in (prior.mean, prior.var)),
    )
    best: Any = None
    with blas_threads_for((model, Y)):
        for start in search.starts(Z, min(check.whole("starts", starts), len(Z))):
            found = search.run(start, check.whole("steps", steps))
            if best is not None:
                better = found[0] > best[0]
                found = [
                    np.where(better.reshape(-1, *[1] * (one.ndim - 1)), one, old)
                    for one, old in zip(found, best, strict=True)
                ]
            best = found
    dtype = stack_sets(model.inducing).dtype
    return GaussianInputs(*(values.astype(dtype) for values in best[1:]))


class _Search:
    """The bound of rows as a function of their means and variances; targets, weights (P, N)."""

    def __init__(self, fast, Y, weights, prior):
        self.Y, self.weights, self.prior = Y, weights, prior
        ones = np.ones(prior[0].shape)
        at = GaussianInputs(ones, ones)  # all columns are uncertain
        self.work = ClosedFormPass(fast, at, np.dtype(np.float64), ("inputs",))
        self.noise = np.asarray(fast.likelihood.variance, np.float64).reshape(-1, 1)

    def starts(self, Z, count):
        """Yield means (N, Q): the inducing inputs nearest in the targets that are seen."""
        f = self.work.means(GaussianInputs(Z, np.full(Z.shape, 1e-12))).reshape(len(self.Y), -1)
        far = np.stack([(self.weights * (self.Y - column[:, None]) ** 2).sum(0) for column in f.T])
        order = far.argsort(axis=0)
        for place in range(count):
            yield Z[order[place]]

    def bound(self, rows, mean, var):
        """Return the bound (n,) of these rows, and its gradient in ``mean`` and ``var``."""
        X = GaussianInputs(mean, var)
        f, residuals = self.work.forward(X)
        w = self.weights[:, rows]
        m0, v0 = (part[rows] for part in self.prior)
        apart = self.Y[:, rows] - f.mean.reshape(w.shape)
        squares = apart**2 + f.var.reshape(w.shape)
        values = (-0.5 * w * (np.log(2 * np.pi * self.noise) + squares / self.noise)).sum(0)
        bars = w * apart / self.noise, -0.5 * w / np.broadcast_to(self.noise, w.shape)
        X_bar = self.work.pull(residuals, Marginals(*(bar.reshape(f.mean.shape) for bar in bars)))
        values -= 0.5 * ((var + (mean - m0) ** 2) / v0 - 1 - np.log(var / v0)).sum(1)
        mean_bar = X_bar.mean - (mean - m0) / v0
        return values, mean_bar, X_bar.var - 0.5 * (1 / v0 - 1 / var)

    def moments(self, rows, x):
        """Return the means and variances at coordinates x (n, 2 Q): means, and log ratios."""
        Q = x.shape[1] // 2
        return x[:, :Q], self.prior[1][rows] * np.exp(x[:, Q:])

    def loss(self, rows, x):
        """Return minus the bound (n,), and its gradient (n, 2 Q)."""
        mean, var = self.moments(rows, x)
        values, mean_bar, var_bar = self.bound(rows, mean, var)
        return -values, -np.concatenate([mean_bar, var_bar * var], axis=1)

    def run(self, start, steps):
        """Return values, means and variances after searches from these means.

        BFGS of each row for itself: what a row finds does not depend on the others.
        """
        N, Q = start.shape
        x = np.concatenate([start, np.full((N, Q), np.log(FIRST))], axis=1)
        H, rows = np.tile(np.eye(2 * Q), (N, 1, 1)), np.arange(N)
        f, g = self.loss(rows, x)
        for _ in range(steps):
            rows = rows[np.abs(g[rows]).max(axis=1) > CONVERGED * (1 + np.abs(f[rows]))]
            if not rows.size:
                break
            rows = self._step(rows, x, f, g, H)
        return -f, *self.moments(np.arange(N), x)

    def _step(self, rows, x, f, g, H):
        """Take a step of BFGS with backtracking, in place; return the rows that go on."""
        move = -(H[rows] * g[rows][:, None]).sum(-1)
        slope = (move * g[rows]).sum(1)
        lost = slope >= 0
        move[lost], H[rows[lost]] = -g[rows[lost]], np.eye(x.shape[1])
        move *= np.minimum(1, LONGEST / np.abs(move).max(axis=1))[:, None]
        slope, size, waiting = (move * g[rows]).sum(1), 1.0, np.arange(len(rows))
        last, moved = -slope < TINY * (1 + np.abs(f[rows])), []
        for _ in range(HALVINGS):
            at = rows[waiting]
            trial = x[at] + size * move[waiting]
            f_new, g_new = self.loss(at, trial)
            good = last[waiting] | (f_new <= f[at] + 1e-4 * size * slope[waiting])
            here = at[good]
            self._update(H, here, trial[good] - x[here], g_new[good] - g[here])
            x[here], f[here], g[here] = trial[good], f_new[good], g_new[good]
            moved.append(here[~last[waiting][good]])
            waiting, size = waiting[~good], 0.5 * size
            if not waiting.size:
                break
        return np.sort(np.concatenate(moved))

    @staticmethod
    def _update(H, rows, s, y):
        """H <- (I - s y'/ y's) H (I - y s'/ y's) + s s'/ y's, where the curvature is positive."""
        curvature = (s * y).sum(1)
        keep = curvature > 1e-12
        rows, s, y, curvature = rows[keep], s[keep], y[keep], curvature[keep][:, None, None]
        Hy = (H[rows] * y[:, None]).sum(-1)
        outer = s[:, :, None] * Hy[:, None] / curvature
        scale = 1 + (y * Hy).sum(1)[:, None, None] / curvature
        H[rows] += scale * s[:, :, None] * s[:, None] / curvature
        H[rows] -= outer + np.swapaxes(outer, 1, 2)
