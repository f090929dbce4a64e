"""The search for real-valued targets: from the best look to a model of all rows."""

import warnings
from typing import Any, NamedTuple

import numpy as np

from ...bounds.mixture import Mixture
from ...bounds.svgp import SVGP
from ...collapsed.sgpr import SGPR
from ...covariances import OnFeatures
from ...errors import NotPositiveDefinite, VarianceClampWarning
from ...inducing import unique_rows
from ...likelihoods import Gaussian
from ...near.model import VIF
from ...runtime import tuning
from ..averages import DRAWS, ROWS, average, flops_of
from .collapsed_posterior import M, are_rows, density_of, make_svgp, posterior_of, score_posterior
from .held_out_density import (
    BETTER,
    better_by,
    factor_of,
    factors_of,
    gains,
    log_densities,
    mix,
    stack,
    steps_of,
    student_noise,
    train_with_tails,
)
from .left_out import rmse_and_nlpd
from .near_rows import Detailed, best_noise
from .plan import RATE
from .race import FAILURES, Race, clusters_of, reason
from .rows import SearchRows, scale_rows
from .varying_noise import (
    FEWEST,
    LEAST,
    WORK,
    cross_fit,
    fit_log_factor,
    precisions,
    weigh,
    with_varying_noise,
)

# of a mixture: the smallest share, other candidates, nats by which they can be behind
LEAST_SHARE, OTHERS, BEHIND = 0.1, 3, 0.5
END_PART = 0.15  # of the time, for noise that varies and a mixture, at most
MOST = 1024  # inducing inputs of the last posterior
GAIN = 0.35  # nats that they give to a process, at most
SLOW = 3e10  # its operations per second


class Mixed(NamedTuple):
    """Looks, their ``ScoredPosterior``s, and their shares of a mixture; its description."""

    looks: Any
    scored: Any
    shares: Any
    names: str


