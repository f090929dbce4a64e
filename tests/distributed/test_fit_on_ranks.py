"""Training on several ranks: data, checkpoints, and one end for all ranks."""

import contextlib
import errno
import logging
import os
import sys
import threading

import numpy as np
import pytest
from support.rank_models import (
    TRAINING_ROWS as N,
    M,
    inverse_problem,
    layers_to_train,
    training_problem as problem,
)
from support.rank_problems import Changed, assert_ended_by, distance, ends, on_ranks

import fastsvgp as fs
from fastsvgp.collapsed import sgpr as collapsed
from fastsvgp.distributed.protocol import TrainingGroup
from fastsvgp.distributed.reduce import RankScale
from fastsvgp.optim.inverse import updates
from fastsvgp.train import checkpoints
from fastsvgp.train.steps.minibatch import MinibatchSteps

# models to train, and options of ``fit``
KINDS = {
    "svgp": (problem, {"batch_size": 17, "natural_step_size": 0.1}),
    "layers": (layers_to_train, {"batch_size": 11, "natural_step_size": 0.1}),
    "inverse": (
        inverse_problem,
        {"batch_size": 17, "inverse_updates": fs.optim.inverse_updates(nats=0.01)},
    ),
}


def test_a_rank_reads_its_part_of_the_rows_alone(rng):
    model, X, Y = problem(rng)

    class Watched:
        def __init__(self):
            self.shape, self.dtype, self.read = X.shape, X.dtype, 0

        def __len__(self):
            return N

        def __getitem__(self, rows):
            part = X[rows]
            self.read += len(part)
            return part

    def train(group):
        watched = Watched()
        fs.fit(model, watched, Y, steps=30, batch_size=20, rng=0, group=group)
        return watched.read

    for read in on_ranks(2, train):
        read -= N  # of which there are fewer than 256: compared over the ranks
        # 30 steps, and a look at the first batch before; a row that comes twice is read once
        assert 300 <= read <= 310


@pytest.mark.parametrize("kind", ["svgp", "layers"])
def test_batches_of_shards_raise_the_bound(rng, kind):
    model, X, Y = KINDS[kind][0](rng)
    cuts, options = [0, 1, 10, len(X)], {"rng": 3, "batch_size": 12}  # one row on a rank

    def train(group):
        own = slice(cuts[group.rank], cuts[group.rank + 1])
        return fs.fit(model, X[own], Y[own], steps=60, group=group, **options)

    found = on_ranks(3, train, "own")
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert fs.elbo(found[0][0], X, Y, rng=0) > fs.elbo(model, X, Y, rng=0)
    cuts = [0, len(X)]
    (alone,), (one, _) = on_ranks(1, train, "own"), fs.fit(model, X, Y, steps=60, **options)
    assert distance(alone[0], one) == 0


