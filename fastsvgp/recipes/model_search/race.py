"""The stages of every search, from the first candidate to a model of all rows.

Candidates train in turn, held-out rows rank them, and the winner gets the rest of the time.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import NotPositiveDefinite
from ...runtime import tuning
from .held_out_density import BETTER, better_by
from .plan import PlanMismatch, restore, stage_of
from .rows import scale_rows

# parts of the time: for each plain process on raw and on rank inputs, and for each candidate in the
# first and in later rounds of the race
INPUTS, FIRST, SECOND = 0.03, 0.05, 0.07
SHORTEST = 0.6, 0.06  # shortest slice in seconds, but at most this part of the time
CLOSE = 0.005  # nats per row: ranks are chosen only if raw inputs are worse by more
PATIENCE = 2  # looks without a gain after which the training of the winner ends
SETTLING = 0.01, 0.04  # parts of the time in which step sizes fall
# time of the last posterior: this part of the time or this many seconds, whichever is more, but at
# most this part of the rest
AT_END_PART, AT_END_SECONDS, AT_END_MOST = 0.05, 3.0, 0.3
STRETCHES = 20  # of held-out time that count as one row each
ROUNDS = 2  # of the race after the first round
FAILURES = (NotPositiveDefinite, ArithmeticError, ValueError)


def clusters_of(rows):
    """Number the rows (N,) that count as one: those of a label, or of a stretch of time."""
    if not rows.later:
        return rows.labels
    place = np.empty(len(rows), int)
    place[np.argsort(rows.labels, kind="stable")] = np.arange(len(rows)) * STRETCHES // len(rows)
    return place


def reason(error):
    """Return the first sentence of the message of a failure."""
    return str(error).split(". ")[0][:120]


@dataclass(frozen=True)
class Look:
    """The score of a candidate at one time.

    Attributes
    ----------
    candidate : str
    seconds : float
        Time since the start of the search.
    score : float
        Mean log density of the held-out targets, in the units of the model.
    rmse : float
        Of numbers; the error rate of classes.
    factors : tuple
        (a, c), multipliers of the variance of f and of the noise; (T,), the temperature.
    model : Hyper or SVGP
    metric : "RMSE" or "accuracy"
    """

    candidate: str
    seconds: float
    steps: int
    score: float
    rmse: float
    factors: tuple
    model: Any
    scale: Any
    state: Any = None  # of a candidate that can go back to it
    metric: str = "RMSE"

    @property
    def measured(self):
        """The metric that the story shows after the log density."""
        return self.rmse if self.metric == "RMSE" else 1 - self.rmse

    def to_json(self):
        return {
            "candidate": self.candidate,
            "seconds": round(self.seconds, 1),
            "steps": self.steps,
            "log_density": self.score,
            self.metric.lower(): self.measured,
            "factors": list(self.factors),
        }


class Race:
    """The state of a running search: its candidates, looks and story.

    A subclass per kind of targets has these methods:

    - ``_candidates()`` returns the candidates of the race, after those that run before it.
    - ``_run_without_race()`` sets ``best`` without a race, for few rows or little time.
    - ``_first(candidates)`` returns the look that the best one has to beat, or None.
    - ``_score_at(candidate)`` returns score, RMSE and factors of held-out rows, or raises one of
      ``FAILURES``.
    - ``answer(interrupted)`` returns ``(svgp, look)``: the model of all rows, and its look.
    - ``rehearsal_candidates()`` returns a candidate for each kind of step, on raw inputs.

    Parameters
    ----------
    likelihood : Likelihood or None
        None for real-valued targets.
    whole : Rows
        All rows; inputs are unscaled, targets in the units of the model.
    rows : Rows
        Those for training.
    held_out, last : Rows or None
        Held-out rows: those that score looks, and those that are used once. None for few rows.
    raw, ranks : Scale
        Scaling by standardisation, and by ranks; the same object if ranks change nothing.
    plan : Plan
    seed : int
    tell : function ``(line)``
    earlier : sequence of SavedStage
        The finished stages of an interrupted search, which are not trained again.
    networks : bool
        Whether networks take part.
    averages : bool
        Whether the answer for few rows is an average over the parameters.

    Attributes
    ----------
    done : list of SavedStage
    looks : list of Look
    best, first : Look or None
        The best look, and the look that it has to beat.
    """

    metric = "RMSE"  # of looks
    new, column = "new rows", None  # what the scores hold for; the column of time
    constant = False  # whether all targets are equal

    def __init__(
        self, likelihood, whole, rows, held_out, last, raw, ranks, plan, seed, tell, earlier=(),
        networks=True, averages=False,
    ):  # fmt: skip
        self._likelihood, self.whole, self._plan, self._seed = likelihood, whole, plan, seed
        self.rows, self.held_out, self.last = rows, held_out, last
        self._scales = {"raw": raw} | ({} if ranks is raw else {"rank": ranks})
        self._units, self._earlier, self.done = {}, earlier, []
        self.story, self._tell, self.holds = [], tell, ""
        self.looks, self.best, self.first = [], None, None
        self._takes_networks, self._averages = networks, averages
        self.error, self._number, self._look_seconds = None, 0, 0.0

    def _look_at(self, candidate):
        score, *measured = self._score_at(candidate)
        if not np.isfinite(score):
            raise ArithmeticError("the density of held-out rows is not finite")
        return self._look_of(candidate, self._plan.spent, score, *measured)

    def _look_of(self, candidate, seconds, score, rmse, factors):
        """Return the ``Look`` at a candidate with these measurements."""
        return Look(
            candidate.name, seconds, candidate.steps, score, rmse, tuple(factors), candidate.model,
            candidate.scale, getattr(candidate, "state", None), self.metric,
        )  # fmt: skip

    def run(self):
        """Run all stages; set ``best``, and ``first``, the look that it has to beat, or None."""
        if self.held_out is None or self._brief or self.constant:
            return self._run_without_race()
        candidates = self._candidates()
        self._finish(self._race(candidates))
        if self.best is None:
            raise self.error
        self._settle({one.name: one for one in candidates if one.settles})
        self.first = self._first(candidates)

    @property
    def _brief(self):
        """Whether there is no time for a race."""
        return self._plan.seconds < tuning.current.race_seconds

    @property
    def _too_brief(self):
        return f"less than {tuning.current.race_seconds:g} s"

    def tell_scores(self, count, rmse, nlpd, how):
        """Set ``holds``: for what, and which scores, in the units of the targets."""
        units = self._scales["raw"].y_scale
        self.holds = (
            f"for {self.new}: RMSE {rmse * units:.4g}, NLPD {nlpd + np.log(units):.4g} on {count}"
            f" rows {how}"
        )
        self.say(self.holds)

    def say(self, line):
        self.story.append(line)
        self._tell(line)

    # --- one candidate ---

    def _go(self, candidate, seconds, part=None):
        """Train a candidate and return its look. None if it failed; the story has the reason."""
        if len(self.done) < len(self._earlier):
            stage = self._earlier[len(self.done)]
            restore(stage, candidate, self._plan)
            look = None if stage.look is None else self._look_of(candidate, **stage.look)
            failure, self._look_seconds = stage.failure, stage.look_seconds
        else:
            look, failure = self._train_and_score(candidate, seconds, part)
            stage = stage_of(candidate, look, failure, self._plan, self._look_seconds)
        self.done.append(stage)
        if look is None:
            self.say(f"{candidate.name}: failed, so it is out ({failure})")
            return None
        self.looks.append(look)
        self.say(
            f"{look.seconds:.1f} s: {look.candidate}, {look.steps} steps: held-out log density"
            f" {look.score:.3f}, {look.metric} {look.measured:.4g}"
        )
        if self.best is None or look.score > self.best.score:
            self.best = look
        return look

    def _train_and_score(self, candidate, seconds, part):
        """Train a candidate; return its look, or None and the reason for a failure."""
        try:
            candidate.take(self._plan, seconds, part)
            trained = self._plan.spent
            look = self._look_at(candidate)
        except PlanMismatch:
            raise
        except FAILURES as error:
            self.error = error
            return None, reason(error)
        self._look_seconds = self._plan.spent - trained
        return look, ""

    def _last(self, candidate):
        """Return the last look at a candidate, or None."""
        return next((one for one in self.looks[::-1] if one.candidate == candidate.name), None)

    def _score(self, candidate):
        look = self._last(candidate)
        return -np.inf if look is None else look.score

    def _data(self, inputs):
        """Return the scale of these inputs, and the training rows in its units."""
        scale = self._scales[inputs]
        if inputs not in self._units:
            self._units[inputs] = scale_rows(self.rows, scale)
        return scale, self._units[inputs]

    def _rng(self):
        self._number += 1
        return np.random.default_rng([self._seed, self._number])

    # --- stages ---

    def _better_inputs(self, make):
        """Run ``make(name, inputs)`` on raw and on rank inputs.

        Returns the candidate with the better inputs, and the name of these inputs. Raw inputs are
        chosen unless they are worse by more than ``CLOSE``.
        """
        racing = {}
        for inputs in self._scales:
            racing[inputs] = make(f"plain, {inputs} inputs", inputs)
            self._go(racing[inputs], self._slice(INPUTS))
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
        return racing[inputs], inputs

    def _race(self, candidates):
        """Run a round of all candidates and ``ROUNDS`` of the best; return them, best first.

        Two candidates continue, then one. A candidate that is gaining on the leader continues too.
        Those that dropped out come last: they replace leaders that fail later.
        """
        racing, dropped = [], []
        for candidate in candidates:
            if racing and not self._has_time():
                break
            if self._go(candidate, self._slice(candidate.share * FIRST)) is not None:
                racing.append(candidate)
        for round_ in range(ROUNDS):
            racing.sort(key=self._score, reverse=True)
            keep = 2 if not round_ else 1
            nearer = [one for one in racing[keep:] if self._comes_nearer(one)]
            dropped += [one for one in racing[keep:] if one not in nearer]
            racing = racing[:keep] + nearer
            if len(racing) < 2 or not self._has_time():
                break
            racing = [one for one in racing if self._go(one, self._slice(SECOND)) is not None]
        racing.sort(key=self._score, reverse=True)
        return racing + sorted(dropped, key=self._score, reverse=True)

    def _comes_nearer(self, candidate):
        """Whether the last gain of a candidate is larger than its distance to the leader."""
        scores = [one.score for one in self.looks if one.candidate == candidate.name]
        return len(scores) > 1 and scores[-1] - scores[-2] > self.best.score - scores[-1]

    def _finish(self, leaders):
        """Train the winner for the rest of the time, less the end; if it fails, the next one."""
        for winner in leaders:
            seconds = self._plan.left - self._reserve()
            # the budget can be spent already
            if not self._plan.count("worth training on", seconds > self._slice(0)):
                return
            if self._train_on(winner, seconds):
                return

    def _train_on(self, winner, seconds):
        """Train until time is up or ``PATIENCE`` looks gain nothing. Return False if it failed."""
        worse, end = 0, self._plan.spent + seconds
        for i in range(winner.segments):
            part = i / winner.segments, (i + 1) / winner.segments
            each = (end - self._plan.spent) / (winner.segments - i)
            look = self._go(winner, max(each - self._look_seconds, 0.0), part)
            if look is None:
                return False
            worse = 0 if look is self.best else worse + 1
            if worse == PATIENCE:
                self.say(f"{winner.name}: ended, because two looks gained nothing")
                break
        return True

    def _settle(self, networks):
        """Continue briefly from the best look with falling step sizes.

        Only if the best look is an earlier one of a network.
        """
        best = self.best
        network = networks.get(best.candidate)
        if network is None or best is self._last(network):
            return
        for part in SETTLING:
            seconds = self._slice(part)
            if not self._plan.count("settles", self._plan.left - self._reserve() > seconds):
                return
            network.go_back(best.state)
            self.say(f"{network.name}: back to {best.seconds:.1f} s, with step sizes that fall")
            self._go(network, seconds, (network.part, 1.0))

    def _last_word(self, look, densities):
        """Return a look or ``first``, chosen by ``densities(look)`` of rows used only here.

        The look has to be better by two standard errors.
        """
        first, last = self.first, self.last
        if first is None or look.candidate == first.candidate:
            return look
        both = [densities(one) for one in (look, first)]
        better = better_by(*both, last.weights, clusters_of(last))
        means = [np.average(one, weights=last.weights) for one in both]
        chosen = look if better > BETTER else first
        self.say(
            f"{chosen.candidate}, because on {len(last)} rows seen once {look.candidate} has log"
            f" density {means[0]:.3f} and {first.candidate} {means[1]:.3f}: {better:+.1f} standard"
            " errors"
        )
        return chosen

    # --- time ---

    def _slice(self, part):
        """Return the seconds of a slice that is this part of the time."""
        seconds, most = SHORTEST
        return max(part * self._plan.seconds, min(seconds, most * self._plan.seconds))

    def _has_time(self):
        """Whether the time left exceeds the end and another slice."""
        needed = self._reserve() + self._slice(FIRST)
        return bool(self._plan.count("has time", lambda: self._plan.left > needed))

    def _reserve(self):
        """Return the seconds reserved for the end."""
        left = max(self._plan.left, 0.0)
        return min(AT_END_MOST * left, max(AT_END_PART * self._plan.seconds, AT_END_SECONDS))
