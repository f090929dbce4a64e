"""CPU contention: what calls on several threads show, and how long one thread is kept."""

import os
import threading
import time

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.kernels.cpu.common import blas_threads, contention
from fastsvgp.runtime import num_threads
from fastsvgp.runtime.edge import public_call

LARGE = np.eye(400)


class Clocks:
    """Manually advanced wall time, process CPU time, run-queue time and idle time."""

    def __init__(self, monkeypatch):
        self.wall = self.cpu = self.queued = 100.0
        self.idle = None
        monkeypatch.setattr(contention, "idle", lambda: self.idle)
        monkeypatch.setattr(time, "perf_counter", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.cpu)
        monkeypatch.setattr(blas_threads, "queued", lambda: self.queued)

    def turn(self, wall, cpu, queued=None):
        self.wall += wall
        self.cpu += cpu
        self.queued += 0.4 * wall if queued is None else queued


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def test_enough_cpu_time_is_no_contention(clocks):
    found = contention.Crowd()
    for share in (1.0, 0.95, 0.81):
        found.observe(2, 2 * share, 1.0, 0.3)
        assert not found
    found.observe(4, 2.5, 1.0, 0.3)
    assert not found  # once can be chance
    found.observe(4, 3.5, 1.0, 0.3)
    found.observe(4, 2.5, 1.0, 0.3)
    assert not found


def test_contention_is_tested_again_after_growing_delays(clocks):
    found, pause = contention.Crowd(), contention.FIRST
    found.observe(2, 1.0, 1.0, 0.3)
    for _ in range(8):
        found.observe(2, 1.0, 1.0, 0.3)
        assert found
        clocks.turn(0.99 * pause, 0)
        assert found
        clocks.turn(0.02 * pause, 0)
        assert not found
        pause = min(2 * pause, contention.LONGEST)
    assert pause == contention.LONGEST
    found.observe(2, 1.9, 1.0, 0.3)
    assert not found
    for _ in range(2):
        found.observe(2, 1.0, 1.0, 0.3)
    clocks.turn(1.01 * contention.FIRST, 0)
    assert not found  # after a short time without contention the delay restarts


def test_contention_lasts_while_others_use_the_cores(clocks):
    """Three cores, one used by this process: it tests again if the others were idle, or its own."""
    found, clocks.idle = contention.Crowd(), 1000.0
    for _ in range(2):
        found.observe(3, 1.5, 1.0, 0.3)
    for others in (2.0, 1.0, 0.3) * 10:
        clocks.turn(1.01 * contention.FIRST, contention.FIRST)
        clocks.idle += (2 - others) * contention.FIRST
        assert found
    for cpu in (1.0, 2.0):  # in the second round other threads of this process work too
        clocks.turn(1.01 * contention.FIRST, cpu * contention.FIRST)
        clocks.idle += (2.95 - cpu) * contention.FIRST
        assert not found
        found.observe(3, 1.5, 1.0, 0.3)  # but not all cores are available: the delay grows
        assert found
        clocks.turn(1.01 * contention.FIRST, contention.FIRST)
        clocks.idle += 2 * contention.FIRST
        assert found
        clocks.turn(3 * contention.FIRST, 3 * contention.FIRST)
        clocks.idle += 6 * contention.FIRST
        assert not found
        found.observe(3, 3.0, 1.0, 0.3)
        for _ in range(2):
            found.observe(3, 1.5, 1.0, 0.3)


def test_idle_cores_are_counted(tmp_path, monkeypatch):
    before, wall = contention.idle(), time.perf_counter()
    if before is not None:
        time.sleep(0.03)
        assert (
            -0.05
            <= contention.idle() - before
            <= (time.perf_counter() - wall + 0.02) * len(os.sched_getaffinity(0))
        )
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("no such thing here")
    monkeypatch.setattr(contention, "CORES", str(tmp_path / "stat"))
    assert contention.idle() is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {1, 10})
    lines = (
        "cpu  9 9 9 9 9 9\n",
        "cpu1 1 0 1 300 50 7 0\n",
        "cpu2 1 0 1 9999 0 0\n",
        "cpu10 1 0 1 20 30 7\n",
        "intr 1 2 3\n",
    )
    (tmp_path / "stat").write_text("".join(lines))
    assert contention.idle() == 400 / os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text("".join(lines[:3]))
    assert contention.idle() is None  # one of our cores is missing


