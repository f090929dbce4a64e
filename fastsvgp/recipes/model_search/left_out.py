"""Exact processes that are judged by leaving out whole labels, or the future.

The log evidence of targets y with K = k(X, X) + s^2 E + diag(n / w), in which E_ij is 1 for rows of
one label, has the gradient (Rasmussen and Williams 2006, equation 5.9)

    d / d theta = tr(R dK / d theta),    R = (a a' - K^-1) / 2,    a = K^-1 y,

so that d / d s^2 is the sum of R over pairs of one label, and d / d n that of R_ii / w_i. With
random effects of variance s^2, inputs that name a label explain no more than new labels share.

Given all rows outside a set g, the rows of g have, with B = (K^-1)_gg,

    mean y_g - B^-1 a_g,    covariance B^-1

(their equation 5.12 is that of one row). Given all rows before a block of an order of time, they
have, with K = L L' in this order and z = L^-1 y,

    mean y_g - L_gg z_g,    covariance L_gg L_gg',

so one factor gives every rolling origin.
"""

from typing import Any, NamedTuple

import numpy as np

from ... import kernels
from ...covariances import Linear, Matern12, Matern32, On, Periodic, Sum
from ...inducing import median_lengthscales, unique_rows
from ...optim.flat import ravel
from ...posteriors.base import add_to_diagonals
from ...runtime import tuning
from .candidates import NOISE, Hyper
from .held_out_density import factors_of, log_densities
from .plain_processes import OF_PAIR, PASS, plain_on
from .rows import mark
from .structures import waves

PLAIN = "plain"
EFFECT = 0.3  # initial variance of random effects
LOWEST, WIDEST = 1e-6, 12.0  # least noise variance; change of logarithms
ITERATIONS = 60
FEW_LABELS, FOLDS = 20, 5  # labels below which hyperparameters are cross-validated, too
EACH, RACED = 5, 600  # rows of a label, and rows that train a process in a race
BLOCKS, OF_ROWS, CLUSTERS = (
    4,
    0.1,
    5,
)  # rolling origins, the part of the rows of each, and its parts
SLOW = 3.0  # lengthscale of a slow level, in lengths of the time


class LeftOut(NamedTuple):
    """Of rows, given others: moments of f, a log density, clusters of rows that count as one."""

    rows: Any
    mean: Any
    var_f: Any
    density: Any
    clusters: Any


class ByEvidence:
    """An exact process, perhaps with random effects of labels, trained on its log evidence.

    ``most``: rows that train it, if there are more.
    """

    share, segments, settles = 1, 1, False

    def __init__(self, name, scale, rows, covariance, noise=NOISE, effect=0.0, most=None):
        self.name, self.scale, self.rows, self.steps = name, scale, rows, 0
        self._most = most or len(rows)
        self._covariance, self._noise, self._effect = self.start = covariance, noise, effect

    @property
    def model(self):
        return Hyper(self._covariance, self._noise, None, self._effect)

    def take(self, plan, seconds, part=None):
        from scipy.optimize import minimize

        rows, effect = draw(self.rows, self._most), self._effect > 0
        vector, unravel = ravel(self._covariance, transform="log", fixed=_fixed(self._covariance))
        start = np.concatenate([vector, np.log([self._noise, self._effect][: 1 + effect])])
        flops = 3 * len(rows) ** 3 + OF_PAIR * (PASS + rows.X.shape[1]) * 3 * len(rows) ** 2

        def loss(point):
            covariance, others = unravel(point[: len(vector)]), np.exp(point[len(vector) :])
            value, bar, more = evidence_and_grad(rows, covariance, *others)
            plan.did(flops)
            slopes = unravel.pullback(point[: len(vector)], bar)
            return -value, -np.concatenate([slopes, more[: 1 + effect] * others])

        began = plan.spent
        loss(start)
        each = plan.spent - began
        count = plan.count(
            f"{self.name}: evaluations", lambda: min(max(seconds / each, 3), ITERATIONS)
        )
        limits = np.stack([start - WIDEST, start + WIDEST])
        limits[0, len(vector)] = max(limits[0, len(vector)], np.log(LOWEST))
        found = minimize(
            loss, start, jac=True, method="L-BFGS-B", bounds=limits.T, options={"maxfun": count}
        )
        self._covariance = unravel(found.x[: len(vector)])
        self._noise, self._effect = (*np.exp(found.x[len(vector) :]).tolist(), 0.0)[:2]
        self.steps += int(found.nit)

    def get_state(self):
        numbers = {"steps": self.steps, "noise": self._noise, "effect": self._effect}
        return self._covariance, None, None, numbers

    def restore(self, model, optimiser, order, numbers):
        self._covariance = model
        self.steps, self._noise, self._effect = (
            numbers[name] for name in ("steps", "noise", "effect")
        )


