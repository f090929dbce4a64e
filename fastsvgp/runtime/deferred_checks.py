"""Checks of values and factorisations on a device, read in the same copy as the value of a bound.

Reading an outcome from a device synchronises. Inside a ``deferred`` block, checks therefore leave
their outcomes on the device, and ``read`` copies them together with a value. If a check has failed,
``confirm`` runs the function again with synchronous checks: the first that fails raises, with the
same message as on the CPU. Outside a block, and on the CPU, checks are synchronous.
"""

import functools
import operator
import threading

import numpy as np

from .dispatch import is_on_device, twin


class CheckFailed(Exception):
    """A deferred check failed; ``confirm`` determines which."""


class _Outcomes:
    """Outcomes of the checks of one run, on the device.

    These are a flag that kernels increase at a failure, arrays with limits, 0-d arrays that are
    non-zero at a failure, and counts of clamped variances.
    """

    def __init__(self, like):
        self.like, self.flag = like, np.zeros(1, np.int32, like=like)
        self.ranges, self.failures, self.clamped = [], [], []

    def report(self, value):
        """(3,) float64 on the device: the value, failures, clamped variances."""
        if self.ranges:
            twin("deferred_checks", flag=self.flag).find_outside(self.ranges, self.flag)
        first, *clamped = self.clamped or [None]
        report = twin("deferred_checks", flag=self.flag).report(value, self.flag, self.like, first)
        for place, numbers in ((1, self.failures), (2, clamped)):
            if numbers:
                report[place] += functools.reduce(operator.add, numbers)
        return report


class _Thread(threading.local):
    checks: "deferred | None" = None  # of the innermost block


_thread = _Thread()


class deferred:
    """Context whose checks are deferred until ``read`` if one of ``arrays`` is on a device.

    Inside a ``synchronous`` block nothing is deferred. A block that ends without ``read`` drops the
    outcomes of its checks; the next check of the same numbers repeats them.
    """

    __slots__ = ("_arrays", "_outcomes", "_outer", "synchronous")
    until_end = False

    def __init__(self, *arrays):
        self._arrays, self._outcomes, self.synchronous = arrays, None, False

    def __enter__(self):
        self._outer = outer = _thread.checks
        self.synchronous = self.synchronous or (outer is not None and outer.synchronous)
        _thread.checks = self
        if self._arrays:
            self.defer(*self._arrays)
        return self

    def __exit__(self, kind, error, trace):
        _thread.checks = self._outer
        if error is not None and self.pending and not hasattr(error, "_checks_unread"):
            error._checks_unread = True

    def defer(self, *arrays):
        """Defer further checks if one of ``arrays`` is on a device; drop earlier outcomes."""
        self._outcomes = None
        if not self.synchronous:
            for a in arrays:
                if hasattr(a, "__cuda_array_interface__"):
                    self._outcomes = _Outcomes(a)
                    return

    @property
    def pending(self):
        """Whether checks are deferred at present."""
        return self._outcomes is not None

    @property
    def flag(self):
        """(1,) int32 on the device, increased by kernels at a failure; None without deferral."""
        return None if self._outcomes is None else self._outcomes.flag

    def add(self, condition):
        """Add an outcome: a 0-d array on the device, non-zero at a failure."""
        self._outcomes.failures.append(condition)

    def add_range(self, array, low, high):
        """Add a check that all numbers of an array are in [low, high]; one launch does all."""
        self._outcomes.ranges.append((array, low, high))

    def add_clamped(self, count):
        """Add a count of clamped variances, 0-d on the device."""
        self._outcomes.clamped.append(count)

    def drop(self):
        """Drop all outcomes; further checks are synchronous."""
        self._outcomes = None

    def report(self, value):
        """(3,) float64 on the device, for ``outcome`` on the host; ends the deferral."""
        outcomes, self._outcomes = self._outcomes, None
        return outcomes.report(value)

    def read(self, value):
        """Return ``(value, clamped variances)``, a float and an int, in one copy to the host.

        Raises ``CheckFailed`` if a check has failed.
        """
        return outcome(self.report(value).get()) if self.pending else (float(value), 0)


