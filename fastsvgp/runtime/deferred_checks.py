"""Whether all is well on a device, read in the same copy as the value of a bound.

To ask a device whether something holds is to wait for it. So while a bound runs on a device, checks
of values and factorisations leave their verdicts there, and ``settle`` reads them together with the
value. Where one of them is a fault, ``retried`` runs the bound again with checks that wait: the
first that fails raises, with the same words as on the CPU. Outside a bound checks wait.
"""

import contextlib
import functools
import operator
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from .blas_scope import governed
from .dispatch import twin
from .memory import explaining

P = ParamSpec("P")
R = TypeVar("R")


class Fault(Exception):
    """A check failed on the device; nobody but ``retried`` sees it."""


class _Local(threading.local):
    book = None  # of the bound that runs in this thread
    waiting = False  # it is the second run
    left = None  # who reads what it says, later


class _Book:
    """Verdicts of one run: a flag that kernels add to, arrays and their limits, 0-d arrays not zero at a fault, and counts."""

    def __init__(self, like):
        self.like, self.flag = like, np.zeros(1, np.int32, like=like)
        self.ranges, self.faults, self.clamped = [], [], []

    def found(self, value):
        """(3,) float64 on the device: the value, faults, raised variances."""
        if self.ranges:
            twin("deferred_checks", flag=self.flag).find_outside(self.ranges, self.flag)
        first, *clamped = self.clamped or [None]
        found = twin("deferred_checks", flag=self.flag).report(value, self.flag, self.like, first)
        for place, numbers in ((1, self.faults), (2, clamped)):
            if numbers:
                found[place] += functools.reduce(operator.add, numbers)
        return found


_local = _Local()


def on_device(*arrays):
    """Whether any of them lives on a device."""
    return any(hasattr(a, "__cuda_array_interface__") for a in arrays)


def begin(*arrays):
    """Postpone the verdicts on what follows, up to ``settle``, where one of these arrays lives on a device."""
    _local.book = None
    if not _local.waiting:
        for a in arrays:
            if hasattr(a, "__cuda_array_interface__"):
                _local.book = _Book(a)
                return


def postponed():
    """Whether verdicts are to be left on the device."""
    return _local.book is not None


def flag():
    """(1,) int32 on the device, for kernels to add to at a fault; ``None`` where verdicts are not postponed."""
    return None if _local.book is None else _local.book.flag


def within(array, low=None):
    """Whether all numbers of an array on a device lie between ``low`` and infinity; True where the verdict is left there."""
    if array.dtype.kind != "f":
        return low is None or none(array < low)
    array = array.astype(np.promote_types(array.dtype, np.float32), copy=False)
    highest = np.finfo(array.dtype).max
    asked = array, -highest if low is None else low, highest
    if _local.book is not None:
        _local.book.ranges.append(asked)  # looked at together, when the run is over
        return True
    verdict = np.zeros(1, np.int32, like=array)
    twin("deferred_checks", array=array).find_outside([asked], verdict)
    return not verdict.any()


def none(conditions):
    """Whether none of the conditions, on any device, holds; True where the verdict is left there."""
    if _local.book is None or not on_device(conditions):
        return not conditions.any()
    add_fault(conditions.any())
    return True


def add_fault(condition):
    """Leave a verdict: a 0-d array on the device, not zero at a fault."""
    _local.book.faults.append(condition)


def add_clamped(count):
    """Leave a count of raised variances, 0-d on the device."""
    _local.book.clamped.append(count)


def settle(value, leave=False):
    """``(value, raised variances)`` as a float and an int: the one copy to the host.

    Raises ``Fault`` where a check failed.

    With ``leave``, and amid ``leaving``, nothing is copied; then they are 0.
    """
    if leave and _local.left is not None and _local.book is not None:
        _local.left.value = value
        return 0.0, 0
    book, _local.book = _local.book, None
    if book is None:
        return float(value), 0
    return judged(book.found(value).get())


def judged(found):
    """``(value, raised variances)`` of what was found, once it is on the host.

    Raises ``Fault`` where a check failed.
    """
    value, faults, clamped = found.tolist()
    if faults:
        raise Fault
    return value, int(clamped)


class Left:
    """The value of a bound that nobody has read, on a device; None where there is none."""

    value = None

    def found(self):
        """(3,) float64 on the device, for ``judged``: what the bound and the checks after it left there. Ends these."""
        book, _local.book = _local.book, None
        value, self.value = self.value, None
        return book.found(value)


@contextlib.contextmanager
def leaving():
    """While this lasts nobody waits for the value of a bound with its gradient: it is 0.0, and what is true stays on the device.

    Gives a ``Left``. Checks that follow the bound leave their verdicts with it.
    """
    _local.left = Left()
    try:
        yield _local.left
    finally:
        _local.left = _local.book = None


@contextlib.contextmanager
def unread(*arrays):
    """While this lasts, verdicts are left on the device, and nobody reads them: who looks at the same things next finds out."""
    begin(*arrays)
    try:
        yield
    finally:
        _local.book = None


@contextlib.contextmanager
def waiting():
    """While this lasts, each check waits for its outcome."""
    _local.waiting = True
    try:
        yield
    finally:
        _local.waiting = False


def retried(bound: Callable[P, R]) -> Callable[P, R]:
    """A public function that runs a bound: once more, waiting for each check, where the device reports a fault."""
    bound = explaining(governed(bound))

    @functools.wraps(bound)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return bound(*args, **kwargs)
        except Fault:
            pass
        except BaseException as error:
            stopped, _local.book = _local.book is not None and isinstance(error, Exception), None
            if not stopped or isinstance(error, MemoryError) or _local.left is not None:
                raise  # else a check that was not waited for may know the cause
        with waiting():
            return bound(*args, **kwargs)

    return call
