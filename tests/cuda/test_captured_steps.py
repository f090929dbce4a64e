"""Training steps captured into a CUDA graph: the same trajectory and the same launches every time.

In the emulation of CuPy, a graph launch runs the function that it would capture. With the stand-in
driver a launch replays what was captured, if the driver can, and else runs the function again.
"""

import logging
import sys

import numpy as np
import pytest
from support.posterior_problems import ROWS, in_model

import fastsvgp as fs
from fastsvgp.errors import Diverged
from fastsvgp.kernels.cuda.common import graphs, loader
from fastsvgp.likelihoods import layout
from fastsvgp.records import record
from fastsvgp.train.steps import cuda_graph
from fastsvgp.train.steps.cuda_graph import CapturedSteps
from fastsvgp.train.steps.minibatch import MinibatchSteps

M, N, D = 11, 60, 3
LIKELIHOODS = {
    "gaussian": (fs.Gaussian(np.float64(0.3)), ()),
    "laplace": (fs.likelihoods.Laplace(np.float64(0.4)), ()),
    "student": (fs.StudentT(np.float64(0.4), df=4.0), (2,)),
    "probit": (fs.BernoulliProbit(), ()),
    "logit": (fs.likelihoods.BernoulliLogit(), ()),
    "poisson": (fs.Poisson(), ()),
    "zero_inflated": (fs.likelihoods.ZeroInflatedPoisson(np.float64(0.3)), ()),
    "ordinal": (fs.likelihoods.Ordinal(np.float64(-0.5), np.ones(1)), ()),
    "heteroskedastic": (fs.likelihoods.HeteroskedasticGaussian(), (2,)),
    "negative_binomial": (fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=8), (4,)),
    "robust": (fs.likelihoods.RobustMax(num_classes=3), (3,)),
}


def model_of(rng, outputs=(), likelihood=None, dtype=np.float64):
    W = np.tril(0.1 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    q = fs.Whitened(0.3 * rng.standard_normal((*outputs, M)), W)
    covariance = fs.covariances.Sum(
        (fs.Matern32(np.float64(1.3), np.array([0.8, 1.1, 1.4])), fs.Linear(np.float64(0.2)))
    )
    mean = (
        fs.means.LinearMean(0.1 * rng.standard_normal(D), np.float64(0.2)) if not outputs else None
    )
    model = fs.SVGP(
        covariance, rng.standard_normal((M, D)), q, likelihood or fs.Gaussian(np.float64(0.3)), mean
    )
    return fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model)


def targets(rng, likelihood, outputs):
    if likelihood.num_latent not in (None, 1):
        return rng.integers(0, 3, N)
    shape = (N, *layout.outputs_of(likelihood, outputs))
    kinds = {"BernoulliProbit": lambda: rng.integers(0, 2, shape),
             "BernoulliLogit": lambda: rng.integers(0, 2, shape),
             "Poisson": lambda: rng.integers(0, 5, shape),
             "ZeroInflatedPoisson": lambda: rng.integers(0, 3, shape),
             "Ordinal": lambda: rng.integers(0, 3, shape),
             "HeteroskedasticNegativeBinomial": lambda: rng.integers(0, 5, shape)}  # fmt: skip
    return kinds.get(type(likelihood).__name__, lambda: rng.standard_normal(shape))()


def assert_equal(a, b):
    for (path, _, x), (_, _, y) in zip(
        fs.records.leaves(fs.to_host(a)), fs.records.leaves(fs.to_host(b)), strict=True
    ):
        np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


def both(model, X, Y, **settings):
    """Train by captured steps, and by ordinary ones."""
    settings = {"steps": 5, "batch_size": 16, "rng": 3, "jitter": 1e-5} | settings
    return [fs.fit(fs.to_device(model), X, Y, graph=graph, **settings) for graph in (True, False)]


