"""How many threads: what the user said, else what the environment says, else the cores and the CPU time that are ours."""

import functools
import math
import os
import pathlib
from contextlib import AbstractContextManager

from .dispatch import twin

MOST = 1024  # of helpers a process could want; a larger number is a slip
VARIABLES = "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"

_count = None
_share = None


def get_num_threads() -> int:
    """How many threads fastsvgp uses.

    Returns
    -------
    int
        What ``set_num_threads`` said; else ``OMP_NUM_THREADS`` or ``NUMBA_NUM_THREADS``, where set;
        else, of a rank of ``fs.distributed.mpi``, its part of the cores of the host; else the
        smaller of the cores that this process may use and its CPU quota (of a control group),
        rounded up.

    Examples
    --------
    >>> with fs.set_num_threads(1):
    ...     fs.get_num_threads()
    1
    """
    if _count is not None:
        return _count
    return _asked() or _share or min(_cores(), _quota() or MOST)


def share_cores(count):
    """Let so many threads be the default: the part of the cores that is left to this process by others, who make room too."""
    global _share
    _share = count


def is_fixed():
    """Whether the number is what the user, or the environment, said, or others count on."""
    return (
        _count is not None
        or _asked() > 0
        or _share is not None
        or bool(os.environ.get("OPENBLAS_NUM_THREADS"))
    )


def set_num_threads(count: int | None) -> AbstractContextManager[None]:
    """Set the number of threads of our own kernels and, for the time of our calls, the most that SciPy's BLAS uses.

    Parameters
    ----------
    count : int or None
        From 1 to 1024; ``None`` goes back to the default of ``get_num_threads``.

    Returns
    -------
    context manager
        ``with set_num_threads(1): ...`` puts the number back afterwards, and in all of the block
        SciPy's BLAS has no more threads than that: beside other busy processes SciPy's optimisers,
        which call it between our calls, are several times as fast.

    Raises
    ------
    ValueError
        ``count`` is not such a number.

    Notes
    -----
    Bounds, predictions, natural steps and updates of inverse factors set SciPy's OpenBLAS while
    they run, never above what it was allowed (``OPENBLAS_NUM_THREADS``, ``threadpoolctl``), and put
    it back afterwards: to ``count`` threads, or to one where the matrices are so small that a
    second gains next to nothing, M^2 (M + batch) below 8 million, or where other processes want the
    cores, which calls on several threads then wait for. What you or the environment said is kept
    to: only the default number gives way to others. That pool belongs to the whole process: calls
    of several Python threads at once share the least of their settings, and a product of yours that
    runs beside such a call has it too. Where SciPy's BLAS is not OpenBLAS it keeps its own setting,
    and functions of ``fastsvgp.kernels`` that are called directly leave it alone everywhere.
    Results are bitwise equal for equal numbers of threads only.

    A process that forks while another of its Python threads is inside a product on two or more BLAS
    threads may hang, parent and child, inside OpenBLAS: call ``set_num_threads(1)`` before such
    threads start, or start processes by "spawn".

    Examples
    --------
    >>> with fs.set_num_threads(1):
    ...     value = fs.elbo(model, X, Y)
    """
    global _count
    before, _count = _count, None if count is None else _checked(count)
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


def _checked(count):
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
def _asked():
    """What the environment says, read once; 0 where it says nothing that can be followed."""
    for name in VARIABLES:
        # OpenMP allows a list, one for each level of nesting
        first = os.environ.get(name, "").partition(",")[0].strip()
        if first.isdecimal() and int(first) > 0:
            return min(int(first), MOST)
    return 0


def _cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


@functools.cache
def _quota():
    """The quota of this process in cores, read once; 0 where there is none."""
    return cpu_quota()


def cpu_quota(groups="/proc/self/cgroup", root="/sys/fs/cgroup"):
    """Cores' worth of CPU time that the control groups of this process allow, rounded up; 0 where nothing limits it.

    Parameters
    ----------
    groups : path
        Where Linux lists the groups of a process, one of each hierarchy a line:
        ``number:controllers:/path``.
    root : path
        Where they are mounted: version 2 here or, beside version 1, in ``unified``; version 1 in a
        folder by its controllers.

    Notes
    -----
    A group has at most what those above it have, so all of them are read. In a container the path
    may be that of the host, which cannot be seen from inside; the root of the mount is then the
    container's own group.
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
    """Microseconds of CPU time in so many of the clock; 0 for no limit, which version 2 writes as "max" and version 1 as -1."""
    return (
        int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else 0
    )


def _read(file):
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
