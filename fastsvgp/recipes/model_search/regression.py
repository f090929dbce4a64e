"""The search for real-valued targets: its candidates."""

from dataclasses import replace

import numpy as np

from ...errors import NotPositiveDefinite
from ...inducing import kmeans
from ...runtime import tuning
from ..scaling import constant
from .candidates import DEEP, NOISE, RELU, WIDE, WIDER, Deep, Hyper
from .collapsed_posterior import ROWS, M, density_of, score_posterior
from .held_out_density import BETTER, better_by
from .left_out import (
    EFFECT,
    PLAIN,
    RACED,
    ByEvidence,
    blocks_of,
    covariances_for_groups,
    covariances_for_later,
    cross_validate,
    factors_and_scores,
    few_labels,
    inducing_for,
    leave_out,
)
from .near_rows import FEWEST, OF_ROW, Near, score_near
from .plain_processes import Exact, Plain, Relevant, Scarce, smooth_on
from .race import FAILURES, FIRST, reason
from .regression_answer import FromLook
from .rows import pooled_variance
from .structures import cycles, structures

OTHERS_PART = 0.2  # of the time, which structures leave to networks and near rows
STRUCTURE = 0.1  # of the time, for an exact process of another structure
EXACT_PART = 0.3  # of the time, for an exact process that would take more than half of the rest
BY_BOUND = 0.35  # of the time, for each of two exact processes on few rows
HIGHER = 3.0  # nats by which a linear part has to raise the bound
LINE = 1e3  # variance of a smooth function that approaches a line
QUIET = 0.5  # noise variance below which a linear function explains standardised targets
SCARCE = 0.25  # part of the time for minibatches if L-BFGS found nothing
LONG = 150  # seconds from which one network is larger
LATER, LAST_ROWS = 6000, 15_000  # rows for L-BFGS of a plain process: in the race, at the end
RELEVANT = "minibatches from relevant lengthscales"
LEAST_RELEVANCE, IRRELEVANT, SHARE = 0.01, 0.3, 0.2


