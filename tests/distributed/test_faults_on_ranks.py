"""A rank without memory anywhere in a training: all ranks learn of it, and none hangs."""

import gc
import pathlib
import sys
import threading
import types

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.distributed.groups import threads
from fastsvgp.kernels.cpu.common import blas_threads
from fastsvgp.records import replace
from fastsvgp.train.ranks import RankRecorder
from tests.distributed.program import D, M, problem

SOURCE = str(pathlib.Path(fs.__file__).parent)
# calls that report errors to other ranks, or that read the state: no fault is injected there
REPORTING = (
    "distributed/",
    "train/ranks.py",
    "runtime/signals.py",
    "steps/lbfgs.py:run",
    "steps/lbfgs.py:_say",
    "steps/lbfgs.py:_together",
    "train/loop.py:_state",
)
KINDS = {
    "adam": {"steps": 4},
    "natural": {"steps": 4, "natural_step_size": 0.1},
    "rounds": {"steps": 3, "natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
    "sgpr": {"steps": 3},
    "two sets": {"steps": 3},
    "deep": {"steps": 3, "natural_step_size": 0.1},
    "nats": {
        "steps": 4,
        "inverse_updates": fs.optim.inverse_updates(nats=1e-6, direction="likelihood"),
    },
}
MODELS = {  # of an SVGP
    "sgpr": lambda model: fs.SGPR(model.covariance, model.inducing, 0.3),
    "two sets": lambda model: fs.bounds.OrthogonalSGPR(
        model.covariance, fs.posteriors.InducingPair(model.inducing[:3], model.inducing[3:]), 0.3
    ),
    "deep": lambda model: fs.DeepGP(
        (replace(hidden(model), mean=fs.means.IdentityMean()), hidden(model, ())), model.likelihood
    ),
    "nats": lambda model: replace(
        model, posterior=fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M))
    ),
}
TRIALS = 12


def hidden(model, outputs=(D,)):
    """Make a layer."""
    q = fs.Whitened(
        np.zeros((*outputs, M)), np.broadcast_to(0.3 * np.eye(M), (*outputs, M, M)).copy()
    )
    return fs.layers.Layer(model.covariance, model.inducing, q)


class Fault:
    """A profiler that raises at a numbered call of this package, except in error reports."""

    def __init__(self, at=None):
        self.at, self.count, self.on = at, 0, False

    def __call__(self, frame, event, _):
        where = f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
        if (
            event == "call"
            and self.on
            and where.startswith(SOURCE)
            and not any(name in where for name in REPORTING)
        ):
            self.count += 1
            if self.count == self.at:
                raise MemoryError("8 GiB")


class Impatient(threading.Condition):
    """A condition with a timeout, for ranks that wait for one that has ended."""

    def wait_for(self, predicate, timeout=20):
        assert super().wait_for(predicate, timeout), "it hangs"


@pytest.fixture
def trained(monkeypatch):
    """Return a function of (kind of training, rank, fault): the ends of two ranks."""
    impatient = types.SimpleNamespace(Condition=Impatient, Thread=threading.Thread)
    monkeypatch.setattr(threads, "threading", impatient)
    run, closed, faults = RankRecorder.run, RankRecorder._close, {}

    def faulty(method, begins):
        def call(self, *args):
            fault = faults.get(self._session.rank)
            if fault is None:
                return method(self, *args)
            fault.on = begins
            try:
                return method(self, *args)
            finally:
                fault.on = False

        return call

    monkeypatch.setattr(RankRecorder, "run", faulty(run, True))
    # after this call nothing is left to report
    monkeypatch.setattr(RankRecorder, "_close", faulty(closed, False))

    def train(kind, rank, fault):
        model, X, Y = problem()
        options = KINDS[kind] | (
            {} if kind in ("sgpr", "two sets") else {"batch_size": 17, "rng": 3}
        )
        model = MODELS.get(kind, lambda model: model)(model)
        faults.clear()
        faults[rank] = fault

        def work(group):
            if group.rank == rank:
                sys.setprofile(fault)
            try:
                return fs.fit(model, X, Y, group=group, **options)[1].reason
            except Exception as error:
                return error
            finally:
                sys.setprofile(None)

        return fs.distributed.threads(2).run(work)

    return train


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_both_end_and_know_why(rng, trained, kind, rank):
    counted = Fault()
    trained(kind, rank, Fault())  # fills the caches
    assert trained(kind, rank, counted) == ["steps"] * 2
    reported = 0
    for at in np.sort(rng.choice(counted.count, TRIALS, replace=False)) + 1:
        ends = trained(kind, rank, Fault(at))
        if ends == ["steps"] * 2:  # in code whose errors are suppressed
            continue
        assert isinstance(ends[rank], MemoryError), (at, ends)
        other = ends[1 - rank]
        assert (
            isinstance(other, fs.RemoteError) and other.rank == rank and "8 GiB" in other.message
        ), (at, ends)
        reported += 1
    assert reported > TRIALS // 2
    del ends, other  # a traceback, which may be part of a cycle, holds the block that ends a call
    gc.collect()
    assert not blas_threads._inside  # a thread left inside would keep its setting for good
