"""Checkpoints: when they are written, how older files are kept, and resuming with the same data."""

import os
import signal

import numpy as np
import pytest
from support.fit_problems import assert_same, problem

import fastsvgp as fs
from fastsvgp.runtime import signals
from fastsvgp.train import checkpoints, data_digests
from tests.train.test_batches import OnDisk

OPTIONS = {"batch_size": 16, "rng": 0}


def both(rng):
    """Return a model for minibatches and one for all data at once, with options for each."""
    model, X, Y = problem(rng)
    return ((model, OPTIONS), (fs.SGPR(model.covariance, model.inducing, 0.1), {})), X, Y


# --- when -----------------------------------------------------------------------------------------


class Clock:
    """A clock: each step takes 25 seconds, each checkpoint a given time."""

    def __init__(self, monkeypatch, path, writing=0.0):
        self.now, self.written = 0.0, []
        self._plain, self._writing, self._path = checkpoints.as_npz, writing, path
        monkeypatch.setattr(checkpoints.Checkpoints, "clock", staticmethod(lambda: self.now))
        monkeypatch.setattr(checkpoints, "as_npz", self._as_npz)

    def _as_npz(self, state, extra):
        self.now += self._writing
        self.written.append(state.step)
        return self._plain(state, extra)

    def step(self, *_):
        self.now += 25.0


@pytest.mark.parametrize("which", [0, 1], ids=["svgp", "sgpr"])
def test_once_a_minute(tmp_path, rng, monkeypatch, which):
    starts, X, Y = both(rng)
    model, options = starts[which]
    clock = Clock(monkeypatch, tmp_path / "c.npz")
    fs.fit(model, X, Y, steps=10, checkpoint=tmp_path / "c.npz", callback=clock.step, **options)
    # the callback comes after: 75 s are over when the fourth step ends; and at the end
    assert clock.written == [4, 7, 10, 10]
    clock.written.clear()
    fs.fit(
        model,
        X,
        Y,
        steps=10,
        checkpoint=tmp_path / "d.npz",
        callback=clock.step,
        checkpoint_every=4,
        **options,
    )
    assert clock.written == [4, 8, 10]


def test_writing_takes_little_of_the_time(tmp_path, rng, monkeypatch):
    (start, _), X, Y = both(rng)
    clock = Clock(monkeypatch, tmp_path / "c.npz", writing=10.0)
    fs.fit(start[0], X, Y, steps=60, checkpoint=tmp_path / "c.npz", callback=clock.step, **start[1])
    assert clock.written == [4, 24, 44, 60]  # 500 s between them: 2 %


# --- an older file --------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["svgp", "sgpr"])
def test_another_file_there_is_kept_and_said_so(tmp_path, rng, caplog, which):
    starts, X, Y = both(rng)
    model, options = starts[which]
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
    assert not caplog.records and os.listdir(tmp_path) == ["c.npz"]
    fs.fit(model, X, Y, steps=5, checkpoint=path, resume=path, checkpoint_every=1, **options)
    assert not caplog.records and os.listdir(tmp_path) == ["c.npz"] and fs.load(path).step == 5
    fs.fit(model, X, Y, steps=4, checkpoint=path, checkpoint_every=1, **options)
    assert (fs.load(path).step, fs.load(f"{path}.previous").step) == (4, 5)
    assert (
        f"c.npz is there already: the first checkpoint of this training moves it to {path}.previous"
        in caplog.text
    )
    assert f"(resume={str(path)!r} would continue from it)" in caplog.text


def test_file_is_kept_only_if_a_checkpoint_replaces_it(tmp_path, rng, monkeypatch):
    (start, _), X, Y = both(rng)
    (tmp_path / "c.npz").write_text("of the user")
    with pytest.raises(ValueError, match="`X` contains nan"):
        fs.fit(
            start[0], np.full_like(X, np.nan), Y, steps=2, checkpoint=tmp_path / "c.npz", **start[1]
        )
    assert os.listdir(tmp_path) == ["c.npz"] and (tmp_path / "c.npz").read_text() == "of the user"


def test_leftovers_of_killed_processes_go(tmp_path, rng):
    (start, _), X, Y = both(rng)
    for name in (".c.npz.abcd_123.part", ".d.npz.abcd_123.part"):
        (tmp_path / name).write_text("half")
    fs.fit(start[0], X, Y, steps=1, checkpoint=tmp_path / "c.npz", **start[1])
    assert sorted(os.listdir(tmp_path)) == [".d.npz.abcd_123.part", "c.npz"]


def test_paths_are_no_numbers(tmp_path, rng):
    (start, _), X, Y = both(rng)
    for name in ("checkpoint", "resume"):
        with pytest.raises(
            TypeError, match=rf"`{name}` must be a path \(text or os.PathLike\), got 1"
        ):
            fs.fit(start[0], X, Y, steps=1, **{name: 1})


# --- the end by a signal, or by others ------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("which", [0, 1], ids=["svgp", "sgpr"])
def test_checkpoint_is_written_before_a_signal_ends_the_process(
    tmp_path, rng, monkeypatch, number, which
):
    starts, X, Y = both(rng)
    model, options = starts[which]
    delivered = []

    def ended(number):
        delivered.append((number, signal.getsignal(number), fs.load(tmp_path / "c.npz").step))

    def stop(step, value, info):
        if step == 3:
            os.kill(os.getpid(), number)

    before = signal.signal(number, signal.SIG_DFL)
    try:
        monkeypatch.setattr(signals.signal, "raise_signal", ended)
        _, info = fs.fit(
            model, X, Y, steps=9, checkpoint=tmp_path / "c.npz", callback=stop, **options
        )
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert info.interrupted and delivered == [(number, signal.SIG_DFL, 3)]


