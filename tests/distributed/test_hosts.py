"""Ranks of a host share its cores, unless somebody has said how many threads there shall be."""

import pytest

from fastsvgp.distributed import hosts
from fastsvgp.kernels import num_threads


@pytest.mark.parametrize("affinities, due", [
    ([(0, 1, 2, 3)] * 2, 2),
    ([(0, 1, 2, 3)] * 3, 1),
    ([(0, 1, 2, 3)] * 9, 1),
    ([(0, 1, 2, 3), (4, 5)], 4),
])  # fmt: skip
def test_cores_are_shared_by_ranks_that_may_use_the_same(monkeypatch, affinities, due):
    said = []
    monkeypatch.setattr(num_threads, "set_num_threads", said.append)
    monkeypatch.setattr(num_threads, "was_asked", lambda: False)
    hosts.share_cores(affinities, affinities[0])
    assert said == [due]
    monkeypatch.setattr(num_threads, "was_asked", lambda: True)
    hosts.share_cores(affinities, affinities[0])
    assert said == [due]