class Regression(FromLook):
    """A search for real-valued targets, which are standardised."""

    def __init__(self, *given):
        super().__init__(*given)
        if self.held_out is not None:
            least = pooled_variance(self.rows)
            self.held_out = replace(self.held_out, least_noise=least)
        self.constant = bool(constant(np.ptp(self.rows.y), self.rows.y))

    def rehearsal_candidates(self):
        data, rng = ("", *self._data("raw")), self._rng()
        networks = [Deep(*data, rng, one, M=8) for one in (WIDE, RELU)]
        plain = Plain(*data, rng)
        return [Exact(*data), plain, *networks, Near("", plain, self._plan, 8)]

    def _score_at(self, candidate):
        if isinstance(candidate, Near):
            found = score_near(candidate.model, candidate.scale, self.held_out)
            self._plan.did(OF_ROW * len(self.held_out))
            return found.score, found.rmse, found.factors
        rows = candidate.rows.draw(ROWS, np.random.default_rng(1))
        found = score_posterior(candidate.model, candidate.scale, rows, self.held_out, M)
        self._plan.did(3 * M**2 * len(rows) + 20 * M**3 + 4 * M**2 * len(self.held_out), 10)
        return found.score, found.rmse, found.factors

    @property
    def _few(self):
        return len(self.rows) <= tuning.current.exact_rows

    def _candidates(self):
        T = self._plan.seconds
        plain, inputs = self._inputs(T)
        if self._few:
            self._exact(T, plain, inputs)
        networks = [*self._networks(plain, inputs, T)] if self._takes_networks else []
        if self._few:
            return [plain, *networks, *self._near(plain, inputs, T)]
        others = [*self._others_of(plain, inputs), *self._near(plain, inputs, T)]
        return [plain, *self._by_labels(), *networks, *others, *self._relevant(T)]

    def _by_labels(self):
        """Return processes for new groups, or for the future, that train on some of many rows."""
        if self.rows.labels is None:
            return []
        scale, rows = self._data("raw")
        some = rows.draw(tuning.current.exact_rows, np.random.default_rng(0))
        return [
            ByEvidence(name, scale, rows, covariance, effect=effect, most=RACED)
            for name, covariance, effect in self._covariances(some)
            if name != PLAIN
        ]

    def _covariances(self, rows):
        """Yield names, covariances and effects for what will be new, the simplest first."""
        effect = 0.0 if rows.later else EFFECT
        if rows.later:
            found = covariances_for_later(rows, self.column)
        else:
            found = covariances_for_groups(rows)
        for name, covariance in found:
            yield name, covariance, effect

    def _others_of(self, plain, inputs):
        """Yield sparse processes of other structures, from the plain one."""
        scale, rows = self._data(inputs)
        some = rows.draw(LATER, np.random.default_rng(0))
        found_nothing = self._score(plain) <= tuning.current.useless_density
        if not isinstance(plain, Plain) and not found_nothing:
            return
        if found_nothing:
            hyper = Hyper(smooth_on(some.X), NOISE, kmeans(some.X, Plain.M, rng=0))
            found = cycles(hyper.covariance, some.X, some.y)
        else:
            hyper = plain.model
            found = structures(hyper.covariance, some.X)
        for label, covariance in found:
            start = hyper._replace(covariance=covariance)
            yield Plain(f"{label}, {inputs} inputs", scale, rows, self._rng(), LATER, start)

    def _near(self, plain, inputs, T):
        """Return a process with near rows, if rows are many and in memory."""
        if len(self.rows) < FEWEST or not isinstance(self.rows.X, np.ndarray):
            return []
        count = Plain.M if T >= LONG else Plain.M // 2
        return [Near(f"near rows, {inputs} inputs", plain, self._plan, count)]

    def _first(self, candidates):
        effects = [one for one in candidates if isinstance(one, ByEvidence) and not one.rows.later]
        if effects:  # the cautious choice for new groups
            return self._last(max(effects, key=self._score))
        # an exact process has run before
        return self._last(candidates[-1]) if candidates[-1].name == RELEVANT else self.first

    def _run_without_race(self):
        T = self._plan.seconds
        if self.held_out is None and self.rows.labels is not None and not self.constant:
            return self._judge_by_labels(T)
        why = "few distinct rows" if self.held_out is None else self._too_brief
        why = "all targets are equal, which says nothing about noise" if self.constant else why
        raw = self._data("raw")
        exact = self._few and self.held_out is None
        name = "exact" if exact else "plain, raw inputs"
        self.say(f"{name}, without a race: {why}")
        if exact and not self.constant:
            candidate = self._exact_by_bound(name, raw, T)
        else:
            candidate = Exact(name, *raw) if exact else Plain(name, *raw, self._rng())
            if not self.constant:
                candidate.take(self._plan, 0.7 * T)
        self.best = self._look_of(candidate, self._plan.spent, np.nan, np.nan, (1.0, 1.0))

    def _exact_by_bound(self, name, raw, T):
        """Train an exact process with a linear part, and one without unless that is all there is.

        Few rows do not tell a linear part from a smooth function: it has to raise the bound by
        ``HIGHER``, unless the smooth function alone approaches a line.
        """
        linear = Exact(f"{name}, with a linear part", *raw)
        linear.take(self._plan, BY_BOUND * T)
        found = linear.model
        if found.covariance.parts[1].variance <= found.noise < QUIET:
            self.say("a linear function explains everything but noise")
            return linear
        smooth = Exact(name, *raw, smooth_on(raw[1].X))
        smooth.take(self._plan, BY_BOUND * T)
        self.say(f"log evidence {smooth.bound:.1f}, with a linear part {linear.bound:.1f}")
        line = smooth.model.covariance.variance > LINE
        return linear if line or linear.bound > smooth.bound + HIGHER else smooth

    def _judge_by_labels(self, T):
        """Train exact processes; the best one where labels, or the future, are left out.

        For the future, a simpler one is replaced by two standard errors only, and the winner trains
        on all rows in the end.
        """
        scale, rows = self._data("raw")
        rows = rows.draw(tuning.current.exact_rows, self._rng())
        later, best = rows.later, None
        early = rows.some(blocks_of(rows) == 0) if later else rows
        for name, covariance, effect in self._covariances(early):
            one = ByEvidence(name, scale, early, covariance, effect=effect)
            try:
                seconds = BY_BOUND * self._plan.left / (2 if few_labels(rows) else 1)
                one.take(self._plan, seconds)
                left = cross_validate(one, rows, self._plan, seconds)
            except FAILURES as error:
                self.error = error
                self.say(f"{name}: failed ({reason(error)})")
                continue
            factors, rmse, nlpd = factors_and_scores(one.model, left)
            score = float(np.average(left.density, weights=left.rows.weights))
            look = self._look_of(one, self._plan.spent, score, rmse, factors)
            self.looks.append(look)
            better = np.inf
            if best is not None:
                better = better_by(left.density, best[1].density, left.rows.weights, left.clusters)
            self.say(
                f"{name}: log density {score:.3f}, RMSE {rmse:.4g} of"
                f" {len(left.rows)} rows that are left out"
                + ("" if best is None else f", {better:+.1f} standard errors")
            )
            if better > (BETTER if later else 0.0):
                best, self.best = (one, left, nlpd), look
        if best is None:
            raise self.error
        one, left, nlpd = best
        self.tell_scores(len(left.rows), self.best.rmse, nlpd, "left out in turn")
        if later:
            one.rows = rows
            one.take(self._plan, BY_BOUND * self._plan.left)
        model = inducing_for(one.model, self._data("raw")[1])
        self.best = replace(self.best, model=model)

    def _inputs(self, T):
        """Return a plain process on the better inputs, raw or rank, and the name of these."""

        def plain(name, inputs):
            return Plain(name, *self._data(inputs), self._rng())

        chosen, inputs = self._better_inputs(plain)
        chosen.rows_at_once = LATER
        if self._score(chosen) < tuning.current.useless_density:
            scarce = Scarce(f"minibatches, {inputs} inputs", *self._data(inputs), self._rng())
            self.say("L-BFGS found nothing, so minibatches get a quarter of the time")
            self._go(scarce, SCARCE * T)
            if self._score(scarce) > self._score(chosen):
                chosen = scarce
        return chosen, inputs

    def _train_on(self, winner, seconds):
        if isinstance(winner, Plain):
            winner.rows_at_once = LAST_ROWS
        return super()._train_on(winner, seconds)

    def _exact(self, T, plain, inputs):
        """Train exact processes on raw inputs, and on ranks if these are better.

        They begin at the plain process, if that has found anything.
        """
        start, sketch = {}, None
        if isinstance(plain, Plain) and self._score(plain) > tuning.current.useless_density:
            hyper = plain.model
            start = {"covariance": hyper.covariance, "noise": hyper.noise}
            if len(hyper.inducing) < len(self.rows):
                sketch = hyper.inducing
        for name in dict.fromkeys(("raw", inputs)):
            exact = Exact(f"exact, {name} inputs", *self._data(name), **start)
            self._go(exact, EXACT_PART * T)
            look = self._last(exact)
            if look is not None and (self.first is None or self._replaces(look)):
                self.first, best = look, exact
        if self.first is not None:
            self._structures(T, best, sketch)

    def _structures(self, T, plain, sketch):
        """Train exact processes of other structures, from the plain one.

        The first candidate is then the one with the best leave-one-out density, if it is better
        than a simpler one by two standard errors.
        """
        hyper, rows = plain.model, plain.rows
        left = self._leave_out(plain)
        if left is None:
            return
        best = left.density
        others = cycles(hyper.covariance, rows.X, rows.y - left.mean)
        for label, covariance in (*others, *structures(hyper.covariance, rows.X)):
            late = self._plan.left < OTHERS_PART * T
            if self._plan.count("no time for a structure", late):
                break
            exact = Exact(
                f"{plain.name}, {label}", plain.scale, rows, covariance, hyper.noise, sketch
            )
            look = self._go(exact, STRUCTURE * T)
            if look is None:
                continue
            left = self._leave_out(exact)
            if left is None:
                continue
            better = better_by(left.density, best, rows.weights)
            self.say(
                f"{look.candidate}: {better:+.1f} standard errors of leave-one-out densities over"
                f" {self.first.candidate}"
            )
            if better > BETTER:
                self.first, best = look, left.density

    def _leave_out(self, exact):
        """Keep and return the ``LeftOut`` of an exact process; None where it has no factor."""
        try:
            left = leave_out(exact.model, exact.rows, self._plan)
        except NotPositiveDefinite as error:
            self.say(f"{exact.name}: no row can be left out ({reason(error)})")
            return None
        self._exact_looks[exact.name] = left
        return left

    def _replaces(self, look):
        """Whether a look is better than the first candidate by two standard errors.

        All held-out rows count, because neither candidate was selected on any of them.
        """
        held_out, densities = self.held_out.and_more(self.last), []
        for one in (look, self.first):
            _, rows = self._data("raw" if one is self.first else "rank")
            found = score_posterior(one.model, one.scale, rows, self.held_out, M)
            densities.append(density_of(found, one.scale, held_out))
        better = better_by(*densities, held_out.weights)
        self.say(
            f"{look.candidate} against {self.first.candidate}: {better:+.1f} standard errors on"
            f" {len(held_out)} held-out rows"
        )
        return better > BETTER

    def _networks(self, plain, inputs, T):
        """Yield networks on these inputs."""
        found = self._score(plain) > tuning.current.useless_density
        lengthscales = plain.lengthscales()
        relevance = np.clip(3 * lengthscales.min() / lengthscales, LEAST_RELEVANCE, 1.0)
        sparse = found and np.mean(relevance < IRRELEVANT) > SHARE
        if sparse:
            self.say(
                f"{int(np.sum(relevance >= IRRELEVANT))} of {len(relevance)} inputs matter, so a"
                " network starts with the others small"
            )
        large = T >= LONG
        first = WIDER if large else WIDE
        chosen = [(first, None, ""), (RELU, None, "")]
        chosen.append((WIDE, relevance, ", by relevance") if sparse else (DEEP, None, ""))
        for architecture, by, note in chosen:
            sizes = {"M": 256, "batch": 512} if large and architecture is first else {}
            yield Deep(
                f"network {architecture.name}{note}, {inputs} inputs",
                *self._data(inputs),
                self._rng(),
                architecture,
                weighting=by,
                **sizes,
            )

    def _relevant(self, T):
        """Return ``[Relevant]`` if its start takes a small part of the time, else an empty list."""
        candidate = Relevant(RELEVANT, *self._data("raw"), self._rng())
        cost = candidate.cost(self._plan)
        possible = self._plan.count(f"{RELEVANT}: can begin", cost < FIRST * T)
        if not possible:
            self.say(f"{RELEVANT}: left out, because its start takes too large a part of the time")
        return [candidate] * possible
