"""Whether others want the cores: what calls on several threads tell, and how long it is believed."""

import threading
import time

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.kernels import num_threads
from fastsvgp.kernels.cpu import crowd, openblas
from fastsvgp.kernels.governed import governed

LARGE = np.eye(400)


class Clocks:
    """Wall time, CPU time of the process and the time in the queue for a core, turned by hand."""

    def __init__(self, monkeypatch):
        self.wall = self.cpu = self.queued = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.cpu)
        monkeypatch.setattr(openblas, "queued", lambda: self.queued)

    def turn(self, wall, cpu, queued=None):
        self.wall += wall
        self.cpu += cpu
        self.queued += 0.4 * wall if queued is None else queued


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def test_who_gets_the_cores_is_alone(clocks):
    found = crowd.Crowd()
    for share in (1.0, 0.95, 0.81):
        found.observe(2, 2 * share, 1.0, 0.3)
        assert not found
    found.observe(4, 2.5, 1.0, 0.3)
    assert not found  # once is chance
    found.observe(4, 3.5, 1.0, 0.3)
    found.observe(4, 2.5, 1.0, 0.3)
    assert not found


def test_a_crowd_is_looked_for_again_after_longer_and_longer(clocks):
    found, pause = crowd.Crowd(), crowd.FIRST
    found.observe(2, 1.0, 1.0, 0.3)
    for _ in range(8):
        found.observe(2, 1.0, 1.0, 0.3)
        assert found
        clocks.turn(0.99 * pause, 0)
        assert found
        clocks.turn(0.02 * pause, 0)
        assert not found
        pause = min(2 * pause, crowd.LONGEST)
    assert pause == crowd.LONGEST
    found.observe(2, 1.9, 1.0, 0.3)
    assert not found
    for _ in range(2):
        found.observe(2, 1.0, 1.0, 0.3)
    clocks.turn(1.01 * crowd.FIRST, 0)
    assert not found  # alone for a moment, it begins anew


class Pool:
    """An OpenBLAS of three threads."""

    count = 3

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        self.count = count


@pytest.fixture
def pool(monkeypatch, clocks):
    """In a process that nobody told how many threads it has."""
    pool = Pool()
    monkeypatch.setattr(openblas, "scipys", lambda: pool)
    monkeypatch.setattr(openblas, "crowd", crowd.Crowd())
    monkeypatch.setattr(num_threads, "_count", None)
    monkeypatch.setattr(num_threads, "_asked", lambda: 0)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr(num_threads, "_cores", lambda: 3)
    monkeypatch.setattr(num_threads, "_quota", lambda: 0)
    return pool


def test_in_a_crowd_one_thread(pool, clocks):
    @governed
    def call(A, wall, cpu):
        clocks.turn(wall, cpu)
        return pool.count

    assert [call(LARGE, 1.0, 3.0) for _ in range(3)] == [3, 3, 3]
    assert [call(LARGE, 0.1, 0.15) for _ in range(4)] == [3, 3, 1, 1]
    clocks.turn(crowd.FIRST, 0.0)
    assert [call(LARGE, 0.1, 0.15) for _ in range(2)] == [3, 1]
    clocks.turn(2 * crowd.FIRST, 0.0)
    assert [call(LARGE, 0.1, 0.29) for _ in range(3)] == [3, 3, 3] and pool.count == 3
    assert [call(np.eye(20), 0.1, 0.1) for _ in range(3)] == [1, 1, 1]  # small ones tell of nobody
    assert call(LARGE, 0.1, 0.29) == 3


def test_what_the_user_said_is_kept_to(pool, clocks, monkeypatch):
    @governed
    def call(A):
        clocks.turn(1.0, 1.0)
        return pool.count

    assert [call(LARGE) for _ in range(3)] == [3, 3, 1]
    with fs.set_num_threads(2):
        assert [call(LARGE) for _ in range(3)] == [2, 2, 2]
    monkeypatch.setattr(num_threads, "_asked", lambda: 3)
    assert call(LARGE) == 3


def test_what_is_serial_is_no_crowd(pool, clocks):
    """Little CPU time without a queue for the cores: Python, files, a likelihood on one thread."""

    @governed
    def call(A, queued):
        clocks.turn(1.0, 1.0, queued)
        return pool.count

    assert [call(LARGE, 0.01) for _ in range(4)] == [3, 3, 3, 3]
    assert [call(LARGE, 0.1) for _ in range(3)] == [3, 3, 1]


def test_where_the_system_does_not_tell(pool, clocks, monkeypatch):
    monkeypatch.setattr(openblas, "queued", crowd.queued)
    monkeypatch.setattr(crowd, "STATISTICS", "/nowhere/schedstat")
    assert crowd.queued() is None
    for _ in range(4):
        assert openblas.enter(400, 400) and pool.count == 3
        clocks.turn(1.0, 0.5)
        openblas.leave()


def test_calls_of_several_threads_at_once_tell_nothing(pool, clocks):
    """One begins and ends within the other."""
    for _ in range(4):
        assert openblas.enter(400, 400)
        other = threading.Thread(target=lambda: openblas.enter(400, 400) and openblas.leave())
        other.start()
        other.join()
        clocks.turn(1.0, 0.1)
        openblas.leave()
    assert pool.count == 3 and not openblas.crowd and not openblas._inside


def test_a_thread_that_waits_for_a_core_says_so():
    if crowd.queued() is None:
        pytest.skip("no schedstat here")
    before, end = crowd.queued(), time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    assert 0 <= crowd.queued() - before < 0.06 + time.perf_counter() - end
