"""The stages of a regression search: which candidates run, for how long, and which continue."""

import numpy as np

from ...runtime import tuning
from ..scaling import constant
from .held_out_density import BETTER, better_by
from .looks import Look, M, density_of, judged, look_at, look_of
from .networks import DEEP, RELU, WIDE, WIDER, Deep
from .plain_processes import Exact, Plain, Relevant, Scarce, smooth_on
from .race import FIRST, Race

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


class Stages(Race):
    """A search for a regression; targets are standardised."""

    def __init__(self, rows, *others):
        super().__init__(rows, *others)
        self.constant = bool(constant(np.ptp(rows.y), rows.y))

    def _look_at(self, candidate):
        return look_at(candidate, self.held, self._plan)

    _look_of = staticmethod(look_of)

    def run(self):
        """Run all stages; set ``best``, and ``first``, the look that it has to beat, or None."""
        T, few = self._plan.seconds, len(self.rows) <= tuning.current.exact_rows
        if self.held is None or T < tuning.current.race_seconds or self.constant:
            return self._at_once(T)
        plain, inputs = self._inputs(T)
        if few:
            self._exact(T, inputs)
        candidates = [plain]
        if self._takes_networks:
            candidates += self._networks(plain, inputs, T)
        if not few:
            candidates += self._relevant(T)
        self._finish(self._race(candidates))
        if self.best is None:
            raise self.error
        self._settle({one.name: one for one in candidates if isinstance(one, Deep)})
        if self.first is None and not few:
            self.first = self._last(candidates[-1]) if candidates[-1].name == RELEVANT else None

    def _at_once(self, T):
        """Train one candidate without a race, for few rows or little time."""
        why = (
            "few distinct rows"
            if self.held is None
            else f"less than {tuning.current.race_seconds:g} s"
        )
        why = "all targets are equal, which says nothing about noise" if self.constant else why
        raw = self._data("raw")
        exact = len(self.rows) <= tuning.current.exact_rows and self.held is None
        name = "exact" if exact else "plain, raw inputs"
        self.say(f"{name}, without a race: {why}")
        if exact and not self.constant:
            candidate = self._exact_by_bound(name, raw, T)
        else:
            candidate = Exact(name, *raw) if exact else Plain(name, *raw, self._rng())
            if not self.constant:
                candidate.take(self._plan, 0.7 * T)
        self.best = Look(
            candidate.name, self._plan.spent, candidate.steps, np.nan, np.nan, (1.0, 1.0),
            candidate.hyper(), candidate.scale,
        )  # fmt: skip

    def _exact_by_bound(self, name, raw, T):
        """Train an exact process with a linear part, and one without unless that is all there is.

        Few rows do not tell a linear part from a smooth function: it has to raise the bound by
        ``HIGHER``, unless the smooth function alone approaches a line.
        """
        linear = Exact(f"{name}, with a linear part", *raw)
        linear.take(self._plan, BY_BOUND * T)
        found = linear.hyper()
        if found.covariance.parts[1].variance <= found.noise < QUIET:
            self.say("a linear function explains everything but noise")
            return linear
        smooth = Exact(name, *raw, smooth_on(raw[1].X))
        smooth.take(self._plan, BY_BOUND * T)
        self.say(f"log evidence {smooth.bound:.1f}, with a linear part {linear.bound:.1f}")
        line = smooth.hyper().covariance.variance > LINE
        return linear if line or linear.bound > smooth.bound + HIGHER else smooth

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

    def _exact(self, T, inputs):
        """Train exact processes on raw inputs, and on ranks if these are better."""
        for name in dict.fromkeys(("raw", inputs)):
            exact = Exact(f"exact, {name} inputs", *self._data(name))
            self._go(exact, EXACT_PART * T)
            look = self._last(exact)
            if look is not None and (self.first is None or self._replaces(look)):
                self.first = look

    def _replaces(self, look):
        """Whether a look is better than the first candidate by two standard errors.

        All held-out rows count, because neither candidate was selected on any of them.
        """
        held, densities = self.held.and_more(self.last), []
        for one in (look, self.first):
            _, rows = self._data("raw" if one is self.first else "rank")
            found = judged(one.hyper, one.scale, rows, self.held, M)
            densities.append(density_of(found, one.scale, held))
        better = better_by(*densities, held.weights)
        self.say(
            f"{look.candidate} against {self.first.candidate}: {better:+.1f} standard errors on"
            f" {len(held)} held-out rows"
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