@pytest.fixture
def taken(monkeypatch):
    """The kinds of step objects that were created."""
    made, plain = [], MinibatchSteps.__init__
    monkeypatch.setattr(
        MinibatchSteps,
        "__init__",
        lambda self, *args: made.append(type(self)) or plain(self, *args),
    )
    return made


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_captured_steps_have_the_same_trajectory(gpu, rng, name, dtype):
    likelihood, outputs = LIKELIHOODS[name]
    model, X, Y = (
        model_of(rng, outputs, likelihood, dtype),
        rng.standard_normal((N, D)),
        targets(rng, likelihood, outputs),
    )
    X = X.astype(dtype)
    (found, info), (expected, other) = both(model, X, Y.astype(dtype) if Y.dtype.kind == "f" else Y)
    np.testing.assert_array_equal(info.values, other.values)
    assert_equal(found, expected)


@pytest.mark.parametrize("optimiser", [
    fs.sgd(1e-3), fs.sgd(1e-3, momentum=0.9),
    fs.adam(fs.optim.schedules.cosine(0.02, 1e-3, 5), step_sizes={"inducing": 1e-3}),
    fs.adam(0.02, fixed=("inducing", "covariance"), transform="log"),
], ids=["sgd", "momentum", "sizes", "fixed"])  # fmt: skip
def test_optimisers(gpu, rng, optimiser):
    model, X = model_of(rng), rng.standard_normal((N, D))
    (found, info), (expected, other) = both(model, X, X[:, 0], optimiser=optimiser)
    np.testing.assert_array_equal(info.values, other.values)
    assert_equal(found, expected)


@pytest.mark.parametrize("name", ROWS)
def test_posteriors(gpu, rng, name):
    model, random = in_model(rng, name, model_of(rng), ())
    fixed = model.posterior.held_fields and tuple(
        f"posterior.{field}" for field in model.posterior.held_fields
    )
    if random or model.posterior.inverse_field:
        pytest.skip("its steps draw numbers, or update an inverse")
    X = rng.standard_normal((N, D))
    (found, info), (expected, other) = both(
        model, X, X[:, 0], steps=3, fixed=fixed or None, natural_step_size=None
    )
    np.testing.assert_array_equal(info.values, other.values)
    assert_equal(found, expected)


def test_resumed_bit_by_bit(gpu, rng, tmp_path):
    model, X = fs.to_device(model_of(rng)), rng.standard_normal((N, D))
    settings = {"batch_size": 16, "rng": 3, "graph": True}
    expected, info = fs.fit(model, X, X[:, 0], steps=7, **settings)
    saved = tmp_path / "state.npz"
    fs.fit(model, X, X[:, 0], steps=4, checkpoint=saved, **settings)
    found, again = fs.fit(
        model, gpu.there(X), gpu.there(X[:, 0]), steps=7, resume=saved, **settings
    )
    np.testing.assert_array_equal(again.values, info.values)
    assert_equal(found, expected)
    assert_equal(
        fs.fit(model, X, X[:, 0], steps=7, resume=saved, **settings | {"graph": False})[0], expected
    )


def test_callback_models_are_not_overwritten(gpu, rng):
    """A callback gets the model after its step; the best and the initial model do not change."""
    model, X, seen = fs.to_device(model_of(rng)), rng.standard_normal((N, D)), []
    before = fs.to_host(model)
    scores = iter([1.0, 3.0, 2.0, 0.0, -1.0])

    def callback(step, value, info):
        seen.append(fs.to_host(info.model))

    settings = {"batch_size": N, "rng": 3, "graph": True, "steps": 4, "validate_every": 1}
    best, info = fs.fit(
        model, X, X[:, 0], callback=callback, validate=lambda model: next(scores), **settings
    )
    assert_equal(best, seen[1])
    assert len(info.scores) == 4
    assert_equal(model, before)
    for k in (1, 3):
        assert_equal(
            seen[k], fs.fit(model, X, X[:, 0], batch_size=N, rng=3, graph=False, steps=k + 1)[0]
        )


@pytest.mark.parametrize("graph", [True, False])
def test_error_in_a_later_batch_is_found(gpu, rng, graph, tmp_path):
    model, X, saved = (
        fs.to_device(model_of(rng)),
        rng.standard_normal((N, D)),
        tmp_path / "state.npz",
    )
    Y = X[:, 0].copy()
    Y[40] = np.nan
    steps = []
    with pytest.raises(ValueError, match="`Y` contains nan at index 40"):
        fs.fit(model, X, Y, steps=9, batch_size=10, rng=4, graph=graph,
               callback=lambda step, *_: steps.append(step),
               checkpoint=saved)  # fmt: skip
    assert len(steps) < 6 and (not steps or fs.load(saved).step == steps[-1])


