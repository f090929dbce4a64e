"""The stages of a search: which candidates run for how long, and which go on."""

import logging

import numpy as np

from ...errors import NotPositiveDefinite
from ..scaling import constant
from .held_out_density import BETTER, better_by
from .looks import Look, M, density_of, judged, look_at
from .networks import DEEP, RELU, WIDE, WIDER, Deep
from .plain_processes import Exact, Plain, Relevant, Scarce
from .rows import Rows

log = logging.getLogger("fastsvgp")

SHORT = 4.0  # seconds below which there is no race
EXACT = 1500  # rows up to which an exact process is the first candidate
# parts of the time: of each plain process on raw and on rank inputs, and of each candidate in the races
INPUTS, FIRST, SECOND = 0.03, 0.05, 0.07
EXACT_PART = 0.3  # of the time, for an exact process that takes more than half of what is left
SHORTEST = 0.6, 0.06  # seconds of a race, but at most this part of all
CLOSE = 0.005  # nats a row by which raw inputs may be behind ranks and still be taken
NOTHING = -1.36  # log density of a model that is no better than the mean; the mean alone has -1.42
SCARCE = 0.25  # part of the time for minibatches where L-BFGS found nothing
LONG = 150  # seconds from which networks are larger
SEGMENTS, PATIENCE = 6, 3
SETTLING = 0.01, 0.04  # parts of the time in which step sizes fall
# what the last posterior gets: this part of all the time or so many seconds, but at most this part of the rest
AT_END_PART, AT_END_SECONDS, AT_END_MOST = 0.05, 3.0, 0.3
LATER, LAST_ROWS = 6000, 15_000  # rows that L-BFGS of a plain process takes then
RELEVANT = "minibatches from relevant lengthscales"
LEAST_RELEVANCE, IRRELEVANT, SHARE = 0.01, 0.3, 0.2
ROUNDS = 2  # of the second race
FAILURES = (NotPositiveDefinite, ArithmeticError, ValueError)