@pytest.mark.parametrize("kind", [fs.SGPR, fs.bounds.OrthogonalSGPR])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_search_on_rank_0(rng, size, kind):
    model, X, Y = problem(rng)
    inducing = (
        model.inducing
        if kind is fs.SGPR
        else fs.posteriors.InducingPair(X[: M - 2].copy(), X[M - 2 : M].copy())
    )
    sgpr = kind(model.covariance, inducing, 0.3)
    seen = []
    expected, info = fs.fit(sgpr, X, Y, steps=5)
    for rows in ("all", "own"):

        def train(group):
            own = (
                slice(None)
                if group.rows == "all"
                else slice(*(N * (group.rank + i) // size for i in range(2)))
            )
            return fs.fit(
                sgpr,
                X[own],
                Y[own],
                steps=5,
                group=group,
                callback=lambda *callback_args: seen.append(callback_args[0]) and False,
            )

        found = on_ranks(size, train, rows)
        assert all(distance(other, found[0][0]) == 0 for other, _ in found)
        # line searches multiply rounding, and that of one process with its rows in another order
        # too: after 20 iterations by 1e10
        np.testing.assert_allclose(found[-1][1].values[:2], info.values[:2], rtol=1e-12)
        np.testing.assert_allclose(found[-1][1].values, info.values, rtol=1e-8)
        assert distance(found[0][0], expected) < 1e-6
        for got, more in found:
            assert distance(more.svgp, fs.optimal_svgp(got, X, Y)) < 1e-9
            assert distance(more.svgp, found[0][1].svgp) == 0
    assert seen == [*range(1, 6)] * 2


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("kind", [None, fs.NotPositiveDefinite, OSError])
def test_the_last_pass_of_an_sgpr_fails_on_all_ranks_or_none(rng, monkeypatch, kind, steps):
    model, X, Y = problem(rng)
    sgpr, plain, failed = fs.SGPR(model.covariance, model.inducing, 0.3), collapsed.forward, []

    def forward(model, X, Y, jitter, weights, scale, **keep):
        last = sys._getframe(1).f_code.co_name == "_optimum"
        on_rank_1 = isinstance(scale, RankScale) and scale.communicator.rank == 1
        if last and kind is not None and on_rank_1 and not failed:
            failed.append(1)
            raise kind("no disk") if kind is OSError else kind((), 1, jitter, M, np.float64)
        return plain(model, X, Y, jitter, weights, scale)

    form = collapsed.FORMS[fs.SGPR]._replace(forward=forward)
    monkeypatch.setitem(collapsed.FORMS, fs.SGPR, form)

    def train(group):
        return fs.fit(sgpr, X, Y, steps=steps, group=group)

    if kind is OSError:
        assert all(
            isinstance(one, (OSError, fs.RemoteError)) and "no disk" in str(one)
            for one in ends(3, train)
        )
    else:
        found = on_ranks(3, train)
        assert {info.steps for _, info in found} == {steps}
        expected = fs.optimal_svgp(found[0][0], X, Y, jitter=1e-6 if kind is None else 1e-5)
        assert all(distance(info.svgp, expected) < 1e-9 for _, info in found)
    group_again = on_ranks(
        2,
        lambda group: (
            fs.fit(sgpr, X, Y, steps=1, group=group) and fs.fit(sgpr, X, Y, steps=1, group=group)
        ),
    )
    assert all(info.svgp is not None for _, info in group_again)


@pytest.mark.parametrize("kind", ["svgp", "layers"])
def test_resuming_on_another_number_of_ranks(rng, kind, tmp_path):
    make, options = KINDS[kind]
    model, X, Y = make(rng)
    path, absent = tmp_path / "state.npz", tmp_path / "nowhere.npz"
    expected, info = fs.fit(model, X, Y, steps=20, rng=5, **options)
    on_ranks(
        3,
        lambda group: fs.fit(model, X, Y, steps=8, rng=5, group=group, checkpoint=path, **options),
    )

    def resume(group, at=path):
        seen = at if group.rank == 0 else absent
        return fs.fit(model, X, Y, steps=20, group=group, resume=seen, **options)

    for size in (1, 2):
        found = on_ranks(size, resume)
        assert distance(found[-1][0], found[0][0]) == 0
        assert distance(found[-1][0], expected) < 1e-11 and len(found[-1][1].values) == 20
    assert distance(fs.fit(model, X, Y, steps=20, resume=path, **options)[0], expected) < 1e-11
    for error in ends(2, lambda group: resume(group, absent)):
        assert isinstance(error, (OSError, fs.RemoteError)) and "nowhere" in str(error)


def test_rank_0_validates_and_all_have_its_best(rng):
    model, X, Y = problem(rng)
    calls, scores = [], iter([1.0, 5.0, 2.0, 3.0, 0.0, 0.0])

    def validate(model):
        calls.append(float(model.likelihood.variance))
        return next(scores)

    options = {"steps": 40, "batch_size": 17, "rng": 1, "validate_every": 3}
    found = on_ranks(
        2, lambda group: fs.fit(model, X, Y, group=group, validate=validate, patience=2, **options)
    )
    assert [one[1].reason for one in found] == ["patience"] * 2 and [
        one[1].steps for one in found
    ] == [12, 12]
    assert len(calls) == 4
    assert [float(one[0].likelihood.variance) for one in found] == [calls[1]] * 2
    np.testing.assert_array_equal(found[0][1].scores, found[1][1].scores)


def test_patience_with_the_objective_is_decided_alike(rng):
    model, X, Y = problem(rng)
    options = {"steps": 300, "batch_size": 5, "rng": 1, "patience": 4}
    expected = fs.fit(model, X, Y, **options)[1]
    found = on_ranks(3, lambda group: fs.fit(model, X, Y, group=group, **options))
    assert [(one[1].reason, one[1].steps) for one in found] == [
        ("patience", expected.steps)
    ] * 3 and expected.steps < 300


@pytest.mark.parametrize("at", [4, 10])
@pytest.mark.parametrize("kind", KINDS)
def test_a_callback_ends_all_after_the_same_step(rng, kind, at):
    """Also at the last step, after which there is no all-reduce of another step."""
    make, options = KINDS[kind]
    model, X, Y = make(rng)
    options = options | {"steps": 10, "rng": 0, "callback": lambda step, *_: step == at}
    found = on_ranks(3, lambda group: fs.fit(model, X, Y, group=group, **options))
    assert [(one[1].reason, one[1].steps) for one in found] == [("callback", at)] * 3


def broken(*_):
    raise ZeroDivisionError("of our own")


FAILURES = {
    "callback": {"callback": lambda step, *_: step == 4 and broken()},
    "callback at the end": {"callback": lambda step, *_: step == 10 and broken()},
    "validate": {"validate": broken, "validate_every": 3},
    "validate at the end": {"validate": broken, "validate_every": 30},
}


@pytest.mark.parametrize("kind", ["svgp", "sgpr"])
@pytest.mark.parametrize("failure", FAILURES)
def test_errors_of_rank_0_end_all(rng, failure, kind, tmp_path):
    model, X, Y = problem(rng)
    if kind == "sgpr":
        if "validate" in FAILURES[failure]:
            pytest.skip("an SGPR is not validated")
        model = fs.SGPR(model.covariance, model.inducing, 0.3)
    path = tmp_path / "state.npz"
    first, *others = ends(
        3,
        lambda group: fs.fit(
            model, X, Y, steps=10, group=group, checkpoint=path, **FAILURES[failure]
        ),
    )
    assert isinstance(first, ZeroDivisionError) and "had done" in first.__notes__[0]
    assert path.exists() and fs.load(path).step == (
        10 if "end" in failure else 3 if "validate" in failure else 4
    )
    for other in others:
        assert isinstance(other, fs.RemoteError) and (other.rank, other.message) == (
            0,
            "ZeroDivisionError: of our own",
        )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["svgp", "sgpr", "layers"])
def test_bad_rows_of_one_rank(rng, kind, weighted):
    make, options = KINDS.get(kind, (problem, {}))
    model, X, Y = make(rng)
    if kind == "sgpr":
        model = fs.SGPR(model.covariance, model.inducing, 0.3)
    else:
        options = options | {"rng": 0}
    if weighted:
        options = options | {"weights": np.arange(len(X)) % 4}
    bad = len(X) * 4 // 7 // 4 * 4 + 2  # its weight is 2
    X[bad] = np.nan
    errors = ends(3, lambda group: fs.fit(model, X, Y, steps=10, group=group, **options))
    assert_ended_by(errors, f"index ({bad}, 0)")


@pytest.mark.parametrize("kind", ["svgp", "inverse"])
@pytest.mark.parametrize("at", [1, 2, 3, 6, 11])
def test_a_rank_without_memory(rng, monkeypatch, kind, at):
    """The other rank is in an all-reduce of the bound, or of an update of a factor."""
    make, options = KINDS[kind]
    model, X, Y = make(rng)
    model = fs.replace(model, likelihood=fs.StudentT(0.5)) if kind == "svgp" else model
    where = (fs.StudentT, "expected_log_prob") if kind == "svgp" else (updates, "variance_gap")
    plain, calls = getattr(*where), []

    def hungry(*arguments, **options):
        calls.append(0)
        if len(calls) == at:
            raise MemoryError("8 GiB")
        return plain(*arguments, **options)

    monkeypatch.setattr(*where, hungry)
    options = {"steps": 10, "rng": 0} | options
    errors = ends(2, lambda group: fs.fit(model, X, Y, group=group, **options))
    assert sorted(type(error).__name__ for error in errors) == ["MemoryError", "RemoteError"]
    assert all("8 GiB" in str(error) for error in errors)


@pytest.mark.parametrize("read", [2, 3, 4, 5])
def test_read_error_of_one_rank_ends_all(rng, read):
    """The second read is in the first step, whose first all-reduce belongs to an update."""
    make, options = KINDS["inverse"]
    model, X, Y = make(rng)

    class Failing:
        shape, dtype, reads = X.shape, X.dtype, 0

        def __len__(self):
            return N

        def __getitem__(self, rows):
            self.reads += 1
            if self.reads == read:
                raise OSError("gone")
            return X[rows]

    options = options | {"steps": 10, "batch_size": 18, "rng": 0}
    first, second = ends(
        2, lambda group: fs.fit(model, Failing() if group.rank else X, Y, group=group, **options)
    )
    assert isinstance(first, fs.RemoteError) and (first.rank, first.message) == (1, "OSError: gone")
    assert isinstance(second, OSError)


@pytest.mark.parametrize("where", [{0, 1, 2}, {1}])
def test_not_positive_definite_is_repeated_on_all_ranks(rng, monkeypatch, caplog, where):
    """It fails on all ranks, or on one, as rounding decides. Only rank 0 logs it."""
    model, X, Y = problem(rng)
    failing, call = set(where), TrainingGroup.call

    def broken_once(self, compute):
        def other():
            if self.group.rank in failing:
                failing.discard(self.group.rank)
                raise fs.NotPositiveDefinite((), 3, 1e-6, M, float)
            return compute()

        return call(self, other)

    monkeypatch.setattr(TrainingGroup, "call", broken_once)
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        found = on_ranks(
            3, lambda group: fs.fit(model, X, Y, steps=4, batch_size=17, rng=0, group=group)
        )
    assert [one[1].retries for one in found] == [1] * 3
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert len([record for record in caplog.records if "with jitter 1e-05" in record.message]) == 1


def test_a_full_disk_is_no_end(rng, tmp_path, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.files, "write_atomically", full)
    model, X, Y = problem(rng)
    train = lambda group: fs.fit(  # noqa: E731
        model, X, Y, steps=4, group=group, checkpoint=tmp_path / "s.npz", checkpoint_every=2
    )
    assert [one[1].reason for one in on_ranks(2, train)] == ["steps"] * 2
    assert sum("could not write" in record.message for record in caplog.records) == 3


def test_ranks_that_drift_apart_are_brought_together(rng):
    """Processors can round differently: a warning, and then the numbers of rank 0."""
    model, X, Y = problem(rng)

    def train(group):
        sums = []

        def drifting(buffer):
            sums.append(1)
            group.sum(buffer)
            if group.rank == 1 and len(sums) > 12 and len(buffer) > 20:
                buffer[8] *= 1 + 1e-10

        changed = Changed(group, sum=drifting)
        return fs.fit(model, X, Y, steps=20, batch_size=17, rng=0, group=changed)

    expected, _ = fs.fit(model, X, Y, steps=20, batch_size=17, rng=0)
    with pytest.warns(UserWarning, match="different parameters"):
        found = on_ranks(2, train)
    assert distance(found[0][0], expected) < 1e-9 and distance(*(one[0] for one in found)) < 1e-9


def test_no_file_of_another_rank_stays(rng, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model, X, Y = problem(rng)
    path = tmp_path / "state.npz"
    on_ranks(2, lambda group: fs.fit(model, X, Y, steps=2, group=group, checkpoint=path))
    with contextlib.suppress(FileNotFoundError):
        on_ranks(2, lambda group: fs.fit(model, X, Y, steps=3, group=group, resume=path))
    assert os.listdir(tmp_path) == ["state.npz"]


def test_first_rank_of_a_host_compiles_before_the_others(rng, monkeypatch):
    model, X, Y = problem(rng)
    seen, plain, here = [], MinibatchSteps.rehearse, threading.Barrier(3)

    def on_host(group):
        def wait():
            here.wait()
            seen.append("begin")

        return Changed(group, local_rank=group.rank, local_size=group.size, wait_on_host=wait)

    def rehearse(self):
        seen.append("compile")
        plain(self)
        seen.append("compiled")

    monkeypatch.setattr(MinibatchSteps, "rehearse", rehearse)
    found = on_ranks(
        3, lambda group: fs.fit(model, X, Y, steps=3, batch_size=17, rng=0, group=on_host(group))
    )
    assert seen == ["compile", "compiled", *["begin"] * 3]
    assert distance(found[0][0], fs.fit(model, X, Y, steps=3, batch_size=17, rng=0)[0]) < 1e-12
