"""Ranks that share a host: its cores and its devices."""

import os

from ...runtime import cuda_devices, num_threads


def share_cores(affinities, own):
    """Set the number of threads of this rank to its part of the cores, unless one is configured.

    affinities : core sets of all ranks of the host, including this one's; own : this rank's
    """
    num_threads.share_cores(max(1, len(own) // affinities.count(own)))


def affinity():
    """Return the cores available to this process, as a sorted tuple."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every platform
        return tuple(range(os.cpu_count() or 1))


def use_device(group):
    """Assign a separate device to this process, ``cuda:{local_rank}``, and return its number.

    Ranks that see the same devices take them in their order. A launcher can show each rank only one
    or some devices; then the rank takes one of these. Raises on all ranks: ``ImportError`` or
    ``RuntimeError`` if some rank has no CuPy or no device, or if a host has more ranks than
    devices.
    """
    names, error = [], None
    try:
        names = cuda_devices.device_names()
    except Exception as failure:
        error = failure
    group.all_well(error)
    everyone = group.on_host(names)
    numbers = [everyone[:rank].count(seen) for rank, seen in enumerate(everyone)]
    taken = {
        seen[number] for number, seen in zip(numbers, everyone, strict=True) if number < len(seen)
    }
    if len(taken) < group.local_size:
        error = RuntimeError(
            f"{group.local_size} ranks on this host, and they see {len(set().union(*everyone))} of"
            " its devices: each needs one of its own; start fewer ranks a host, or look at"
            " CUDA_VISIBLE_DEVICES"
        )
    group.all_well(error)
    number = numbers[group.local_rank]
    cuda_devices.cupy().cuda.Device(number).use()
    return number
