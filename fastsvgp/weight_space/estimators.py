"""Reduced estimators of the sampled bound: Gaussian noise, and the tangent bound for the others.

An estimator is made for one evaluation: ``data_term()`` passes the data through both sides, and
``prior(data)`` follows. ``kriged_tangent`` and ``paper_estimators`` have the other two.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check
from ..likelihoods import Gaussian
from ..records import Marginals, tree_map
from ..runtime import deferred_checks
from .bases.samples import to_like
from .sample_side import BasisBatch, Functions, SeenBars, moments


class Task(NamedTuple):
    """Checked arguments of a sampled bound.

    scale : num_data / n
    near : cross-covariances of the control's points and the batch, or None
    """

    model: Any
    X: Any
    Y: Any
    scale: float
    wrt: tuple
    tangent: Any
    control: Any
    near: Any
    jitter: float

    def sd_guess(self):
        """Return t of each datum: the point at which the square root is linearised."""
        X, tangent = self.X, self.tangent
        if tangent is None:
            return np.sqrt(self.model.basis.covariance.kff(X))
        tangent = to_like(check.as_array("tangent", tangent), X)
        if tangent.shape not in ((), (len(X),)):
            raise ValueError(
                f"`tangent` must be a number or have shape ({len(X)},), one for each row of `X`,"
                f" got {tangent.shape}"
            )
        check.finite("tangent", tangent)
        check.positive("tangent", tangent, "")
        return np.broadcast_to(tangent, (len(X),)).astype(X.dtype)


class DataTerm(NamedTuple):
    """Data term of a sampled bound, with the values and the cotangents of both sides.

    terms : data parts of L_mu, L_Sigma and L_const for Gaussian noise; else the data term
    moments : estimates (mean, var) of f at the batch
    seen, bars : pairs for i and j; None for a missing j
    """

    terms: Any
    likelihood_bar: Any
    moments: tuple
    seen: tuple
    bars: tuple


class PriorTerm(NamedTuple):
    """Prior term of a sampled bound, with its cotangents.

    terms : prior parts of L_mu, L_Sigma and L_const
    basis_bars : {field of the basis: cotangent of -KL}
    log_bar, log_bars : cotangents of log det C, as in ``sparse_posterior_gradient``
    weight_bars : pair of ``WeightBars`` for i and j
    points : pair of cotangents at the control's points for i and j, or None each
    """

    terms: Any
    basis_bars: dict
    log_bar: Any
    log_bars: tuple
    weight_bars: tuple
    points: tuple = (None, None)


class Reduced:
    """Base of the reduced estimators: two sides with all dense columns, and the prior term."""

    rest_of_j = True  # whether j sees the rest of the diagonal too

    def __init__(self, task, of_i, of_j):
        self.task, model = task, task.model
        pivots = model.posterior.columns.diagonal()
        check.finite("diagonal of posterior.columns", pivots)
        check.positive("diagonal of posterior.columns", pivots)
        self.i = BasisBatch(model, Functions.of(model.basis, *of_i), rest=True)
        self.j = (
            None
            if of_j is None
            else BasisBatch(model, Functions.of(model.basis, *of_j), rest=self.rest_of_j)
        )

    def prior(self, data):
        """Return the ``PriorTerm`` of the mean and of all dense columns."""
        task, i, q = self.task, self.i, self.task.model.posterior
        basis, control = task.model.basis, task.control
        (of_mean, of_rest), log_det, bars, weight_bars = basis.sampled_energy(
            i, self.j, task.wrt, task.jitter
        )
        points = None, None
        if control is not None and basis.dense_precision:
            removed, *points = control.correct_prior(*(seen.errors for seen in data.seen))
            removed = mean_and_columns(removed)
            of_mean, of_rest = of_mean - removed[0], of_rest - removed[1]
        logs = np.log(q.columns.diagonal(), dtype=np.float64).sum()
        logs += (i.w * np.log(i.pivots, dtype=np.float64)).sum()
        reciprocals = np.zeros((i.k, i.k), q.mean.dtype, like=q.mean)
        reciprocals.reshape(-1)[:: i.k + 1] = 1 / q.columns.diagonal()
        log_bar, log_bars = i.below * (i.w / i.pivots), ((i.dense, reciprocals),)
        terms = vector(task.Y, of_mean, of_rest - 2 * logs, -log_det - basis.num_functions())
        return PriorTerm(terms, bars, log_bar, log_bars, weight_bars, tuple(points))

    def posterior_gradient(self, gradient):
        """Return the gradient of the posterior with all k dense columns."""
        return gradient


class GaussianNoise(Reduced):
    """Unbiased estimator for Gaussian noise: products of what i and j see."""

    rest_of_j = False

    def data_term(self):
        """Evaluate j, then i with its backward pass in one sweep: its cotangents need only j."""
        task, Y, control = self.task, self.task.Y, self.task.control
        noise, known = number(task.model.likelihood.variance), total(Y * Y)
        count, c = task.scale * len(Y), task.scale / noise
        j = self.j.forward(task.X, control, task.near)
        i_bars = self._bars(j, c, rest=True)
        i = self.i.forward(task.X, control, task.near, i_bars, task.wrt)
        j_bars = self._bars(i, c, rest=False)
        squares = vector(Y, total((Y - i.p) * (Y - j.p)), total(i.X * j.X) + total(i.V))
        if control is not None:
            removed, *points = control.correct_squares(i.errors, j.errors, c, len(Y))
            squares -= mean_and_columns(removed)
            i_bars, j_bars = (
                bars._replace(points=bar)
                for bars, bar in zip((i_bars, j_bars), points, strict=True)
            )
        of_noise = count * np.log(2 * np.pi * noise) + c * known
        terms = vector(Y, c * (squares[0] - known), c * squares[1], of_noise)
        likelihood_bar = Gaussian((-0.5 * (count - c * squares.sum()) / noise).astype(Y.dtype))
        return DataTerm(terms, likelihood_bar, moments(i, j), (i, j), (i_bars, j_bars))

    def _bars(self, other, c, rest):
        """Return the cotangents of a side, which depend only on the other side."""
        Y, V_bar = self.task.Y, None
        if rest:
            V_bar = np.empty_like(Y)
            V_bar[:] = -0.5 * c
        return SeenBars.of(0.5 * c * (Y - other.p), -0.5 * c * other.X, V_bar)


class Tangent(Reduced):
    """Tangent bound for log-concave likelihoods, at the joint moments of both sides."""

    def data_term(self):
        """Evaluate the tangent bound; without j there are no dense columns."""
        task = self.task
        j = None if self.j is None else self.j.forward(task.X)
        i = self.i.forward(task.X)
        f = moments(i, j)
        ell, p_bar, V_bar, likelihood_bar = tangent_bound(
            task.model.likelihood, task.Y, Marginals(*f), task.scale, task.sd_guess()
        )
        if j is None:
            bars = SeenBars.of(p_bar, i.X, V_bar), None  # k = 0: X is empty
        else:
            bars = tuple(SeenBars.of(0.5 * p_bar, V_bar * other.X, 0.5 * V_bar) for other in (j, i))
        return DataTerm(ell, likelihood_bar, f, (i, j), bars)


def tangent_bound(likelihood, Y, f, scale, t):
    """Return ``(ell, p_bar, V_bar, likelihood_bar)`` of the tangent bound at estimates f."""
    sd = 0.5 * (f.var / t + t)
    # at 0 the derivative in sd is 0, for every derivative in var
    var = np.maximum(sd * sd, np.finfo(sd.dtype).tiny ** 0.5)
    ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, Marginals(f.mean, var), None)
    return (
        scale * ell,
        scale * f_bar.mean,
        scale * f_bar.var * sd / t,
        tree_map(lambda bar: bar * scale, likelihood_bar),
    )


def mean_and_columns(terms):
    """Return (term of the mean, sum over the dense columns)."""
    return vector(terms, terms[0], terms[1:].sum())


def vector(like, *numbers):
    """Return numbers as a float64 vector on the device of ``like``, without a synchronisation."""
    found = np.empty(len(numbers), like=like)
    for at, one in enumerate(numbers):
        found[at] = one
    return found


def number(value):
    """Return a parameter as a float, or unchanged on a device."""
    return value if deferred_checks.on_device(value) else float(value)


def total(values):
    """Sum in float64."""
    return values.sum(dtype=np.float64)
