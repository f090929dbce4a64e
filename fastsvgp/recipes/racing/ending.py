"""From the best look to a model that predicts: the last posterior, factors put into the model, heavy tails."""

import numpy as np

from ...bounds.predict import predict_f
from ...check import DEFAULT_JITTER
from ...collapsed.sgpr import SGPR, optimal_svgp
from ...covariances import OnFeatures
from ...errors import NotPositiveDefinite
from ...initialise import greedy_variance_inducing, unique_rows
from ...posteriors import Whitened
from ...records import replace
from .candidates import Rows
from .collapse import of_features
from .densities import BETTER, better_by, log_densities
from .looks import UNUSUAL, M, judged, posterior_of
from .tails import gains, student_noise, with_tails

MOST = 1024
SLOW = 3e10  # operations per second of the last posterior
FEWEST = 16  # inducing inputs, where some have to be left out


class Ending:
    """What follows a ``Course``: ``rows`` are all rows, inputs in their own units."""

    def __init__(self, course, rows, plan):
        self._course, self._rows, self._plan = course, rows, plan

    def answer(self, interrupted):
        """``(svgp, look)``: the model on all rows, and the look that it is of."""
        course = self._course
        if course.held is None or not course.looks:
            rows = self._units(course.rows, course.best)
            collapsed = posterior_of(course.best.hyper, rows, M, tune=not course.constant)
            svgp, _ = self._on_all(course.best, collapsed, (1.0, 1.0))
            return svgp, course.best
        look, found = self._best(interrupted)
        if not interrupted and course.first is not None:
            look, found = self._last_word(look, found)
        svgp, factors = self._on_all(look, found.collapsed, found.factors)
        for name, factor in zip(("variance of f", "noise"), factors, strict=True):
            if not 1 / UNUSUAL <= factor <= UNUSUAL:
                course.say(f"held-out rows multiply the {name} by {factor:.2g}")
        if not interrupted:
            svgp = self._under_tails(svgp, look, found)
        course.say(f"model: {look.candidate}, {len(svgp.inducing)} inducing inputs, all rows")
        return svgp, look

    def _units(self, rows, look):
        """Rows in the units of the look's model."""
        return Rows(np.ascontiguousarray(look.scale.X(rows.X)), rows.y, rows.weights)

    def _best(self, interrupted):
        """The best look of all with M inducing inputs, or as many as the time allows: ``(look, Judged)``."""
        course = self._course
        for look in sorted(course.looks, key=lambda look: -look.score):
            rows = self._units(course.rows, look)
            counts = {M} if interrupted or self._learnt(look) else {M, self._largest(rows, look)}
            found = []
            for count in sorted(counts):
                try:
                    found.append(judged(look.hyper, look.scale, rows, course.held, count))
                except NotPositiveDefinite as error:
                    failed = error
                    continue
                one = found[-1]
                course.say(
                    f"{look.candidate} with {len(one.collapsed.Z)} inducing inputs: held-out log"
                    f" density {one.score:.3f}, RMSE {one.rmse:.4g}"
                )
            if found:
                return look, max(found, key=lambda one: one.score)
        raise failed

    def _learnt(self, look):
        """Whether the inducing inputs of a look are at least M."""
        return look.hyper.inducing is not None and len(look.hyper.inducing) > M

    def _largest(self, rows, look):
        """How many inducing inputs fit in the time that is left."""
        network = isinstance(look.hyper.covariance, OnFeatures)

        def decided():
            flops = max(self._plan.left - 0.5, 0.3) / 3 * SLOW
            most = max(M, len(rows) // 8) if network else MOST
            return np.clip(np.sqrt(flops / (2 * len(rows) + 3000)), 128, min(MOST, most))

        return self._plan.count("inducing inputs", decided)

    def _last_word(self, look, found):
        """The first candidate instead, unless rows that nothing has seen prefer the other by two standard errors."""
        course, first = self._course, self._course.first
        if look.candidate == first.candidate:
            return look, found
        other = judged(first.hyper, first.scale, self._units(course.rows, first), course.held, M)
        last, densities = course.last, []
        for scale, one in ((look.scale, found), (first.scale, other)):
            mean, var_f = one.collapsed.predict(scale.X(last.X))
            a, c = one.factors
            var = a * var_f + c * one.collapsed.noise
            densities.append(log_densities(mean, var, last.y, last.weights))
        better = better_by(*densities, last.weights)
        means = [np.average(density, weights=last.weights) for density in densities]
        replaces = better > BETTER
        course.say(
            f"{look.candidate if replaces else first.candidate}, because on {len(last)} rows seen"
            f" once {look.candidate} has log density {means[0]:.3f} and {first.candidate}"
            f" {means[1]:.3f}: {better:+.1f} standard errors"
        )
        return (look, found) if replaces else (first, other)

    def _on_all(self, look, collapsed, factors):
        """``handed_over`` of all rows."""
        rows = self._units(self._rows, look)
        Z = collapsed.Z
        if unique_rows.are_the_rows(Z, look.scale.X(self._course.rows.X)):
            Z = unique_rows.distinct(rows.X)[0]
        return handed_over(collapsed, Z, factors, rows)

    def _under_tails(self, svgp, look, found):
        """The model under Student-t noise, where its tails are heavy and held-out rows prefer it by two standard errors."""
        course, held = self._course, self._course.held
        X, rows = look.scale.X(held.X), self._units(course.rows, look)
        mean, var_f = found.collapsed.predict(X)
        noise = student_noise(held.y - mean, found.factors[0] * var_f, held.weights)
        if noise is None:
            return svgp
        Z, rng = found.collapsed.Z, np.random.default_rng(3)
        try:
            gaussian, _ = handed_over(found.collapsed, Z, found.factors, rows)
            start, _ = handed_over(found.collapsed, Z, (1.0, 1.0), rows)
            heavy = with_tails(start, noise, rows, self._plan, rng)
            if heavy is None:
                return svgp
            better, by_moments = gains(heavy, gaussian, X, held.y, held.weights)
            taken = better > BETTER and by_moments > -BETTER
            if taken:
                start, _ = self._on_all(look, found.collapsed, (1.0, 1.0))
                everything = self._units(self._rows, look)
                svgp = with_tails(start, noise, everything, self._plan, rng) or svgp
        except (NotPositiveDefinite, ArithmeticError, ValueError) as error:
            course.say(f"Student-t noise: failed ({str(error).split('. ')[0][:120]})")
            return svgp
        course.say(
            f"Student-t noise with {noise.df:.1f} degrees of freedom: {'taken' if taken else 'not taken'},"
            f" {better:+.1f} standard errors on held-out rows, {by_moments:+.1f} by mean and variance"
        )
        return svgp


def scaled(covariance, factor):
    """The covariance times a factor."""
    if isinstance(covariance, OnFeatures):
        return replace(covariance, covariance=scaled(covariance.covariance, factor))
    return replace(covariance, variance=covariance.variance * factor)


def handed_over(collapsed, Z, factors, rows):
    """``(svgp, (a, c))``: ``predict_f`` of it has the mean of the collapsed posterior of ``rows``, and a times its variance.

    A model of variance a s under jitter 1e-6 has the factor sqrt(a) L of the one of variance s under
    jitter 1e-6 / a. With its whitened mean over sqrt(a), and the same whitened factor, means are
    equal and variances a times as large. Where 1e-6 / a is not positive definite, a is 1; where that
    is not either, inducing inputs are left out, and noise is added.
    """
    a, c = factors
    for factor, inducing, noise in _tries(collapsed, Z, a):
        try:
            return _multiplied(collapsed, inducing, noise, (factor, c), rows), (factor, c)
        except NotPositiveDefinite as error:
            failed = error
    raise failed


def _tries(collapsed, Z, a):
    """A factor, inducing inputs and noise: all as they are, then the factor 1, then fewer inputs and more noise."""
    n = collapsed.noise
    yield a, Z, n
    if a != 1:
        yield 1.0, Z, n
    k = of_features(collapsed.covariance)
    while len(Z) > FEWEST:
        Z, n = greedy_variance_inducing(Z, len(Z) // 2, k), 10 * n
        yield 1.0, Z, n


def _multiplied(collapsed, Z, n, factors, rows):
    """The model with factors (a, c), if it predicts at the default jitter."""
    a, c = factors
    sgpr = SGPR(scaled(collapsed.covariance, collapsed.s), Z, n)
    jitter = DEFAULT_JITTER[np.dtype(np.float64)] / a
    svgp = optimal_svgp(sgpr, rows.X, rows.y, jitter=jitter, weights=rows.weights)
    q = Whitened(svgp.posterior.mean / np.sqrt(a), svgp.posterior.scale_tril)
    noise = replace(svgp.likelihood, variance=n * c)
    covariance = scaled(svgp.covariance, a)
    svgp = replace(svgp, covariance=covariance, posterior=q, likelihood=noise)
    predict_f(svgp, rows.X[:1])
    return svgp