def test_without_a_checkpoint_the_signals_are_left_alone(rng):
    (start, _), X, Y = both(rng)
    seen = []
    before = signal.getsignal(signal.SIGTERM)
    fs.fit(
        start[0],
        X,
        Y,
        steps=1,
        callback=lambda *_: seen.append(signal.getsignal(signal.SIGTERM)),
        **start[1],
    )
    assert seen == [before]


@pytest.mark.parametrize("which", [0, 1], ids=["svgp", "sgpr"])
def test_a_program_that_exits_leaves_a_checkpoint(tmp_path, rng, which):
    """A program can also handle SIGTERM by ``sys.exit``."""
    starts, X, Y = both(rng)
    model, options = starts[which]

    def leave(step, value, info):
        if step == 2:
            raise SystemExit(7)

    with pytest.raises(SystemExit):
        fs.fit(model, X, Y, steps=9, checkpoint=tmp_path / "c.npz", callback=leave, **options)
    assert fs.load(tmp_path / "c.npz").step == 2


# --- with the same data ---------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["svgp", "sgpr"])
def test_other_data_are_refused_and_named(tmp_path, rng, which):
    starts, X, Y = both(rng)
    model, options = starts[which]
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=2, checkpoint=path, **options)
    one_cell, wide = X.copy(), np.column_stack([X, X[:, 0]])
    one_cell[17, 1] += 1e-9
    for other, said in (
        ((one_cell, Y), "the numbers in `X` are others. Resume"),
        ((X, -Y), "the numbers in `Y` are others. Resume"),
        (
            (X[::-1], Y[::-1]),
            "the numbers in `X` are others; the numbers in `Y` are others. Resume",
        ),
        ((wide, Y), "`X` had shape (60, 2) then, (60, 3) now. Resume"),
        ((X.astype(np.float32), Y), "`X` had dtype float64 then, float32 now. Resume"),
    ):
        with pytest.raises(ValueError, match="was made with other data: ") as caught:
            fs.fit(model, *other, steps=3, resume=path, **options)
        assert said in str(
            caught.value
        ) and "start again from its model, fs.load(path).model" in str(caught.value)
    expected, _ = fs.fit(model, X, Y, steps=3, **options)
    for same in (
        (X.copy(), Y.tolist()),
        (np.asfortranarray(X), Y[::-1].copy()[::-1]),
        (X.astype(">f8"), Y),
    ):
        got, _ = fs.fit(model, *same, steps=3, resume=path, **options)
        if which == 0:
            assert_same(got, expected)


def test_of_data_that_are_read_lazily_some_rows_are_compared(tmp_path, rng):
    (start, _), X, Y = both(rng)
    X, Y = np.tile(X, (20, 1)), np.tile(Y, 20)
    path, lazily = tmp_path / "c.npz", OnDisk(X)
    fs.fit(start[0], lazily, Y, steps=2, checkpoint=path, **start[1])
    assert lazily.most == data_digests.ROWS < len(X)
    mapped = np.memmap(tmp_path / "X", X.dtype, "w+", shape=X.shape)
    mapped[...] = X
    for same in (X, OnDisk(X), mapped):
        fs.fit(start[0], same, Y, steps=3, resume=path, **start[1])
    mapped[...] += 1e-9
    with pytest.raises(ValueError, match="the numbers in `X` are others"):
        fs.fit(start[0], mapped, Y, steps=3, resume=path, **start[1])


@pytest.mark.parametrize("N", [1, 2, 255, 256, 257, 1000])
def test_the_rows_compared_are_spread_from_the_first_to_the_last(N):
    class Noted(OnDisk):
        def __getitem__(self, rows):
            noted.append(rows)
            return super().__getitem__(rows)

    noted = []
    data_digests.compute(X=Noted(np.zeros((N, 1))))
    (rows,) = noted
    assert len(rows) == min(N, data_digests.ROWS) and rows[0] == 0 and rows[-1] == N - 1


def test_large_arrays_are_compared_by_some_rows_too(rng, monkeypatch):
    X = rng.standard_normal((1000, 3))
    other = X.copy()
    other[1] += 1  # not among the 256
    assert data_digests.differences(data_digests.compute(X=X), data_digests.compute(X=other)) == [
        "the numbers in `X` are others"
    ]
    monkeypatch.setattr(data_digests, "WHOLE", X.nbytes - 1)
    assert data_digests.differences(data_digests.compute(X=X), data_digests.compute(X=other)) == []
    other[0] += 1
    assert data_digests.differences(data_digests.compute(X=X), data_digests.compute(X=other)) == [
        "the numbers in `X` are others"
    ]


def test_a_note_is_kept(tmp_path, rng):
    (start, _), X, Y = both(rng)
    path = tmp_path / "c.npz"
    fs.fit(
        start[0],
        X,
        Y,
        steps=1,
        checkpoint=path,
        note={"inputs": ("a", "b"), "mean": np.float64(0.1)},
        **start[1],
    )
    assert fs.load(path).note == {"inputs": ["a", "b"], "mean": 0.1}
    fs.fit(start[0], X, Y, steps=2, checkpoint=path, resume=path, **start[1])
    assert fs.load(path).note == {"inputs": ["a", "b"], "mean": 0.1}
    with pytest.raises(
        TypeError,
        match="fit: `note` cannot be stored .*it must be numbers, text, or lists and dicts",
    ):
        fs.fit(start[0], X, Y, steps=1, note={1, 2}, **start[1])