class FromLook(Race):
    """The end of a search for real-valued targets."""

    def __init__(self, *given):
        super().__init__(*given)
        self._exact_looks = {}  # names of exact processes, and what leaves one row out

    def answer(self, interrupted):
        if self.held_out is None or not self.looks:
            rows = scale_rows(self.rows, self.best.scale)
            count = M if self.rows.labels is None else self._largest(rows, self.best)
            collapsed = posterior_of(self.best.model, rows, count, tune=not self.constant)
            svgp, _ = self._train_on_all(self.best, collapsed, self.best.factors)
            return svgp if interrupted else self._average(svgp, self.best), self.best
        look, found = self._best(interrupted)
        mixed = None
        if not interrupted:
            look, found = self._final(look, found)
            if self.rows.labels is not None:
                mean, var_f = found.collapsed.predict(look.scale.X(self.last.X))
                a, c = found.factors
                var = a * var_f + c * found.collapsed.noise
                self.tell_scores(len(self.last), *rmse_and_nlpd(self.last, mean, var), "seen once")
            mixed = self._mixed(look, found)
            # all is decided, so rows that were used once can serve, too
            found = found._replace(factors=self._factors(found.collapsed, look))
            varied = self._try_varying(look, found, mixed)
            if varied is not None:
                self.say(f"model: {look.candidate}, noise that varies, all rows")
                return varied, look
        svgp, factors = self._train_on_all(look, found.collapsed, found.factors)
        unusual = tuning.current.unusual_factor
        for name, factor in zip(("variance of f", "noise"), factors, strict=True):
            if not 1 / unusual <= factor <= unusual:
                self.say(f"held-out rows multiply the {name} by {factor:.2g}")
        effect = getattr(look.model, "effect", 0.0)  # which natural steps would forget
        if not interrupted and isinstance(svgp, SVGP) and not effect:
            with warnings.catch_warnings():  # rounding of a trial is no news
                warnings.simplefilter("ignore", VarianceClampWarning)
                svgp = self._try_tails(svgp, look, found)
        described = f"{look.candidate}, {len(svgp.inducing)} inducing inputs"
        if mixed is not None and isinstance(svgp.likelihood, Gaussian):
            try:
                svgp, described = self._train_mixture(svgp, look, mixed)
            except FAILURES as error:
                self.say(f"mixture: failed ({reason(error)})")
        elif not interrupted and isinstance(svgp.likelihood, Gaussian):
            svgp = self._average(svgp, look)
        self.say(f"model: {described}, all rows")
        return svgp, look

    def _average(self, model, look):
        """Return an average over the parameters of an exact process on few rows, or ``model``."""
        few = len(self.whole) <= ROWS and self.rows.labels is None
        if not (self._averages and few) or self.constant or _of_network(look):
            return model
        rows = scale_rows(self.whole, look.scale)
        sgpr = SGPR(look.model.covariance, unique_rows.distinct(rows.X)[0], look.model.noise)
        flops = flops_of(sgpr, len(rows))
        if not self._plan.count("time to average", flops / RATE < self._plan.left):
            self.say("no average over the parameters: no time")
            return model
        try:
            found = average(sgpr, rows.X, rows.y, self._seed, rows.weights)
        except FAILURES as error:
            self.say(f"no average over the parameters ({reason(error)})")
            return model
        self._plan.did(flops)
        self.say(f"average over {DRAWS} draws of the parameters")
        return found

    def _mixed(self, look, found):
        """Return the ``Mixed`` of a look and others, or None if they predict no better together.

        Leave-one-out densities choose the shares of exact processes, held-out rows those of others.
        """
        exact = look.candidate in self._exact_looks
        every, scored, each = [look], [found], 0.0
        for one in self._others(look, exact):
            late, began = not exact and self._plan.left <= each, self._plan.spent
            if self._plan.count("no time to mix", late):
                break
            try:
                scored.append(self._score_look(one))
            except NotPositiveDefinite:
                continue
            every.append(one)
            each = self._plan.spent - began
        if len(every) < 2:
            return None
        if exact:
            chosen = tested = np.stack([self._exact_looks[one.candidate].density for one in every])
            choosing = testing = self.rows
        else:
            choosing, testing = self.held_out, self.last
            chosen = np.stack([one.density for one in scored])
            tested = np.stack([density_of(one, look.scale, testing) for one in scored])
        shares = stack(chosen, choosing.weights)
        at = [int(k) for k in np.argsort(-shares) if shares[k] > LEAST_SHARE]
        if len(at) < 2:
            return None
        shares = stack(chosen[at], choosing.weights)
        given = testing.weights, clusters_of(testing)
        better = better_by(mix(tested[at], shares), tested[0], *given)
        parts = zip(at, shares, strict=True)
        names = " and ".join(f"{100 * share:.0f} % {every[k].candidate}" for k, share in parts)
        self.say(f"mixture of {names}: {better:+.1f} standard errors over {look.candidate}")
        if better <= BETTER or not self._has_time_for([scored[k] for k in at if k]):
            return None
        return Mixed([every[k] for k in at], [scored[k] for k in at], shares, names)

    def _reserve(self):
        """Return the seconds reserved for the end, for noise that varies and a mixture, too."""
        N = len(self.whole)
        size = N if self._exact_looks else M
        work = WORK + OTHERS * 4 * size**2 * (N + size)
        return super()._reserve() + min(work / RATE, END_PART * self._plan.seconds)

    def _has_time_for(self, posteriors):
        """Whether there is time to train these posteriors on all rows."""
        sizes = [len(one.collapsed.Z) for one in posteriors]
        flops = sum(4 * M**2 * (len(self.whole) + M) for M in sizes)
        return bool(self._plan.count("time to mix", flops / RATE < self._plan.left))

    def _train_mixture(self, model, look, mixed):
        """Return the ``Mixture`` of a trained model and others, and its description."""
        models = []
        for one, found in zip(mixed.looks, mixed.scored, strict=True):
            if one is not look:
                factors = self._factors(found.collapsed, one)
                models.append(self._train_on_all(one, found.collapsed, factors)[0])
            else:
                models.append(model)
        shares = tuple((mixed.shares / mixed.shares.sum()).tolist())
        return Mixture(tuple(models), shares=shares), f"mixture of {mixed.names}"

    def _left_out(self, posterior, look):
        """Return rows, in the units of a look, that its posterior has not seen.

        And mean and variance of f there. Of an exact process also those that were left out one by
        one: few rows seldom show outliers.
        """
        rows = scale_rows(self.held_out.and_more(self.last), look.scale)
        mean, var_f = posterior.predict(rows.X)
        if look.candidate in self._exact_looks:
            left = self._exact_looks[look.candidate]
            rows = rows.and_more(left.rows)
            mean, var_f = np.append(mean, left.mean), np.append(var_f, left.var_f)
        return rows, mean, var_f

    def _factors(self, posterior, look):
        """Return the factors by which all rows that are left out multiply variances."""
        rows, mean, var_f = self._left_out(posterior, look)
        given = rows.y, rows.weights, self.held_out.least_noise
        if isinstance(posterior, Detailed):
            return (factor_of(mean, var_f, posterior.noise, *given),) * 2
        return factors_of(mean, var_f, posterior.noise, *given)

    def _densities(self, look, found):
        """Return the log densities (N,) of all rows that are left out."""
        rows, mean, var_f = self._left_out(found.collapsed, look)
        a, c = found.factors
        return log_densities(mean, a * var_f + c * found.collapsed.noise, rows.y, rows.weights)

    def _try_varying(self, look, found, mixed):
        """Return the model of a look with noise that varies, if that predicts better, else None.

        By two standard errors on the rows that are left out; each has its noise from the others.
        """
        in_memory = isinstance(self.whole.X, np.ndarray) and self.rows.labels is None
        if isinstance(found.collapsed, Detailed) or not in_memory:
            return None
        rows, mean, var_f = self._left_out(found.collapsed, look)
        late = WORK / RATE > self._plan.left
        if len(rows) < FEWEST or self._plan.count("no time for noise that varies", late):
            return None
        a, c = found.factors
        var = a * var_f + c * found.collapsed.noise
        squares = np.maximum(np.square(rows.y - mean) / var, LEAST)
        try:
            squares = SearchRows(rows.X, squares, rows.weights)
            model = fit_log_factor(squares, self._plan)
            var = var * cross_fit(model, squares, self._plan)
            if mixed is None:
                others = self._densities(look, found)
            else:
                pairs = zip(mixed.looks, mixed.scored, strict=True)
                others = mix(np.stack([self._densities(*pair) for pair in pairs]), mixed.shares)
            density = log_densities(mean, var, rows.y, rows.weights)
            better = better_by(density, others, rows.weights)
            taken = better > BETTER
            if taken:
                svgp, _ = self._train_on_all(look, found.collapsed, found.factors, model)
                model = with_varying_noise(svgp, model)
        except FAILURES as error:
            self.say(f"noise that varies: failed ({reason(error)})")
            return None
        self.say(
            f"noise that varies: {'taken' if taken else 'not taken'}, {better:+.1f} standard errors"
            " on rows left out"
        )
        return model if taken else None

    def _others(self, look, exact):
        """Return the last looks at other candidates in the same units, the best first."""
        others = [one for one in self._of_each() if one.scale is look.scale]
        others = [one for one in others if one.candidate != look.candidate]
        if exact:
            return [one for one in others if one.candidate in self._exact_looks]
        return [one for one in others if one.score > look.score - BEHIND][:OTHERS]

    def _of_each(self):
        """Return the best look at each candidate, the best first."""
        best = {}
        for one in sorted(self.looks, key=lambda one: -one.score):
            best.setdefault(one.candidate, one)
        return list(best.values())

    def _score_look(self, look, count=M):
        """Return the ``ScoredPosterior`` of a look with ``count`` inducing inputs."""
        if isinstance(look.model, VIF):
            return best_noise(look.model, look.scale, self.held_out)
        rows = scale_rows(self.rows, look.scale)
        return score_posterior(look.model, look.scale, rows, self.held_out, count)

    def _best(self, interrupted):
        """Return the best look and its ``ScoredPosterior``; M inducing inputs, or more by time.

        A process that a network is ahead of by less than more inducing inputs can give is judged
        with these, too.
        """
        for look in sorted(self.looks, key=lambda look: -look.score):
            try:
                found = self._at_its_end(look, interrupted)
                break
            except NotPositiveDefinite as error:
                failed = error
        else:
            raise failed
        rival = None if interrupted or not _of_network(look) else self._rival(look)
        if rival is not None:
            try:
                other = self._at_its_end(rival, interrupted)
            except NotPositiveDefinite:
                return look, found
            if other.score > found.score:
                return rival, other
        return look, found

    def _rival(self, look):
        """Return the best look at a process that is close behind a network, or None."""
        processes = [one for one in self._of_each() if not _of_network(one)]
        processes = [one for one in processes if not isinstance(one.model, VIF)]
        return next((one for one in processes if one.score > look.score - GAIN), None)

    def _at_its_end(self, look, interrupted):
        """Return the best ``ScoredPosterior`` of a look, with M inducing inputs and with more."""
        if isinstance(look.model, VIF):
            found = self._score_look(look)
            self.say(
                f"{look.candidate}, noise {found.collapsed.noise:.3g}: held-out log density"
                f" {found.score:.3f}, RMSE {found.rmse:.4g}"
            )
            return found
        rows = scale_rows(self.rows, look.scale)
        counts = {M} if interrupted or self._learnt(look) else {M, self._largest(rows, look)}
        found, failed = [], None
        for count in sorted(counts):
            try:
                one = score_posterior(look.model, look.scale, rows, self.held_out, count)
            except NotPositiveDefinite as error:
                failed = error
                continue
            found.append(one)
            self.say(
                f"{look.candidate} with {len(one.collapsed.Z)} inducing inputs: held-out log"
                f" density {one.score:.3f}, RMSE {one.rmse:.4g}"
            )
        if not found:
            raise failed
        return max(found, key=lambda one: one.score)

    def _learnt(self, look):
        """Whether a look has learnt more than M inducing inputs."""
        return look.model.inducing is not None and len(look.model.inducing) > M

    def _largest(self, rows, look):
        """Return the number of inducing inputs that the remaining time allows."""
        network = _of_network(look)

        def decide():
            flops = max(self._plan.left - 0.5, 0.3) / 3 * SLOW
            most = max(M, len(rows) // 8) if network else MOST
            return np.clip(np.sqrt(flops / (2 * len(rows) + 3000)), 128, min(MOST, most))

        return self._plan.count("inducing inputs", decide)

    def _final(self, look, found):
        """Choose between the winner, with the posterior ``found``, and the first candidate."""
        both = {look.candidate: found}

        def densities(one):
            if one is not look:
                both[one.candidate] = self._score_look(one)
            return density_of(both[one.candidate], one.scale, self.last)

        look = self._last_word(look, densities)
        return look, both[look.candidate]

    def _train_on_all(self, look, collapsed, factors, log_factor=None):
        """Return ``make_svgp`` of all rows; ``log_factor`` changes their noise."""
        rows = scale_rows(self.whole, look.scale)
        if log_factor is not None:
            rows = weigh(rows, precisions(log_factor, rows.X))
        if isinstance(collapsed, Detailed):
            return collapsed.of_all(factors, rows, self._plan), factors
        Z = collapsed.Z
        if are_rows(Z, scale_rows(self.rows, look.scale)):
            Z = unique_rows.distinct(rows.X)[0]
        return make_svgp(collapsed, Z, factors, rows)

    def _try_tails(self, svgp, look, found):
        """Try Student-t noise if the tails of residuals are heavy.

        It replaces Gaussian noise if held-out rows prefer it by two standard errors.
        """
        held_out = self.held_out
        X, rows = look.scale.X(held_out.X), scale_rows(self.rows, look.scale)
        mean, var_f = found.collapsed.predict(X)
        noise = student_noise(held_out.y - mean, found.factors[0] * var_f, held_out.weights)
        if noise is None:
            return svgp
        Z = found.collapsed.Z
        try:
            gaussian, _ = make_svgp(found.collapsed, Z, found.factors, rows)
            start, _ = make_svgp(found.collapsed, Z, (1.0, 1.0), rows)
            steps = steps_of(start, noise, rows, self._plan)
            if steps is None:
                return svgp
            heavy = train_with_tails(start, noise, rows, steps, self._plan)
            better, by_moments = gains(heavy, gaussian, X, held_out.y, held_out.weights)
            taken = better > BETTER
            if taken:
                start, _ = self._train_on_all(look, found.collapsed, (1.0, 1.0))
                svgp = train_with_tails(
                    start, noise, scale_rows(self.whole, look.scale), steps, self._plan
                )
        except FAILURES as error:
            self.say(f"Student-t noise: failed ({reason(error)})")
            return svgp
        self.say(
            f"Student-t noise with {noise.df:.1f} degrees of freedom:"
            f" {'taken' if taken else 'not taken'}, {better:+.1f} standard errors on held-out rows,"
            f" {by_moments:+.1f} by mean and variance"
        )
        return svgp


def _of_network(look):
    return isinstance(look.model.covariance, OnFeatures)
