"""The race of every search: candidates train in turn, held-out rows rank them, the winner gets the rest of the time."""

import numpy as np

from ...errors import NotPositiveDefinite
from .rows import Rows

# parts of the time: of each plain process on raw and on rank inputs, and of each candidate in the
# two rounds of the race
INPUTS, FIRST, SECOND = 0.03, 0.05, 0.07
SHORTEST = 0.6, 0.06  # seconds of a slice, but at most this part of the time
CLOSE = 0.005  # nats per row: raw inputs are chosen over ranks unless they are further behind
PATIENCE = 3  # looks without a gain that end the training of the winner
SETTLING = 0.01, 0.04  # parts of the time in which step sizes fall
# time of the last posterior: this part of the time or this many seconds, but at most this part of
# the rest
AT_END_PART, AT_END_SECONDS, AT_END_MOST = 0.05, 3.0, 0.3
ROUNDS = 2  # of the second race
FAILURES = (NotPositiveDefinite, ArithmeticError, ValueError)


class Race:
    """A search under way: its candidates, looks and story.

    Parameters
    ----------
    rows : Rows
        Training rows; inputs in their own units, targets in those of the model.
    held, last : Rows or None
        Held-out rows: those that steer, and those that are used once. None for few rows.
    raw, ranks : Scale
        Standardised inputs, and ranks; the same object if ranks change nothing.
    plan : Plan
    seed : int
    tell : function ``(line)``

    Attributes
    ----------
    looks : list of Look
    best, first : Look or None
        The best look, and that of the candidate that it has to beat.
    """

    def __init__(self, rows, held, last, raw, ranks, plan, seed, tell):
        self.rows, self.held, self.last, self._plan, self._seed = rows, held, last, plan, seed
        self._scales = {"raw": raw} | ({} if ranks is raw else {"rank": ranks})
        self._units = {}
        self.story, self._tell = [], tell
        self.looks, self.best, self.first = [], None, None
        self.error, self._number = None, 0

    def _look_at(self, candidate):
        """A ``Look`` at a candidate; ``FAILURES`` if it has no posterior or no score."""
        raise NotImplementedError

    def say(self, line):
        self.story.append(line)
        self._tell(line)

    # --- one candidate ---

    def _go(self, candidate, seconds, part=None):
        """Train it and look at it. None if it failed; the story then has the reason."""
        try:
            candidate.take(self._plan, seconds, part)
            look = self._look_at(candidate)
        except FAILURES as error:
            self.error = error
            self.say(f"{candidate.name}: failed, so it is out ({str(error).split('. ')[0][:120]})")
            return None
        self.looks.append(look)
        self.say(
            f"{look.seconds:.1f} s: {look.candidate}, {look.steps} steps: held-out log density"
            f" {look.score:.3f}, {look.measured()}"
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

    def _better_inputs(self, make):
        """Run ``make(name, inputs)`` on raw and on rank inputs.

        Returns the candidate with the better inputs, and the name of these inputs. Raw inputs are
        chosen if they are hardly worse.
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
        """The candidates by their scores, after a round of all and ``ROUNDS`` of the better two.

        A candidate that is behind but gaining on the leader stays in the race.
        """
        racing = []
        for candidate in candidates:
            if racing and not self._has_time():
                break
            if self._go(candidate, self._slice(candidate.share * FIRST)) is not None:
                racing.append(candidate)
        for round_ in range(ROUNDS):
            racing.sort(key=self._score, reverse=True)
            keep = 2 if not round_ else 1
            racing = racing[:keep] + [one for one in racing[keep:] if self._comes_nearer(one)]
            if len(racing) < 2 or not self._has_time():
                break
            racing = [one for one in racing if self._go(one, self._slice(SECOND)) is not None]
        return sorted(racing, key=self._score, reverse=True)

    def _comes_nearer(self, candidate):
        """Whether its last gain is larger than its distance to the leader."""
        scores = [one.score for one in self.looks if one.candidate == candidate.name]
        return len(scores) > 1 and scores[-1] - scores[-2] > self.best.score - scores[-1]

    def _finish(self, leaders):
        """Give the winner the rest of the time, except the end; if it fails, the next one."""
        for winner in leaders:
            seconds = self._plan.left - self._at_end()
            # a budget that is spent leaves no time to train on
            if not self._plan.count("worth training on", seconds > self._slice(0)):
                return
            if self._train_on(winner, seconds):
                return

    def _train_on(self, winner, seconds):
        """Train to the last step, or until three looks gain nothing. False if it failed."""
        worse = 0
        for i in range(winner.segments):
            part = i / winner.segments, (i + 1) / winner.segments
            look = self._go(winner, seconds / winner.segments, part)
            if look is None:
                return False
            worse = 0 if look is self.best else worse + 1
            if worse == PATIENCE:
                self.say(f"{winner.name}: ended, because three looks gained nothing")
                break
        return True

    def _settle(self, networks):
        """Return to the best look if it is an early one of a network, and train on briefly while step sizes fall."""
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

    # --- time ---

    def _slice(self, part):
        """Seconds of a slice that is this part of the time."""
        seconds, most = SHORTEST
        return max(part * self._plan.seconds, min(seconds, most * self._plan.seconds))

    def _has_time(self):
        """Whether more time is left than the end and another slice take."""
        needed = self._at_end() + self._slice(FIRST)
        return bool(self._plan.count("has time", lambda: self._plan.left > needed))

    def _at_end(self):
        """Seconds that are kept for the end."""
        left = max(self._plan.left, 0.0)
        return min(AT_END_MOST * left, max(AT_END_PART * self._plan.seconds, AT_END_SECONDS))
