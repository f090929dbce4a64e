"""Reduced estimators of the sampled bound: Gaussian noise, and the tangent bound for the others.

An estimator is made for one evaluation: ``data_term()`` passes the data through both sides, and
``prior(data)`` follows. ``paper_estimators`` has another one.

*Kriged tangent bound.* With B = k_xP K_PP^-1, and a sample's features phi^ and phi^_P, weights
included,

    p^ = (phi^ - B phi^_P + B phi_P) A,    E p^ = phi A,
    V^ = V + sum_r X^_r^2,    E V^ >= sd^2,    sd^ = (V^ / t + t) / 2:

H(mean^, sd^) is at most H(mean, sd) on average (see ``sampled_bound``). The difference shrinks with
the variance of p^. Squares of one sample replace the products of two; they can only increase E V^.
So the term of a side depends only on that side. The value is the mean of both.

The average of the value over samples depends on A through the sampled features, and through
phi_P A, which is known but dense. With out_bar, the cotangents (p_bar, 2 V_bar X^) of one side's p^
and X^, the gradient of the average is the average of

    phi^' out_bar - phi^_P' B' out_bar + phi_P' B' out_bar.

Because out_bar and the *other* sample are independent, the other's phi^_P' can replace phi_P' in
the last term. With halves of out_bar for the mean of both, the rows that i names get

    phi_i' out_bar_i + phi_Pi' B' (out_bar_j - out_bar_i):

the term of their own side for a function that the points do not determine, and that of the other
side for a function that they determine fully (phi = phi_P B'). The gradient is unbiased for that of
the average value, a bound, in the whole posterior. In hyperparameters it is the gradient of the
value: the control's basis is held fixed.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..likelihoods import Gaussian
from ..records import Marginals, plus, tree_map
from ..runtime import deferred_checks, devices
from .bases.base import sum64
from .sample_side import BasisBatch, SeenBars, SideFunctions, moments


class BoundInputs(NamedTuple):
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
        tangent = devices.copy_to(check.as_array("tangent", tangent), X)
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
        self.i = BasisBatch(model, SideFunctions.of(model.basis, *of_i), rest=True)
        self.j = (
            None
            if of_j is None
            else BasisBatch(model, SideFunctions.of(model.basis, *of_j), rest=self.rest_of_j)
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
        noise, known = number(task.model.likelihood.variance), sum64(Y * Y)
        count, c = task.scale * len(Y), task.scale / noise
        j = self.j.forward(task.X, control, task.near)
        i_bars = self._bars(j, c, rest=True)
        i = self.i.forward(task.X, control, task.near, i_bars, task.wrt)
        j_bars = self._bars(i, c, rest=False)
        squares = vector(Y, sum64((Y - i.p) * (Y - j.p)), sum64(i.X * j.X) + sum64(i.V))
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


class KrigedTangent(Reduced):
    """Tangent bound with a control: the mean of both sides' own bounds."""

    def data_term(self):
        """Evaluate both sides separately, and couple their cotangents at the control's points."""
        task, t, ell, likelihood_bar, bars = self.task, self.task.sd_guess(), 0.0, None, []
        seen = [side.forward(task.X, task.control, task.near) for side in (self.i, self.j)]
        for one in seen:
            f = Marginals(one.p, one.V + np.square(one.X).sum(axis=0))
            value, p_bar, V_bar, bar = tangent_bound(
                task.model.likelihood, task.Y, f, 0.5 * task.scale, t
            )
            bars.append(SeenBars.of(p_bar, 2 * V_bar * one.X, V_bar))
            ell, likelihood_bar = ell + value, plus(bar, likelihood_bar)
        difference = kernels.matmul(bars[1].out - bars[0].out, task.near, transpose_b=True)
        points = task.control.kriging_weights(difference)
        i_bars, j_bars = bars[0]._replace(points=points), bars[1]._replace(points=-points)
        return DataTerm(ell, likelihood_bar, moments(*seen), tuple(seen), (i_bars, j_bars))


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
