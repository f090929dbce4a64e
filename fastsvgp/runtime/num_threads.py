"""The number of threads: set by the user, else by the environment, else by cores and CPU quota."""

import functools
import math
import os
import pathlib
from contextlib import AbstractContextManager

from .dispatch import twin

MOST = 1024  # threads; a larger number is taken for a mistake
VARIABLES = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"

_count = None
_share = None


def get_num_threads() -> int:
    """Return the number of threads that fastsvgp uses.

    Returns
    -------
    int
        The number passed to ``set_num_threads``; else ``OMP_NUM_THREADS`` or ``NUMBA_NUM_THREADS``,
        if set; else, on a rank of ``fs.distributed.mpi``, its share of the cores of the host; else
        the number of cores available to this process or its CPU quota (of a control group), rounded
        up, whichever is smaller.

    Examples
    --------
    >>> with fs.set_num_threads(1):
    ...     fs.get_num_threads()
    1
    """
    if _count is not None:
        return _count
    return _from_environment() or _share or min(_cores(), _quota() or MOST)


def share_cores(count):
    """Set the default number of threads: the share of the cores of one of several processes."""
    global _share
    _share = count


def is_fixed():
    """Whether the user, the environment or ``share_cores`` has set the number."""
    return (
        _count is not None
        or _from_environment() > 0
        or _share is not None
        or bool(os.environ.get("OPENBLAS_NUM_THREADS"))
    )


def set_num_threads(count: int | None) -> AbstractContextManager[None]:
    """Set the number of threads of fastsvgp and the maximum for SciPy's BLAS during its calls.

    Parameters
    ----------
    count : int or None
        Number of threads, 1 to 1024. ``None`` restores the default of ``get_num_threads``.

    Returns
    -------
    context manager
        ``with set_num_threads(1): ...`` restores the number afterwards. It limits SciPy's BLAS
        during the whole block: on a busy machine this makes SciPy's optimisers, which call BLAS
        between our calls, several times as fast.

    Raises
    ------
    ValueError
        ``count`` is not an integer from 1 to 1024 or None.

    Notes
    -----
    Bounds, predictions, natural steps and updates of inverse factors set the threads of SciPy's
    OpenBLAS while they run, and restore the number afterwards. They use ``count`` threads, but no
    more than OpenBLAS is allowed (``OPENBLAS_NUM_THREADS``, ``threadpoolctl``). They use one thread
    for small matrices, M^2 (M + batch) below 8 million, because a second gains almost nothing. They
    also use one thread if other processes compete for the cores, because calls on several threads
    then wait for one another; this applies only to the default number of threads, not to a number
    set by you or the environment.

    The pool of BLAS threads belongs to the whole process. Concurrent calls from several Python
    threads share the smallest of their settings, and so does a matrix product of your own code that
    runs at the same time. A BLAS other than OpenBLAS keeps its setting. Functions of
    ``fastsvgp.kernels`` that you call directly never change the setting. Results are bitwise equal
    only for equal numbers of threads.

    If a process forks while another Python thread is inside a product on two or more BLAS threads,
    parent and child can deadlock inside OpenBLAS. Call ``set_num_threads(1)`` before those threads
    start, or use the start method "spawn".

    Examples
    --------
    >>> with fs.set_num_threads(1):
    ...     value = fs.elbo(model, X, Y)
    """
    global _count
    before, _count = _count, None if count is None else _check_count(count)
    return _Setting(before)


class _Setting:
    def __init__(self, before):
        self._before = before

    def __enter__(self):
        self._allowed = twin("common.blas_threads").limit(get_num_threads())

    def __exit__(self, *_):
        global _count
        _count = self._before
        twin("common.blas_threads").allow(self._allowed)


def _check_count(count):
    try:
        whole = int(count)
        fits = not isinstance(count, bool) and whole == count and 1 <= whole <= MOST
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(
            f"set_num_threads: `count` must be a positive integer, at most {MOST}, or None, got"
            f" {count!r}"
        )
    return whole


@functools.cache
def _from_environment():
    """Return the number set by the environment, read once; 0 if there is no valid one."""
    for name in VARIABLES:
        # OpenMP allows a list, one number per nesting level
        first = os.environ.get(name, "").partition(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return min(int(first), MOST)
    return 0


def _cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # missing on some platforms
        return os.cpu_count() or 1


@functools.cache
def _quota():
    """Return the CPU quota of this process in cores, read once; 0 if there is none."""
    return cpu_quota()


def cpu_quota(groups="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """Return the CPU quota of this process's control groups in cores, rounded up; 0 if unlimited.

    Parameters
    ----------
    groups : path
        File in which Linux lists the groups of a process, one line per hierarchy:
        ``number:controllers:/path``.
    root : path
        Mount point of the groups. Version 2 is mounted here, or in ``unified`` beside version 1;
        version 1 is in folders named after its controllers.

    Notes
    -----
    A group is limited by all groups above it, so all of them are read. In a container the path can
    be that of the host, which is invisible inside; the root of the mount is then the group of the
    container.
    """
    root, found = pathlib.Path(root), []
    try:
        lines = pathlib.Path(groups).read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    for line in lines:
        _, controllers, path = (line + "::").split(":")[:3]
        if not controllers:
            mounts, read = (root, root / "unified"), _quota_of_version_2
        elif "cpu" in controllers.split(","):
            mounts, read = (root / controllers, root / "cpu"), _quota_of_version_1
        else:
            continue
        parts = pathlib.PurePosixPath(path).parts[1:]
        for mount in mounts:
            found += [read(mount.joinpath(*parts[:depth])) for depth in range(len(parts) + 1)]
    return math.ceil(min(filter(None, found), default=0))


def _quota_of_version_2(folder):
    return _ratio(*(_read(folder / "cpu.max").split() + ["", ""])[:2])


def _quota_of_version_1(folder):
    return _ratio(_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us"))


def _ratio(quota, period):
    """Divide quota by period, both in microseconds as text; 0 for no limit.

    Version 2 writes no limit as "max", version 1 as -1.
    """
    return (
        int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0
    )


def _read(file):
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