class Pool:
    """An OpenBLAS of three threads."""

    count = 3

    def get_num_threads(self):
        return self.count

    def set_num_threads(self, count):
        self.count = count


@pytest.fixture
def pool(monkeypatch, clocks):
    """A process whose number of threads is not set."""
    pool = Pool()
    monkeypatch.setattr(blas_threads, "scipys", lambda: pool)
    monkeypatch.setattr(blas_threads, "crowd", contention.Crowd())
    monkeypatch.setattr(num_threads, "_count", None)
    monkeypatch.setattr(num_threads, "_from_environment", lambda: 0)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setattr(num_threads, "_cores", lambda: 3)
    monkeypatch.setattr(num_threads, "_quota", lambda: 0)
    return pool


def test_contention_limits_calls_to_one_thread(pool, clocks):
    @public_call(checks=False)
    def call(A, wall, cpu):
        clocks.turn(wall, cpu)
        return pool.count

    assert [call(LARGE, 1.0, 3.0) for _ in range(3)] == [3, 3, 3]
    assert [call(LARGE, 0.1, 0.15) for _ in range(4)] == [3, 3, 1, 1]
    clocks.turn(contention.FIRST, 0.0)
    assert [call(LARGE, 0.1, 0.15) for _ in range(2)] == [3, 1]
    clocks.turn(2 * contention.FIRST, 0.0)
    assert [call(LARGE, 0.1, 0.29) for _ in range(3)] == [3, 3, 3] and pool.count == 3
    assert [call(np.eye(20), 0.1, 0.1) for _ in range(3)] == [1, 1, 1]  # small ones show nothing
    assert call(LARGE, 0.1, 0.29) == 3


def test_thread_count_of_the_user_ignores_contention(pool, clocks, monkeypatch):
    @public_call(checks=False)
    def call(A):
        clocks.turn(1.0, 1.0)
        return pool.count

    assert [call(LARGE) for _ in range(3)] == [3, 3, 1]
    with fs.set_num_threads(2):
        assert [call(LARGE) for _ in range(3)] == [2, 2, 2]
    monkeypatch.setattr(num_threads, "_from_environment", lambda: 3)
    assert call(LARGE) == 3


def test_serial_work_is_no_contention(pool, clocks):
    """Little CPU time without run-queue delay: Python, files, a likelihood on one thread."""

    @public_call(checks=False)
    def call(A, queued):
        clocks.turn(1.0, 1.0, queued)
        return pool.count

    assert [call(LARGE, 0.01) for _ in range(4)] == [3, 3, 3, 3]
    assert [call(LARGE, 0.1) for _ in range(3)] == [3, 3, 1]


def test_contention_is_ignored_without_schedstat(pool, clocks, monkeypatch):
    monkeypatch.setattr(blas_threads, "queued", contention.queued)
    monkeypatch.setattr(contention, "STATISTICS", "/nowhere/schedstat")
    assert contention.queued() is None
    for _ in range(4):
        assert blas_threads.enter(400, 400) and pool.count == 3
        clocks.turn(1.0, 0.5)
        blas_threads.leave()


def test_concurrent_calls_show_no_contention(pool, clocks):
    """One begins and ends within the other."""
    for _ in range(4):
        assert blas_threads.enter(400, 400)
        other = threading.Thread(
            target=lambda: blas_threads.enter(400, 400) and blas_threads.leave()
        )
        other.start()
        other.join()
        clocks.turn(1.0, 0.1)
        blas_threads.leave()
    assert pool.count == 3 and not blas_threads.crowd and not blas_threads._inside


def test_run_queue_time_is_read():
    if contention.queued() is None:
        pytest.skip("no schedstat here")
    before, end = contention.queued(), time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass
    assert 0 <= contention.queued() - before < 0.06 + time.perf_counter() - end
