"""Ranks that share a host: its cores, what is compiled, and its devices."""

import os

from ...runtime import cuda_devices, num_threads


def share_cores(affinities, own):
    """Let the threads of this rank be its part of the cores, unless somebody says how many.

    affinities : those of all ranks of the host, this one's among them; own : this one's
    """
    num_threads.share_cores(max(1, len(own) // affinities.count(own)))


def affinity():
    """The cores that this process may use, as a sorted tuple."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:  # not on every platform
        return tuple(range(os.cpu_count() or 1))


def use_device(group):
    """Have this process use a device of its own, ``cuda:{local_rank}``, and give its number.

    Ranks that see the same devices take one after the other; where a launcher shows each rank one,
    or some, that is how many there are for it. Raises on all ranks: ``ImportError`` or
    ``RuntimeError`` where some rank has no CuPy or no device, or where ranks of a host outnumber
    its devices.
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
