"""What time decides, as numbers that can be given back.

A search turns time into counts, of steps, of iterations, of inducing inputs, and into nothing else. A plan is the list of these
counts in the order in which they were decided. A search that is given a plan takes its counts from there, so it repeats the
other one to the bit, on as many threads.
"""

import json
import time

RATE = 4e10  # floating-point operations that count as a second, where work is the clock
CALL = 1e-3  # seconds that a step counts beside its operations


class Plan:
    """Counts that were decided, and the clock by which.

    Parameters
    ----------
    seconds : float
        The budget.
    by_work : bool
        The clock is what was computed, so that plans are the same on every machine; else wall time.
    given : sequence of (what, count), optional
        Of an earlier search, to be repeated. What comes after its end is decided by the clock.
    """

    def __init__(self, seconds, by_work=False, given=()):
        self.seconds, self._worked = seconds, 0.0 if by_work else None
        self._began, self._given, self.counts = time.perf_counter(), list(given), []

    @property
    def spent(self):
        """Seconds so far."""
        return time.perf_counter() - self._began if self._worked is None else self._worked

    def did(self, flops, calls=1):
        """Tell of work that was done."""
        if self._worked is not None:
            self._worked += flops / RATE + CALL * calls

    @property
    def left(self):
        return self.seconds - self.spent

    def count(self, what, decided):
        """The next count: the one given, else ``decided``, a number or a function that gives one."""
        at = len(self.counts)
        if at < len(self._given):
            there, count = self._given[at]
            if there != what:
                raise ValueError(
                    f"`plan` is not one of this search: count {at} is of {there!r}, and here"
                    f" {what!r} is decided; give the plan with the data and arguments of its search"
                )
        else:
            count = int(decided() if callable(decided) else decided)
        self.counts.append((what, count))
        return count

    def to_json(self):
        return {"seconds": self.seconds, "counts": [list(pair) for pair in self.counts]}


def counts_of(plan):
    """The counts of a plan as ``search`` returned it, a dict, or of the text of its JSON, checked."""
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