def draw(rows, most):
    """Draw about ``most`` rows: at random in time, else of as many labels as have ``EACH`` rows."""
    rng = np.random.default_rng(0)
    if rows.later or len(rows) <= most:
        return rows.draw(most, rng)
    order = rng.permutation(len(rows))
    place = order[np.argsort(rows.labels[order], kind="stable")]
    counts = np.bincount(rows.labels)
    number = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows.labels[place]]
    each = max(EACH, most // np.count_nonzero(counts))
    some = rows.some(np.sort(place[number < each]))
    return some.some(mark(some.labels, False, most, rng)) if len(some) > most else some


def _fixed(covariance):
    """Return the paths of periods, which the spectrum has found."""
    parts = enumerate(covariance.parts)
    return [f"parts.{i}.part.period" for i, one in parts if isinstance(one, On) and _wave(one.part)]


def _wave(covariance):
    return isinstance(covariance, Periodic)


def matrix_of(hyper, rows):
    """Return the covariance (N, N) of targets."""
    K = hyper.covariance.matrix(rows.X)
    add_to_diagonals(K, noise_of(hyper, rows))
    if hyper.effect:
        K += hyper.effect * (rows.labels[:, None] == rows.labels)
    return K


def noise_of(hyper, rows):
    """Return the noise variance (N,) of rows."""
    return np.full(len(rows), hyper.noise) if rows.weights is None else hyper.noise / rows.weights


def evidence_and_grad(rows, covariance, noise, effect=0.0):
    """Return the log evidence, and its gradient: a record, and (2,) by noise and effect. 3 N^3."""
    N = len(rows)
    W = kernels.cholesky_of_inverse(matrix_of(Hyper(covariance, noise, None, effect), rows))
    a = W @ (rows.y @ W)
    value = np.log(np.diagonal(W)).sum() - 0.5 * rows.y @ a - 0.5 * N * np.log(2 * np.pi)
    R = kernels.matmul(W, W, transpose_b=True)
    R *= -0.5
    R += 0.5 * np.outer(a, a)
    bar, _, _ = covariance.matrix_vjp(R, None, rows.X, need=("covariance",))
    by_noise = np.diagonal(R) @ noise_of(Hyper(covariance, 1.0, None), rows)
    by_effect = np.sum(R, where=rows.labels[:, None] == rows.labels) if effect else 0.0
    return value, bar, np.array([by_noise, by_effect])


def leave_out(hyper, rows, plan):
    """Return what an exact process predicts of rows that are left out. N^3 flops.

    Rows without labels are left out one by one; those of one label together; of times, each block
    has only the rows before it, and the first rows are not predicted.
    """
    K, noise = matrix_of(hyper, rows), noise_of(hyper, rows)
    plan.did(len(rows) ** 3)
    if rows.later:
        return _leave_future_out(hyper, K, noise, rows)
    W = kernels.cholesky_of_inverse(K)
    a = W @ (rows.y @ W)
    if rows.labels is None:
        var = 1 / np.square(W).sum(axis=1)
        shift = var * a
    else:
        var, shift = np.empty(len(rows)), np.empty(len(rows))
        order = np.argsort(rows.labels, kind="stable")
        for g in np.split(order, np.flatnonzero(np.diff(rows.labels[order])) + 1):
            B = np.linalg.inv(W[g] @ W[g].T)
            var[g], shift[g] = np.diagonal(B), B @ a[g]
    return _left_out(hyper, rows, rows.y - shift, var - noise, rows.labels)


def few_labels(rows):
    """Whether labels are too few to be held out."""
    return not rows.later and len(np.unique(rows.labels)) < FEW_LABELS


def cross_validate(one, rows, plan, seconds):
    """As ``leave_out``; if labels are few, hyperparameters have not seen what is left out either.

    They are those of a process that trains without each fold of labels.
    """
    left = leave_out(one.model, rows, plan)
    if not few_labels(rows):
        return left
    fold = np.unique(rows.labels, return_inverse=True)[1] % FOLDS
    mean, var = left.mean.copy(), left.var_f.copy()
    for k in np.unique(fold):
        at, others = fold == k, rows.some(fold != k)
        own = ByEvidence(one.name, one.scale, others, *one.start)
        own.take(plan, seconds / FOLDS)
        found = leave_out(own.model, rows, plan)
        more = own.model.noise + own.model.effect - one.model.noise - one.model.effect
        mean[at], var[at] = found.mean[at], found.var_f[at] + more
    return _left_out(one.model, rows, mean, var + one.model.effect, rows.labels)


def _leave_future_out(hyper, K, noise, rows):
    block = blocks_of(rows)
    order = np.argsort(rows.labels, kind="stable")
    L = kernels.cholesky(K[np.ix_(order, order)])
    z = kernels.solve_triangular(L, rows.y[order][:, None])[:, 0]
    mean, var, clusters = (np.empty(len(rows)) for _ in range(3))
    for k in range(1, BLOCKS + 1):
        at = np.flatnonzero(block[order] == k)
        if not len(at):
            continue
        own = L[at[0] : at[-1] + 1, at[0] : at[-1] + 1]
        mean[order[at]] = rows.y[order[at]] - own @ z[at]
        var[order[at]] = np.square(own).sum(axis=1)
        clusters[order[at]] = k * CLUSTERS + (np.arange(len(at)) * CLUSTERS) // len(at)
    there = block > 0
    found = mean[there], (var - noise)[there], clusters[there].astype(np.intp)
    return _left_out(hyper, rows.some(there), *found)


def _left_out(hyper, rows, mean, var_f, clusters):
    var_f = np.maximum(var_f - hyper.effect, 0)
    noise = noise_of(hyper, rows) + hyper.effect
    density = log_densities(mean, var_f + noise, rows.y, rows.weights)
    return LeftOut(rows, mean, var_f, density, clusters)


def blocks_of(rows):
    """Number the blocks of rolling origins (N,), by time; 0 for the rows before the first one."""
    counts = np.bincount(rows.labels)
    before = (np.cumsum(counts) - counts)[rows.labels] / len(rows)
    block = np.floor((before - 1) / OF_ROWS + 1e-9).astype(int) + BLOCKS + 1
    return np.maximum(block, 0)


def factors_and_scores(hyper, left):
    """Return the factors (a, c) that left-out rows choose, and their RMSE and Gaussian NLPD."""
    rows, noise = left.rows, hyper.noise + hyper.effect
    a, c = factors_of(left.mean, left.var_f, noise, rows.y, rows.weights)
    return (a, c), *rmse_and_nlpd(rows, left.mean, a * left.var_f + c * noise)


def rmse_and_nlpd(rows, mean, var):
    """Return the RMSE and the Gaussian NLPD of rows with these predictions of targets."""
    squares = np.square(rows.y - mean)
    losses = 0.5 * (np.log(2 * np.pi * var) + squares / var)
    found = np.average([squares, losses], axis=1, weights=rows.weights)
    return float(np.sqrt(found[0])), float(found[1])


# --- covariances for new groups and for the future, the simplest first ---


def covariances_for_groups(rows):
    """Yield names and covariances: a line, a smooth function, one of what varies within groups."""
    D = rows.X.shape[1]
    yield "linear, random effects", Sum((Linear(1 / D),))
    yield "random effects", plain_on(rows.X)
    inside = varying_inside(rows)
    if 0 < len(inside) < D:
        smooth, name = plain_on(rows.X[:, list(inside)]), "without columns of the group"
        yield f"random effects, {name}", Sum([On(part, inside) for part in smooth.parts])


def varying_inside(rows):
    """Return the columns that vary within labels."""
    order = np.argsort(rows.labels, kind="stable")
    same = np.diff(rows.labels[order]) == 0
    changes = np.diff(rows.X[order], axis=0)[same]
    return tuple(np.flatnonzero(np.any(changes != 0, axis=0)).tolist())


def covariances_for_later(rows, column):
    """Yield names and covariances: the plain one; a slow level in time; cycles beside it."""
    yield PLAIN, plain_on(rows.X)
    if column is None:
        return
    D, t = rows.X.shape[1], rows.X[:, [column]]
    others = tuple(d for d in range(D) if d != column)
    level = On(Matern12(1.0, np.array([SLOW * max(np.ptp(t), 1e-3)])), (column,))
    parts = [Linear(np.full(D, 1 / D)), level]
    if others:
        parts.append(On(Matern32(1.0, median_lengthscales(rows.X[:, others], rng=0)), others))
    yield "level", Sum(parts)
    found = waves(rows.X, _detrended(rows, column), column)
    if found:
        yield "level and cycles", Sum((*parts, *found))


def _detrended(rows, column):
    """Return the residuals (N,) of a linear function of the inputs."""
    A = np.column_stack([np.ones(len(rows)), rows.X])
    return rows.y - A @ np.linalg.lstsq(A, rows.y, rcond=None)[0]


def inducing_for(hyper, rows):
    """Return hyperparameters with all distinct rows as inducing inputs, if these are few."""
    few = len(rows) <= tuning.current.exact_rows
    return hyper._replace(inducing=unique_rows.distinct(rows.X)[0] if few else None)