def test_more_jitter_where_it_has_to_be(gpu, rng, caplog):
    model, X = model_of(rng), rng.standard_normal((N, D))
    Z = model.inducing.copy()
    Z[1] = Z[0]
    model = fs.replace(model, inducing=Z, covariance=fs.RBF(np.float64(1.0), np.ones(D)))
    (found, info), (expected, other) = both(model, X, X[:, 0], jitter=0.0, fixed="inducing")
    assert info.retries == other.retries == 5
    np.testing.assert_array_equal(info.values, other.values)
    assert_equal(found, expected)


def test_overflowing_gradient_raises_diverged(gpu, rng):
    """The value is still finite.

    For a variance s of 1e-20, (y - f)^2 / s^2 is beyond float32, and (y - f)^2 / s is not.
    """
    model = model_of(rng, likelihood=fs.Gaussian(np.float64(1e-20)), dtype=np.float32)
    model, X = fs.to_device(model), rng.standard_normal((N, D)).astype(np.float32)
    for graph in (True, False):
        with pytest.raises(
            Diverged, match="the gradient has NaN or infinity in 'likelihood.variance' at step 1"
        ):
            fs.fit(model, X, X[:, 0], steps=3, batch_size=10, rng=4, graph=graph, jitter=1e-3)


def test_an_interrupt_keeps_the_last_whole_step(gpu, rng, monkeypatch):
    model, X = fs.to_device(model_of(rng)), rng.standard_normal((N, D))
    expected, _ = fs.fit(model, X, X[:, 0], steps=3, batch_size=10, rng=4)
    plain, calls = cuda_graph.deferred_checks.outcome, []

    def torn(found):
        calls.append(found)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return plain(found)

    monkeypatch.setattr(cuda_graph.deferred_checks, "outcome", torn)
    found, info = fs.fit(model, X, X[:, 0], steps=9, batch_size=10, rng=4, graph=True)
    assert info.interrupted and info.steps == 3
    assert_equal(found, expected)


@record
class Own(fs.Gaussian):
    """A user-defined likelihood."""


def test_reasons(gpu, rng, caplog, taken):
    model, X = model_of(rng), rng.standard_normal((N, D))
    there, settings = fs.to_device(model), {"steps": 1, "batch_size": 16, "rng": 3}
    soft = fs.to_device(model_of(rng, (3,), fs.Softmax(num_classes=3)))
    mixed = fs.records.replace_at(there, "likelihood.variance", 0.3)
    refused = [
        (model, {}, X[:, 0], "the model is on the host"),
        (there, {"natural_step_size": 0.1}, X[:, 0], "branch on the host"),
        (soft, {}, np.zeros(N, int), "its own random numbers"),
        (there, {"m_steps": 2}, X[:, 0], "several steps"),
        (there, {"optimiser": fs.adam(fs.optim.schedules.plateau(0.01))}, X[:, 0],
         "neither adam nor sgd"),
        (mixed, {}, X[:, 0], "`likelihood.variance` is a number of the host"),
    ]  # fmt: skip
    for one, more, Y, words in refused:
        with pytest.raises(ValueError, match=rf"\(`graph=True`\): .*{words}"):
            fs.fit(one, X, Y, graph=True, **settings | more)
        caplog.clear()
        with caplog.at_level(logging.INFO, "fastsvgp"):
            fs.fit(one, X, Y, **settings | more)
        assert ("not captured" in caplog.text and words in caplog.text) is (one is not model)
    assert set(taken) == {MinibatchSteps}
    own = fs.replace(there, likelihood=Own(there.likelihood.variance))
    with caplog.at_level(logging.INFO, "fastsvgp"):
        fs.fit(own, X, X[:, 0], **settings)
    assert "Own is not of this package" in caplog.text
    fs.fit(own, X, X[:, 0], graph=True, **settings)
    assert taken[-2:] == [MinibatchSteps, CapturedSteps]
    with pytest.raises(ValueError, match='`graph` must be "auto", True or False'):
        fs.fit(there, X, X[:, 0], graph="yes", **settings)
    with pytest.raises(TypeError, match="`graph` is an option of .*SVGP and VIF, not of SGPR"):
        fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, X[:, 0], steps=1, graph=True)


