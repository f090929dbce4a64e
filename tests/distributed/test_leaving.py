"""A rank that ends between two calls, or before the first: others learn which, and none hangs."""

import importlib.util
import sys
import threading
import time

import pytest
from support.rank_problems import ends, on_ranks

import fastsvgp as fs
from fastsvgp.distributed.groups import leaving
from tests.distributed.program import problem
from tests.distributed.test_processes import MPIEXEC, ended, started

SECONDS = 20  # more than any of this takes, and less than who waits for ever
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="needs mpi4py and an mpiexec: pip install mpi4py mpich",
)


def in_time(function):
    """Return the result or the error of a function in a thread; a hanging one fails the test."""
    found = []

    def work():
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(SECONDS)
    assert found, "it hangs"
    return found[0]


def bound(group):
    return fs.elbo(*problem(), group=group)


def train(group):
    return fs.fit(*problem(), steps=2, group=group)[1].reason


@pytest.mark.parametrize("call", [bound, train])
@pytest.mark.parametrize("calls", [0, 1])
def test_a_thread_that_returns(call, calls):
    def work(group):
        for _ in range(calls if group.rank == 1 else 2):
            call(group)

    first, second, third = in_time(lambda: ends(3, work))
    assert second is None
    for error in (first, third):
        assert (
            isinstance(error, fs.RemoteError)
            and error.rank == 1
            and "its function returned" in error.message
        )
        assert "have all ranks make the same calls" in str(error)


def test_a_thread_that_exits():
    def work(group):
        bound(group)
        if group.rank == 1:
            sys.exit(0)
        bound(group)

    assert isinstance(in_time(lambda: on_ranks(3, work)), SystemExit)


def test_threads_that_end_at_different_times_are_no_failure(rng):
    """A rank can end before others wake from the last sum. The groups can be used again."""
    groups, pauses = fs.distributed.threads(4), rng.uniform(0, 2e-3, (30, 4))

    def work(group):
        value = 0.0
        for row in pauses:
            value = bound(group)
            time.sleep(row[group.rank])
        return value

    expected = fs.elbo(*problem())
    assert in_time(lambda: groups.run(work)) == [pytest.approx(expected, rel=1e-10)] * 4
    assert groups.run(bound) == [pytest.approx(expected, rel=1e-10)] * 4
    found = []
    workers = [
        threading.Thread(target=lambda group=group: found.append(bound(group)), daemon=True)
        for group in groups
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(SECONDS)
    assert found == [pytest.approx(expected, rel=1e-10)] * 4


class OnThreads:
    """Ranks on threads, like processes whose programs end in ``leave``."""

    def __init__(self, group):
        self.group, self.rank, self.size, self.rows = group, group.rank, group.size, group.rows
        self.sum, self.broadcast = group.sum, group.broadcast


def leave(group):
    for _ in leaving.protocol.leaving(group, "its program ended"):
        pass


@pytest.mark.parametrize("call", [bound, train])
@pytest.mark.parametrize("calls", [0, 1])
def test_leaving_rank_is_named_to_all_that_call(call, calls):
    """A repeated call learns it immediately, and its own end then reports nothing."""

    def work(group):
        group = OnThreads(group)
        for _ in range(calls):
            call(group)
        if group.rank == 1:
            return leave(group)
        errors = []
        for _ in range(2):
            with pytest.raises(fs.RemoteError) as caught:
                call(group)
            errors.append((caught.value.rank, caught.value.message))
        leave(group)
        return errors

    first, second, third = in_time(lambda: on_ranks(3, work))
    assert (second, first, third) == (None, *[[(1, "its program ended")] * 2] * 2)


@pytest.mark.parametrize("size", [1, 3])
def test_all_that_leave_are_silent(size):
    def work(group):
        group = OnThreads(group)
        bound(group)
        leave(group)

    assert in_time(lambda: on_ranks(size, work)) == [None] * size
    # and none had started
    assert in_time(lambda: on_ranks(size, lambda group: leave(OnThreads(group)))) == [None] * size


def test_forked_and_finalised_processes_do_not_report(monkeypatch):
    """Neither can call the engine of its parent, or MPI after its end."""

    class Deaf:
        rank, size, rows = 0, 2, "all"

        def sum(self, buffer):
            raise AssertionError

        broadcast = sum

    entered = []
    monkeypatch.setattr(leaving, "_GROUPS", [(-1, Deaf(), lambda: False)])
    fs.distributed.tell_at_exit(Deaf(), lambda: entered.append(True) or True)
    monkeypatch.setattr(leaving.protocol, "leaving", lambda *_: pytest.fail("a report"))
    leaving._leave()
    assert entered == [True]


GONE = (
    "exits",
    "exits before a training",
    "returns",
    "has not started",
    "of two groups",
    "during a call",
)


@needs_mpi
@pytest.mark.parametrize("way", GONE)
def test_processes_that_end(way):
    code, said, err = ended(started(3, way, script="leaving_program.py", runner=()))
    assert (code, err) == (0, "")
    others = [one for one in said if one["rank"] != 1]
    assert len(others) == 2
    for one in others:
        assert one["end"] == "RemoteError" and one["who"] == [1, 1]
        assert all(
            message.startswith("its program ended, and other ranks still call")
            for message in one["messages"]
        )


@needs_mpi
@pytest.mark.parametrize("way", ["exits", "has not started"])
def test_processes_of_an_engine_of_your_own(way):
    code, said, err = ended(started(3, way, script="leaving_program.py", runner=(), ENGINE="1"))
    assert (code, err) == (0, "")
    assert [one["who"] for one in said if one["rank"] != 1] == [[1, 1]] * 2


@needs_mpi
def test_an_exit_in_a_callback():
    """All ranks learn of it immediately, and of the end of that program in the next call."""
    code, said, err = ended(started(3, "during a callback", script="leaving_program.py", runner=()))
    assert (code, err) == (0, "")
    assert [
        (one["rank"], one["who"], one["messages"][0])
        for one in sorted(said, key=lambda one: one["rank"])
    ] == [(rank, [0, 0], "SystemExit: 0") for rank in (1, 2)]
    assert all(one["messages"][1].startswith("its program ended, and") for one in said)


@needs_mpi
def test_an_error_that_escapes_from_plain_python():
    code, said, err = ended(started(3, "fails", script="leaving_program.py", runner=()))
    assert code == 1 and err.count("ZeroDivisionError: of our own") == 1
    assert [one["who"] for one in said] == [[1, 1]] * 2
    assert all(
        one["messages"][0].startswith("its program ended by ZeroDivisionError: of our own, and")
        for one in said
    )


@needs_mpi
@pytest.mark.parametrize("way", ["all together", "all apart", "unused by all"])
@pytest.mark.parametrize("runner", [(), ("-m", "mpi4py")])
def test_processes_that_have_done_all_end_silently(way, runner):
    code, said, err = ended(started(3, way, script="leaving_program.py", runner=runner))
    assert (code, err) == (0, "")
    assert [one["end"] for one in said] == ["value"] * 3


@needs_mpi
def test_mpi4py_ends_the_job_at_once():
    """If it is about to abort the job, no rank is notified or waited for."""
    code, _, err = ended(started(3, "fails", script="leaving_program.py"))
    assert code == 1 and err.count("ZeroDivisionError: of our own") == 1
