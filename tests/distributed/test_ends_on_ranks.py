"""Ends of a training on several ranks: Ctrl-C, errors of callers, checkpoints."""

import errno
import tempfile

import pytest
from support.rank_problems import Changed, ends, on_ranks

import fastsvgp as fs
from fastsvgp.distributed import broadcast
from tests.distributed.program import distance, problem


@pytest.mark.parametrize("failure", [SystemExit(3), StopIteration("s"), fs.RemoteError(5, "mine")])
def test_an_error_that_ranks_have_known_before_is_reported_again(failure):
    """The same error object, and one that it caused, count as unreported in each call."""
    model, X, Y = problem()
    errors = [failure, failure, ValueError("gave up")]
    errors[2].__cause__ = failure

    def train(group):
        def callback(step, *_):
            if step == 4:
                raise error

        for error in errors:
            with pytest.raises(type(error) if group.rank == 0 else fs.RemoteError):
                fs.fit(model, X, Y, steps=10, group=group, callback=callback)

    on_ranks(2, train)


@pytest.mark.parametrize("at", [1, 4, 10])
@pytest.mark.parametrize("name", ["callback", "validate"])
def test_ctrl_c_in_a_callback_ends_all_with_the_model(name, at):
    """As it does on one process."""
    model, X, Y = problem()
    steps = iter(range(1, 11))

    def interrupted(*_):
        if next(steps) == at:
            raise KeyboardInterrupt
        return 0.0

    every = {} if name == "callback" else {"validate_every": 1}
    found = on_ranks(
        3, lambda group: fs.fit(model, X, Y, steps=10, group=group, **{name: interrupted}, **every)
    )
    assert [(one[1].reason, one[1].steps) for one in found] == [("interrupted", at)] * 3
    assert all(distance(one[0], found[0][0]) == 0 for one in found)


def test_ctrl_c_while_ranks_meet_leaves_no_rank_in_a_sum():
    """It is raised as the meeting before the sum ends: this rank still sums, and then stops."""
    model, X, Y = problem()

    def work(group):
        meetings = []

        def interrupted(buffer):
            group.sum(buffer)
            meetings.append(len(buffer) == 5)
            if group.rank == 1 and sum(meetings) == 3:  # of a trial, of the call, of the sum
                raise KeyboardInterrupt

        mine = Changed(group, sum=interrupted)
        try:
            return fs.elbo(model, X, Y, group=mine)
        except KeyboardInterrupt:
            return "interrupted"

    first, second = on_ranks(2, work)
    assert (first, second) == (pytest.approx(fs.elbo(model, X, Y), rel=1e-12), "interrupted")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_checkpoint_that_a_rank_can_not_read_or_copy_ends_all(tmp_path, monkeypatch, rank):
    model, X, Y = problem()
    path = tmp_path / "state.npz"
    fs.fit(model, X, Y, steps=2, checkpoint=path)

    def full(*args, **_):
        if "wb" in args:
            return open(*args)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        *((tempfile, "mkstemp", full) if rank else (broadcast, "open", full)), raising=False
    )
    errors = ends(2, lambda group: fs.fit(model, X, Y, steps=3, group=group, resume=path))
    assert isinstance(errors[rank], OSError) and isinstance(errors[1 - rank], fs.RemoteError)
    assert all("No space left" in str(error) for error in errors)