def test_refused_capture_is_logged(gpu, rng, caplog, monkeypatch):
    """The refusal is logged, and training continues without a graph."""

    class Refusing:
        def __init__(self, body, beside=None):
            pass

        def __call__(self):
            raise graphs.NotCaptured("CUDARuntimeError: cudaErrorStreamCaptureUnsupported")

    model, X = fs.to_device(model_of(rng)), rng.standard_normal((N, D))
    settings = {"steps": 3, "batch_size": 16, "rng": 3}
    expected, _ = fs.fit(model, X, X[:, 0], graph=False, **settings)
    monkeypatch.setattr(graphs, "Recorded", Refusing)
    found, _ = fs.fit(model, X, X[:, 0], **settings)
    assert (
        caplog.text.count("cudaErrorStreamCaptureUnsupported") == 1
        and "continuing without" in caplog.text
    )
    assert_equal(found, expected)


def test_failed_capture_reports_the_reason(real):
    """Synchronising during capture aborts it; the next graph is not affected."""
    x = real.arange(3.0)

    def waits():
        if real.cuda.get_current_stream().is_capturing():
            raise RuntimeError("waiting here")
        return x + 1

    recorded = graphs.Recorded(waits)
    recorded()
    with pytest.raises(graphs.NotCaptured, match="RuntimeError: waiting here"):
        recorded()
    again = graphs.Recorded(lambda: x + 1)
    for _ in range(3):
        np.testing.assert_array_equal(again().get(), [1.0, 2.0, 3.0])
        x[...] = real.arange(3.0)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_captured_steps_have_the_same_launches(real, rng, name, monkeypatch):
    """The first run of a step, the captured one and all later ones launch the same.

    Compared are kernels, grids, arguments and library calls. No copy to or from the host is made.
    """
    fakegpu, standin = sys.modules.get("fakegpu"), sys.modules.get("cuda_host.standin")
    if fakegpu is None:
        pytest.skip("only the stand-in driver tells what was launched")
    runs, launches, plain, launch = [], [], graphs.Recorded._apart, loader.launch

    def described(argument):
        return (
            (argument.shape, argument.strides, argument.dtype)
            if isinstance(argument, real.ndarray)
            else argument
        )

    def noted_launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
        launches.append(
            (stem, kernel, grid, block, shared_memory, *map(str, map(described, arguments)))
        )
        launch(stem, kernel, dtype, grid, block, arguments, shared_memory)

    def noted(self, function):
        before, launches[:] = fakegpu.counts(), []
        fakegpu.record()
        result = plain(self, function)
        notes = list(fakegpu.NOTES)
        fakegpu.record(False)
        after = fakegpu.counts()
        runs.append(
            (notes, list(launches), *(after[name] - before[name] for name in ("d2h", "h2d")))
        )
        return result

    likelihood, outputs = LIKELIHOODS[name]
    model, X = fs.to_device(model_of(rng, outputs, likelihood)), rng.standard_normal((N, D))
    Y = targets(rng, likelihood, outputs)
    settings = {"steps": 6, "batch_size": 16, "rng": 3}
    fs.fit(model, X, Y, **settings)  # loads kernels and fills caches
    monkeypatch.setattr(graphs.Recorded, "_apart", noted)
    monkeypatch.setattr(loader, "launch", noted_launch)
    fs.fit(model, X, Y, graph=True, **settings)
    # two first runs and two captures; four launches run the step again if they are no replays
    assert len(runs) == (4 if standin.REPLAYS else 8)
    (notes, launched, *_), *_ = runs
    assert len(notes) > len(launched) > 20
    for number, run in enumerate(runs):
        assert run == (notes, launched, 0, 0), number
