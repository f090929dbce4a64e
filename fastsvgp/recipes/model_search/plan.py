"""The decisions that depend on time, as a list that repeats a search.

Time affects a search only through counts: of steps, of iterations, of inducing inputs. A plan is
the list of these counts in the order of the decisions. A search with a plan takes its counts from
there, so it repeats the earlier search to the bit on the same number of threads.
"""

import json
import time

RATE = 4e10  # floating-point operations per second if the clock counts work
CALL = 1e-3  # seconds per step, in addition to its operations


class PlanMismatch(ValueError):
    """A plan of another search."""


class Plan:
    """The clock of a search, and the counts decided by it.

    Parameters
    ----------
    seconds : float
        The budget.
    by_work : bool
        Count operations instead of wall time, so that plans are the same on every machine.
    given : sequence of (what, count), optional
        Counts of an earlier search to repeat. The clock decides all later counts.
    """

    def __init__(self, seconds, by_work=False, given=()):
        self.seconds, self._worked = seconds, 0.0 if by_work else None
        self._began, self._given, self.counts = time.perf_counter(), list(given), []
        self.signals = ()  # Ctrl-C as ``collect_signals`` has it: its exception can get lost

    @property
    def spent(self):
        """Seconds since the start, or counted work in seconds."""
        return time.perf_counter() - self._began if self._worked is None else self._worked

    def did(self, flops, calls=1):
        """Add work to the clock; end the search if Ctrl-C was pressed since the last call."""
        if self.signals:
            raise KeyboardInterrupt
        if self._worked is not None:
            self._worked += flops / RATE + CALL * calls

    @property
    def left(self):
        return self.seconds - self.spent

    def count(self, what, decided):
        """Return the next count: from the plan, else ``decided``, a number or a function."""
        at = len(self.counts)
        if at < len(self._given):
            there, count = self._given[at]
            if there != what:
                raise PlanMismatch(
                    f"`plan` is not one of this search: count {at} is of {there!r}, and here"
                    f" {what!r} is needed; use the data and arguments of the search that made it"
                )
        else:
            count = int(decided() if callable(decided) else decided)
        self.counts.append((what, count))
        return count

    def jump(self, count, spent):
        """Go to the moment of the given plan after ``count`` counts and ``spent`` seconds."""
        if count > len(self._given):
            raise PlanMismatch("`plan` is shorter than that of the search in `resume`")
        self.counts = self._given[:count]
        if self._worked is None:
            self._began = time.perf_counter() - spent
        else:
            self._worked = spent

    def to_json(self):
        return {"seconds": self.seconds, "counts": [list(pair) for pair in self.counts]}


def counts_of(plan):
    """Check a plan from ``search``, a dict or its JSON text; return its counts."""
    if plan is None:
        return []
    try:
        plan = json.loads(plan) if isinstance(plan, str) else plan
        counts = [(str(what), int(count)) for what, count in plan["counts"]]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"`plan` must be the `plan` of an earlier search, got {plan!r:.80}"
        ) from error
    if any(count < 0 for _, count in counts):
        raise ValueError("`plan` holds a negative count")
    return counts