class synchronous(deferred):
    """Context in which each check reads its outcome at once, nested contexts included."""

    __slots__ = ()

    def __init__(self):
        super().__init__()
        self.synchronous = True

    def __exit__(self, kind, error, trace):
        super().__exit__(kind, error, trace)
        if error is not None:
            error._checks_unread = False  # no check was deferred


class until_end(deferred):
    """Context of several public calls whose checks are read once, at the end.

    Inside, a bound with its gradient returns the value 0.0; the actual value is read at the end.
    Checks after the bound add their outcomes to those of the bound.
    """

    __slots__ = ("_value",)
    until_end = True

    def __init__(self):
        super().__init__()
        self._value = None

    @property
    def holds_value(self):
        """Whether a bound has stored its value."""
        return self._value is not None

    def leave(self, value):
        """Store the value of a bound, in place of an earlier one."""
        self._value = value

    def report_all(self):
        """``report`` for the stored value."""
        value, self._value = self._value, None
        return self.report(value)


def outcome(report):
    """Return ``(value, clamped variances)`` of a ``report`` on the host.

    Raises ``CheckFailed`` if a check has failed.
    """
    value, failures, clamped = report.tolist()
    if failures:
        raise CheckFailed
    return value, int(clamped)


def confirm(function, args, options):
    """Call ``function`` in a ``deferred`` block; if a check fails, call it again synchronously.

    An error raised before the checks are read also causes a second call, because a failed check can
    be its cause. Inside ``until_end``, that block handles errors instead.
    """
    outer = _thread.checks
    joins = outer is not None and outer.until_end
    try:
        if joins:
            return function(*args, **options)
        with deferred():
            return function(*args, **options)
    except CheckFailed:
        pass
    except Exception as error:
        if joins:
            outer.drop()
        if joins or isinstance(error, MemoryError) or not getattr(error, "_checks_unread", False):
            raise
    with synchronous():
        return function(*args, **options)


# --- functions for the innermost block ------------------------------------------------------------


def on_device(*arrays):
    """Whether any of the arrays is on a device."""
    for a in arrays:
        if is_on_device(a):
            return True
    return False


def pending():
    """Return the innermost block if its checks are deferred at present, else None."""
    checks = _thread.checks
    return checks if checks is not None and checks.pending else None


def defer(*arrays):
    """Call ``defer`` of the innermost block."""
    if _thread.checks is not None:
        _thread.checks.defer(*arrays)


def read(value, leave=False):
    """Call ``read`` of the innermost block.

    With ``leave``, an ``until_end`` block stores the value, and 0.0 is returned in its place.
    """
    checks = pending()
    if checks is None:
        return float(value), 0
    if leave and checks.until_end:
        checks.leave(value)
        return 0.0, 0
    return checks.read(value)


def flag():
    """Return ``flag`` of the innermost block; None outside."""
    return None if _thread.checks is None else _thread.checks.flag


def all_within(array, low=None):
    """Whether all numbers of an array on a device are finite and at least ``low``.

    True if the check is deferred.
    """
    if array.dtype.kind != "f":
        return low is None or none(array < low)
    wide, highest = _widen(array.dtype)
    if wide != array.dtype:
        array = array.astype(wide)
    limits = -highest if low is None else low, highest
    if checks := pending():
        checks.add_range(array, *limits)
        return True
    found = np.zeros(1, np.int32, like=array)
    twin("deferred_checks", array=array).find_outside([(array, *limits)], found)
    return not found.any()


@functools.cache
def _widen(dtype):
    """Return the dtype in which numbers are checked, float32 or wider, and its largest number."""
    wide = np.promote_types(dtype, np.float32)
    return wide, np.finfo(wide).max


def none(conditions):
    """Whether no condition holds, on any device; True if the check is deferred."""
    checks = pending()
    if checks is None or not on_device(conditions):
        return not conditions.any()
    checks.add(conditions.any())
    return True
