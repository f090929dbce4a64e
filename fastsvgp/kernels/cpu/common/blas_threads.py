"""The thread count of SciPy's OpenBLAS, reduced during a call if fewer threads are faster.

OpenBLAS splits a product over all its threads, which then wait for one another. If another process
occupies one of the cores, they wait until it has been scheduled out: three milliseconds and more in
every product, however small. Measured on two cores, a whole step of a whitened SVGP (D = 8) on one
and on two BLAS threads, in milliseconds: best times undisturbed (at real-time priority), and
medians with other processes running.

    M, B           100, 100    100, 256     100, 1024    150, 256     200, 256    512, 1024
    undisturbed    0.67 0.96   0.94 0.82    2.4 1.8      1.9 1.5      3.2 2.2     49 30
    disturbed      1.5  56     2.6  61      10  220      7.9 36       3.3 61      170 850

``SERIAL_BELOW`` is the value of M^2 (M + B), the flops of its products, above which two threads
gain more than a quarter undisturbed: from run to run (100, 256) is 0.94 0.82 or 0.96 1.30. Below it
predictions, SGPR and float32 gain 2 to 23 % from one thread; ``Marginal`` and ``LikelihoodForm``
lose, and still do at M = 200. A batch counts at most ``WIDEST`` rows: at M = 50 two threads gain 17
% however many there are.

The pool is accessed through ``ctypes``, by symbols that SciPy's own modules see: no other library's
pool is touched, and with another BLAS in SciPy nothing is. The setting is a number that products
read when they begin: reading it takes 0.1 us, writing it 0.1 us. It is one per process. So the
first call that needs fewer threads than are set saves the setting, concurrent calls can only lower
it further, and the last one to end restores it.
"""

import ctypes
import functools
import os
import threading
import time

import scipy.linalg.cython_blas

from ....runtime.num_threads import get_num_threads, is_fixed
from .contention import crowd, queued

SERIAL_BELOW = 8e6
WIDEST = 2048
# in SciPy's wheels; elsewhere
NAMES = "scipy_openblas_{}", "scipy_openblas_{}64_", "openblas_{}", "openblas_{}64_"


class OpenBLAS:
    """A loaded OpenBLAS.

    Its functions are called with the GIL held: Python code cannot fork in between.
    """

    def __init__(self, library, name):
        number, text = ctypes.c_int, ctypes.c_char_p
        for function, result, *arguments in (
            ("get_num_threads", number),
            ("set_num_threads", None, number),
            ("get_config", text),
            ("get_corename", text),
        ):
            symbol = getattr(library, name.format(function))
            symbol.restype, symbol.argtypes = result, arguments
            setattr(self, function, symbol)


@functools.cache
def scipys():
    """Return the OpenBLAS that SciPy is linked to; ``None`` if it has another BLAS or hides it."""
    try:
        # symbol lookup includes the dependencies of this library
        library = ctypes.PyDLL(scipy.linalg.cython_blas.__file__)
    except OSError:
        return None
    for name in NAMES:
        if hasattr(library, name.format("set_num_threads")):
            try:
                return OpenBLAS(library, name)
            except AttributeError:  # too old to report its version
                continue
    return None


def facts():
    """Describe SciPy's BLAS: version, the kernels it chose for this CPU, threads.

    ``None`` if it is not OpenBLAS.
    """
    blas = scipys()
    if blas is None:
        return None
    version = " ".join(blas.get_config().decode().split()[:2])  # "OpenBLAS 0.3.30"
    threads = blas.get_num_threads()
    return (
        f"{version}, {blas.get_corename().decode()} kernels, {threads} thread{'s' * (threads > 1)}"
    )


def allowed():
    """Return how many threads a product may use now; one if BLAS cannot be limited."""
    blas = scipys()
    return 1 if blas is None else min(get_num_threads(), blas.get_num_threads())


_lock = threading.RLock()  # reentrant: a signal handler can enter while its thread holds it
_inside = set()  # identities of the threads that are in a call
_before = None  # the setting to restore; None if nothing was changed
# (thread identity, BLAS threads, CPU and wall time at the start) of a call that can show contention
_watched = None


def enter(M, B):
    """Begin a call of this thread, with matrices of M x M and M x B numbers.

    Returns True if ``leave`` must end it. Returns False for a nested call, which keeps the setting
    of the outer one, and if there is nothing to set.
    """
    global _before, _watched
    blas, here = scipys(), threading.get_ident()
    if blas is None or here in _inside:
        return False
    small = M * M * (M + min(B, WIDEST)) < SERIAL_BELOW
    wanted = 1 if small or crowd and not is_fixed() else get_num_threads()
    try:
        with _lock:
            _inside.add(here)
            now = blas.get_num_threads()
            if wanted < now:
                if _before is None:
                    _before = now
                blas.set_num_threads(wanted)
            alone = len(_inside) == 1 and min(wanted, now) > 1 and not is_fixed()
            waited = queued() if alone else None
            if waited is not None:
                _watched = here, min(wanted, now), time.process_time(), time.perf_counter(), waited
            else:
                _watched = None  # concurrent calls show nothing about other processes
    except BaseException:  # an interrupt
        leave()
        raise
    return True


def leave(here=None):
    """End the call of this thread, or of the thread with the identity ``here``."""
    global _watched
    here, seen = threading.get_ident() if here is None else here, _watched
    if seen is not None and seen[0] == here:
        _, threads, cpu, wall, waited = seen
        _watched, now = None, queued()
        if now is not None:
            crowd.observe(
                threads, time.process_time() - cpu, time.perf_counter() - wall, now - waited
            )
    _inside.discard(here)
    if not _inside and _before is not None:
        _put_back()


def _put_back():
    global _before
    with _lock:
        if not _inside and _before is not None:
            scipys().set_num_threads(_before)
            _before = None


class one_thread:
    """Context in which BLAS uses one thread, for products of ranges that run in parallel.

    OpenBLAS would split each over all threads: sums over patches on two threads then take 2 to 6
    times as long.
    """

    __slots__ = ("_before",)

    def __init__(self):
        self._before = None

    def __enter__(self):
        blas = scipys()
        if blas is not None:
            with _lock:
                now = blas.get_num_threads()
                if now > 1:
                    # set first, because an interrupt can arrive at once
                    self._before = now
                    blas.set_num_threads(1)

    def __exit__(self, *_):
        before, self._before = self._before, None
        if before is not None:
            with _lock:
                if scipys().get_num_threads() == 1:  # otherwise another call has set it
                    scipys().set_num_threads(before)

    # an interrupt can arrive before the first line of __exit__
    __del__ = __exit__


def limit(count):
    """Limit calls and all other users to ``count`` threads; return the old limit, for ``allow``."""
    blas = scipys()
    with _lock:
        allowed = count if blas is None else blas.get_num_threads() if _before is None else _before
        allow(min(allowed, count))
    return allowed


def allow(count):
    """Allow ``count`` threads from now on, or from the end of the running calls."""
    global _before
    blas = scipys()
    if blas is None:
        return
    with _lock:
        if _before is not None:
            _before = count
        now = blas.get_num_threads()
        if count < now or count > now and _before is None:
            blas.set_num_threads(count)


def _only_this_thread():
    """Forget the calls of other threads in a forked child, which has only one thread."""
    global _lock
    _lock = threading.RLock()
    _inside.intersection_update([threading.get_ident()])
    if not _inside and _before is not None:
        _put_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_only_this_thread)