class Stages:
    """A search under way: its candidates, looks and story.

    Parameters
    ----------
    rows : Rows
        To train on; inputs in their own units, targets standardised.
    held, last : Rows or None
        Held-out rows: those that steer, and those that are seen once. None for few rows.
    raw, ranks : Scale
        Of inputs, and the one with ranks; the same object where ranks change nothing.
    plan : Plan
    seed : int
    tell : function ``(line)``
    """

    def __init__(self, rows, held, last, raw, ranks, plan, seed, tell):
        self.rows, self.held, self.last, self._plan, self._seed = rows, held, last, plan, seed
        self._scales = {"raw": raw} | ({} if ranks is raw else {"rank": ranks})
        self._units = {}
        self.story, self._tell = [], tell
        self.looks, self.best, self.first = [], None, None
        self.error, self._number = None, 0
        self.constant = bool(constant(np.ptp(rows.y), rows.y))

    def say(self, line):
        self.story.append(line)
        self._tell(line)

    def run(self):
        """To its end: ``best`` is the best look, ``first`` that of the candidate that it has to beat, if there is one."""
        T = self._plan.seconds
        if self.held is None or T < SHORT or self.constant:
            return self._at_once(T)
        plain, inputs = self._inputs(T)
        if len(self.rows) <= EXACT:
            self._exact(T, inputs)
        candidates = [plain, *self._networks(plain, inputs, T)]
        if len(self.rows) > EXACT:
            candidates += self._relevant(T)
        leaders = self._race(candidates, T)
        self._finish(leaders)
        if self.best is None:
            raise self.error
        self._settle({one.name: one for one in candidates if isinstance(one, Deep)})
        if self.first is None and len(self.rows) > EXACT:
            self.first = self._last(candidates[-1]) if candidates[-1].name == RELEVANT else None

    def _at_once(self, T):
        """Few rows, or little time: one candidate, which nothing is compared with."""
        why = "few distinct rows" if self.held is None else f"less than {SHORT:g} s"
        why = "all targets are equal, which says nothing about noise" if self.constant else why
        raw = self._scales["raw"], self._in_units("raw")
        if len(self.rows) <= EXACT and self.held is None:
            candidate = Exact("exact", *raw)
        else:
            candidate = Plain("plain, raw inputs", *raw, self._rng())
        self.say(f"{candidate.name}, without a race: {why}")
        if not self.constant:
            candidate.take(self._plan, 0.7 * T)
        self.best = Look(
            candidate.name, self._plan.spent, candidate.steps, np.nan, np.nan, (1.0, 1.0), candidate.hyper(),
            candidate.scale,
        )  # fmt: skip

    # --- one candidate ---

    def _go(self, candidate, seconds, part=None):
        """Let it run, and look at it; None where it failed, and the reason is told."""
        try:
            candidate.take(self._plan, seconds, part)
            look = look_at(candidate, self.held, self._plan)
        except FAILURES as error:
            self.error = error
            self.say(f"{candidate.name}: failed, so it is out ({str(error).split('. ')[0][:120]})")
            return None
        self.looks.append(look)
        self.say(
            f"{look.seconds:.1f} s: {look.candidate}, {look.steps} steps: held-out log density"
            f" {look.score:.3f}, RMSE {look.rmse:.4g}"
        )
        if self.best is None or look.score > self.best.score:
            self.best = look
        return look

    def _last(self, candidate):
        """Its last look, or None."""
        return next((one for one in self.looks[::-1] if one.candidate == candidate.name), None)

    def _score(self, candidate):
        look = self._last(candidate)
        return -np.inf if look is None else look.score

    def _in_units(self, inputs):
        """Training rows in the units of the model."""
        if inputs not in self._units:
            X = np.ascontiguousarray(self._scales[inputs].X(self.rows.X))
            self._units[inputs] = Rows(X, self.rows.y, self.rows.weights)
        return self._units[inputs]

    def _rng(self):
        self._number += 1
        return np.random.default_rng([self._seed, self._number])

    # --- stages ---

    def _inputs(self, T):
        """A plain process on raw and on rank inputs: the better one, and the name of its inputs."""
        racing = {}
        for inputs, scale in self._scales.items():
            candidate = Plain(f"plain, {inputs} inputs", scale, self._in_units(inputs), self._rng())
            self._go(candidate, self._slice(INPUTS))
            racing[inputs] = candidate
        scores = {inputs: self._score(candidate) for inputs, candidate in racing.items()}
        inputs = max(scores, key=scores.get)
        if scores["raw"] > scores[inputs] - CLOSE:
            inputs = "raw"
        if len(scores) > 1:
            other = "rank" if inputs == "raw" else "raw"
            self.say(
                f"{inputs} inputs, because their held-out log density is {scores[inputs]:.3f}"
                f" against {scores[other]:.3f} of {other} inputs"
            )
        chosen = racing[inputs]
        chosen.rows_at_once = LATER
        if scores[inputs] < NOTHING:
            scarce = Scarce(
                f"minibatches, {inputs} inputs", self._scales[inputs], self._in_units(inputs), self._rng()
            )  # fmt: skip
            self.say("L-BFGS found nothing, so minibatches get a quarter of the time")
            self._go(scarce, SCARCE * T)
            if self._score(scarce) > scores[inputs]:
                chosen = scarce
        return chosen, inputs

    def _exact(self, T, inputs):
        """Exact processes, on raw inputs and on ranks if these are better."""
        for name in dict.fromkeys(("raw", inputs)):
            exact = Exact(f"exact, {name} inputs", self._scales[name], self._in_units(name))
            self._go(exact, EXACT_PART * T)
            look = self._last(exact)
            if look is not None and (self.first is None or self._replaces(look)):
                self.first = look

    def _replaces(self, look):
        """Whether a look is better than the first candidate by two standard errors, by all held-out rows.

        Neither has been chosen among others by any of them.
        """
        held, densities = self.held.and_more(self.last), []
        for one in (look, self.first):
            rows = self._in_units("raw" if one is self.first else "rank")
            found = judged(one.hyper, one.scale, rows, self.held, M)
            densities.append(density_of(found, one.scale, held))
        better = better_by(*densities, held.weights)
        self.say(
            f"{look.candidate} against {self.first.candidate}: {better:+.1f} standard errors on"
            f" {len(held)} held-out rows"
        )
        return better > BETTER

    def _networks(self, plain, inputs, T):
        """Networks on these inputs."""
        found = self._score(plain) > NOTHING
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
                f"network {architecture.name}{note}, {inputs} inputs", self._scales[inputs], self._in_units(inputs),
                self._rng(), architecture, weighting=by, **sizes,
            )  # fmt: skip

    def _relevant(self, T):
        """The start of a fit with settings, where that takes a small part of the time."""
        candidate = Relevant(RELEVANT, self._scales["raw"], self._in_units("raw"), self._rng())
        cost = candidate.cost(self._plan)
        possible = self._plan.count(f"{RELEVANT}: can begin", cost < FIRST * T)
        if not possible:
            self.say(f"{RELEVANT}: left out, because its start takes too large a part of the time")
        return [candidate] * possible

    def _race(self, candidates, T):
        """The candidates by their scores, after two races: of all, then of the better two.

        A candidate that is behind but comes nearer goes on.
        """
        racing = []
        for candidate in candidates:
            if racing and not self._has_time():
                break
            part = 2 * FIRST if candidate.name == RELEVANT else FIRST
            if self._go(candidate, self._slice(part)) is not None:
                racing.append(candidate)
        for round_ in range(ROUNDS):
            racing.sort(key=self._score, reverse=True)
            keep = 2 if not round_ else 1
            racing = racing[:keep] + [one for one in racing[keep:] if self._comes_nearer(one)]
            if len(racing) < 2 or not self._has_time():
                break
            racing = [one for one in racing if self._go(one, self._slice(SECOND)) is not None]
        return sorted(racing, key=self._score, reverse=True)

    def _slice(self, part):
        """Seconds of a race that is this part of the time."""
        seconds, most = SHORTEST
        return max(part * self._plan.seconds, min(seconds, most * self._plan.seconds))

    def _has_time(self):
        """Whether the time that is left is more than the end and another race take."""
        needed = self._at_end() + self._slice(FIRST)
        return bool(self._plan.count("has time", lambda: self._plan.left > needed))

    def _at_end(self):
        """Seconds that are kept for the end."""
        left = max(self._plan.left, 0.0)
        return min(AT_END_MOST * left, max(AT_END_PART * self._plan.seconds, AT_END_SECONDS))

    def _comes_nearer(self, candidate):
        """Whether it has gained more, since the look before, than it is behind."""
        scores = [one.score for one in self.looks if one.candidate == candidate.name]
        return len(scores) > 1 and scores[-1] - scores[-2] > self.best.score - scores[-1]

    def _settle(self, networks):
        """Where the best look is an early one of a network, go back there, and let step sizes fall from there in a short time."""
        best = self.best
        network = networks.get(best.candidate)
        if network is None or best is self._last(network):
            return
        for part in SETTLING:
            seconds = self._slice(part)
            if not self._plan.count("settles", self._plan.left - self._at_end() > seconds):
                return
            network.go_back(best.state)
            self.say(f"{network.name}: back to {best.seconds:.1f} s, with step sizes that fall")
            self._go(network, seconds, (network.part, 1.0))

    def _finish(self, leaders):
        """The winner gets the time that is left, but for the end; a failure passes it to the next."""
        for winner in leaders:
            seconds = self._plan.left - self._at_end()
            # a budget that is spent leaves no time to train on
            if not self._plan.count("worth training on", seconds > self._slice(0)):
                return
            if self._train_on(winner, seconds):
                return

    def _train_on(self, winner, seconds):
        """Whether it came to its end, the last step or three looks without a gain; False where it failed."""
        plain = isinstance(winner, Plain)
        if plain:
            winner.rows_at_once = LAST_ROWS
        segments, worse = 1 if plain else SEGMENTS, 0
        for i in range(segments):
            look = self._go(winner, seconds / segments, (i / segments, (i + 1) / segments))
            if look is None:
                return False
            worse = 0 if look is self.best else worse + 1
            if worse == PATIENCE:
                self.say(f"{winner.name}: ended, because three looks gained nothing")
                break
        return True
