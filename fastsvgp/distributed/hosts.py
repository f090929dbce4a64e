"""Ranks that share a host: its cores, and what is compiled."""

import os

from ..kernels import num_threads


def share_cores(affinities, own):
    """Set the threads of this rank to its part of the cores, unless somebody has said how many.

    affinities : those of all ranks of the host, this one's among them; own : this one's
    """
    if not num_threads.was_asked():
        num_threads.set_num_threads(max(1, len(own) // affinities.count(own)))


def affinity():
    """The cores that this process may use, as a sorted tuple."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every platform
        return tuple(range(os.cpu_count() or 1))
