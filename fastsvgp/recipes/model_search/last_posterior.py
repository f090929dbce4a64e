"""From the best look to a model of all rows.

The last posterior is computed, the factors are put into the model, and heavy tails are tried.
"""

import numpy as np

from ...bounds.predict import predict_f
from ...bounds.svgp import SVGP
from ...check import DEFAULT_JITTER
from ...collapsed.sgpr import SGPR, optimal_svgp
from ...covariances import OnFeatures, Product, Sum
from ...errors import NotPositiveDefinite
from ...inducing import greedy_variance, unique_rows
from ...likelihoods import Gaussian
from ...posteriors import Whitened
from ...records import replace
from ...runtime import tuning
from .collapsed_posterior import Collapsed, of_features, sums
from .held_out_density import BETTER
from .looks import M, at_rows, density_of, judged, posterior_of
from .mapped_inputs import scaled_rows
from .race import reason
from .student_noise import gains, steps_of, student_noise, with_tails

MOST = 1024
SLOW = 3e10  # operations per second of the last posterior
FEWEST = 16  # inducing inputs below which no more are left out


class LastPosterior:
    """The end of a search after ``Stages``; ``rows`` are all rows, with unscaled inputs."""

    def __init__(self, stages, rows, plan):
        self._stages, self._rows, self._plan = stages, rows, plan

    def answer(self, interrupted):
        """Return ``(svgp, look)``: the model of all rows, and its look."""
        stages = self._stages
        if stages.held is None or not stages.looks:
            rows = self._units(stages.rows, stages.best)
            collapsed = posterior_of(stages.best.hyper, rows, M, tune=not stages.constant)
            svgp, _ = self._on_all(stages.best, collapsed, (1.0, 1.0))
            return svgp, stages.best
        look, found = self._best(interrupted)
        if not interrupted and stages.first is not None:
            look, found = self._last_word(look, found)
        svgp, factors = self._on_all(look, found.collapsed, found.factors)
        unusual = tuning.current.unusual_factor
        for name, factor in zip(("variance of f", "noise"), factors, strict=True):
            if not 1 / unusual <= factor <= unusual:
                stages.say(f"held-out rows multiply the {name} by {factor:.2g}")
        if not interrupted:
            svgp = self._under_tails(svgp, look, found)
        stages.say(f"model: {look.candidate}, {len(svgp.inducing)} inducing inputs, all rows")
        return svgp, look

    def _units(self, rows, look):
        """Convert rows to the units of the look's model."""
        return scaled_rows(rows, look.scale)

    def _best(self, interrupted):
        """Return ``(look, Judged)`` of the best look, with M inducing inputs or more, by time."""
        stages = self._stages
        for look in sorted(stages.looks, key=lambda look: -look.score):
            rows = self._units(stages.rows, look)
            counts = {M} if interrupted or self._learnt(look) else {M, self._largest(rows, look)}
            found = []
            for count in sorted(counts):
                try:
                    found.append(judged(look.hyper, look.scale, rows, stages.held, count))
                except NotPositiveDefinite as error:
                    failed = error
                    continue
                one = found[-1]
                stages.say(
                    f"{look.candidate} with {len(one.collapsed.Z)} inducing inputs: held-out log"
                    f" density {one.score:.3f}, RMSE {one.rmse:.4g}"
                )
            if found:
                return look, max(found, key=lambda one: one.score)
        raise failed

    def _learnt(self, look):
        """Whether a look has learnt more than M inducing inputs."""
        return look.hyper.inducing is not None and len(look.hyper.inducing) > M

    def _largest(self, rows, look):
        """Return the number of inducing inputs that the remaining time allows."""
        network = isinstance(look.hyper.covariance, OnFeatures)

        def decided():
            flops = max(self._plan.left - 0.5, 0.3) / 3 * SLOW
            most = max(M, len(rows) // 8) if network else MOST
            return np.clip(np.sqrt(flops / (2 * len(rows) + 3000)), 128, min(MOST, most))

        return self._plan.count("inducing inputs", decided)

    def _last_word(self, look, found):
        """Choose between the winner and the first candidate."""
        stages, first = self._stages, self._stages.first
        if look.candidate == first.candidate:
            return look, found
        other = judged(first.hyper, first.scale, self._units(stages.rows, first), stages.held, M)
        pairs = (found, look), (other, first)
        both = [density_of(one, its.scale, stages.last) for one, its in pairs]
        return (look, found) if stages.last_word(look, both) is look else (first, other)

    def _on_all(self, look, collapsed, factors):
        """Return ``handed_over`` of all rows."""
        rows = self._units(self._rows, look)
        Z = collapsed.Z
        if at_rows(Z, self._units(self._stages.rows, look)):
            Z = unique_rows.distinct(rows.X)[0]
        return handed_over(collapsed, Z, factors, rows)

    def _under_tails(self, svgp, look, found):
        """Try Student-t noise if the tails of residuals are heavy.

        It replaces Gaussian noise if held-out rows prefer it by two standard errors.
        """
        stages, held = self._stages, self._stages.held
        X, rows = look.scale.X(held.X), self._units(stages.rows, look)
        mean, var_f = found.collapsed.predict(X)
        noise = student_noise(held.y - mean, found.factors[0] * var_f, held.weights)
        if noise is None:
            return svgp
        Z = found.collapsed.Z
        try:
            gaussian, _ = handed_over(found.collapsed, Z, found.factors, rows)
            start, _ = handed_over(found.collapsed, Z, (1.0, 1.0), rows)
            steps = steps_of(start, noise, rows, self._plan)
            if steps is None:
                return svgp
            heavy = with_tails(start, noise, rows, steps, self._plan)
            better, by_moments = gains(heavy, gaussian, X, held.y, held.weights)
            taken = better > BETTER and by_moments > -BETTER
            if taken:
                start, _ = self._on_all(look, found.collapsed, (1.0, 1.0))
                svgp = with_tails(start, noise, self._units(self._rows, look), steps, self._plan)
        except (NotPositiveDefinite, ArithmeticError, ValueError) as error:
            stages.say(f"Student-t noise: failed ({reason(error)})")
            return svgp
        stages.say(
            f"Student-t noise with {noise.df:.1f} degrees of freedom:"
            f" {'taken' if taken else 'not taken'}, {better:+.1f} standard errors on held-out rows,"
            f" {by_moments:+.1f} by mean and variance"
        )
        return svgp


def scaled(covariance, factor):
    """Return the covariance times a factor."""
    if isinstance(covariance, OnFeatures):
        return replace(covariance, covariance=scaled(covariance.covariance, factor))
    if isinstance(covariance, Sum):
        return replace(covariance, parts=tuple(scaled(one, factor) for one in covariance.parts))
    if isinstance(covariance, Product):
        first, *others = covariance.parts
        return replace(covariance, parts=(scaled(first, factor), *others))
    return replace(covariance, variance=covariance.variance * factor)


def handed_over(collapsed, Z, factors, rows):
    """Return ``(svgp, (a, c))``: an SVGP with the mean of the collapsed posterior of ``rows``.

    Its variance of f is a times that of the collapsed posterior, its noise c times.

    The model of variance a s at jitter 1e-6 has the factor sqrt(a) L, with L that of the model of
    variance s at jitter 1e-6 / a. If its whitened mean is divided by sqrt(a) and the whitened
    factor is the same, means are equal and variances a times as large. If Kuu is not positive
    definite at jitter 1e-6 / a, a is 1; if it is not at 1e-6 either, inducing inputs are left out
    and noise is added.
    """
    a, c = factors
    for factor, inducing, noise in _tries(collapsed, Z, a):
        try:
            return _multiplied(collapsed, inducing, noise, (factor, c), rows), (factor, c)
        except NotPositiveDefinite as error:
            failed = error
    raise failed


def _tries(collapsed, Z, a):
    """Yield factors a, inducing inputs and noise to try.

    All as they are first, then the factor 1, then fewer inducing inputs and more noise.
    """
    n = collapsed.noise
    yield a, Z, n
    if a != 1:
        yield 1.0, Z, n
    k = of_features(collapsed.covariance)
    while len(Z) > FEWEST:
        Z, n = greedy_variance(Z, len(Z) // 2, k), 10 * n
        yield 1.0, Z, n


def _multiplied(collapsed, Z, n, factors, rows):
    """Make the model with factors (a, c); check that it predicts at the default jitter."""
    a, c = factors
    sgpr = SGPR(scaled(collapsed.covariance, collapsed.s), Z, n)
    jitter = DEFAULT_JITTER[np.dtype(np.float64)] / a
    svgp = _optimum(sgpr, rows, jitter)
    q = Whitened(svgp.posterior.mean / np.sqrt(a), svgp.posterior.scale_tril)
    noise = replace(svgp.likelihood, variance=n * c)
    covariance = scaled(svgp.covariance, a)
    svgp = replace(svgp, covariance=covariance, posterior=q, likelihood=noise)
    predict_f(svgp, rows.X[:1])
    return svgp


def _optimum(sgpr, rows, jitter):
    """Return ``optimal_svgp`` of rows in memory, or of rows on disk."""
    if isinstance(rows.X, np.ndarray):
        return optimal_svgp(sgpr, rows.X, rows.y, jitter=jitter, weights=rows.weights)
    covariance, Z, n = sgpr.covariance, sgpr.inducing, sgpr.noise_variance
    found = sums(covariance, Z, rows.X, rows.y, rows.weights, jitter)
    q = Collapsed(covariance, Z, found, 1.0, n).posterior()
    return SVGP(covariance, Z, q, Gaussian(n))
