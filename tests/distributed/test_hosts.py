"""Ranks of a host share its cores, unless a number of threads is configured."""

import pytest

import fastsvgp as fs
from fastsvgp.distributed.groups import mpi
from fastsvgp.runtime import num_threads


@pytest.mark.parametrize("affinities, due", [
    ([(0, 1, 2, 3)] * 2, 2),
    ([(0, 1, 2, 3)] * 3, 1),
    ([(0, 1, 2, 3)] * 9, 1),
    ([(0, 1, 2, 3), (4, 5)], 4),
])  # fmt: skip
def test_cores_are_shared_by_ranks_that_may_use_the_same(monkeypatch, affinities, due):
    for name, value in (("_from_environment", lambda: 0), ("_count", None), ("_share", None)):
        monkeypatch.setattr(num_threads, name, value)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert not num_threads.is_fixed()
    mpi.share_cores([affinities[0]], affinities[0])  # a group of one, and then one of all
    mpi.share_cores(affinities, affinities[0])
    assert fs.get_num_threads() == due and num_threads.is_fixed()
    with fs.set_num_threads(3):
        mpi.share_cores(affinities, affinities[0])
        assert fs.get_num_threads() == 3
    monkeypatch.setattr(num_threads, "_from_environment", lambda: 5)
    assert fs.get_num_threads() == 5
