"""A checkpoint resumes only with its own settings; settings without effect can differ."""

import dataclasses
import functools
import json

import numpy as np
import pytest
from support.fit_problems import assert_same, failing, problem
from support.own_optimiser import SignAscent

import fastsvgp as fs
from fastsvgp.train import comparison
from fastsvgp.train.steps import minibatch
from tests.train.test_em import problem as em_problem
from tests.train.test_fit_layers import problem as deep_problem
from tests.train.test_fit_sampled import problem as sampled_problem

OPTIONS = {"batch_size": 16, "rng": 3}
RAMP = fs.optim.schedules.log_linear


def checkpoint(tmp_path, model, X, Y, **options):
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=2, checkpoint=path, **OPTIONS | options)
    return path


def refused(model, X, Y, path, said, **options):
    with pytest.raises(ValueError) as caught:
        fs.fit(model, X, Y, steps=4, resume=path, **OPTIONS | options)
    assert said in str(caught.value), caught.value
    return str(caught.value)


# --- the model ------------------------------------------------------------------------------------


def changed(name, make):
    return lambda model: fs.replace(model, **{name: make(model)})


MODELS = {
    "`covariance` RBF then, Matern12 now": changed(
        "covariance", lambda m: fs.Matern12(1.0, m.covariance.lengthscales)
    ),
    "`posterior` Whitened then, Marginal now": changed(
        "posterior", lambda m: fs.posteriors.at_prior(fs.Marginal, m.covariance, m.inducing)
    ),
    "`likelihood` Gaussian then, Laplace now": changed(
        "likelihood", lambda m: fs.likelihoods.Laplace(0.1)
    ),
    "`mean` None then, ConstantMean now": changed("mean", lambda m: fs.means.ConstantMean(0.1)),
    "`covariance.lengthscales` of shape (2,) then, of shape () now": changed(
        "covariance", lambda m: fs.RBF(1.0, 1.0)
    ),
    "`covariance` RBF then, Sum now": changed(
        "covariance", lambda m: fs.covariances.Sum((m.covariance, fs.Linear()))
    ),
    "`inducing` of shape (5, 2) then, of shape (3, 2) now": lambda m: fs.replace(
        m, inducing=m.inducing[:3], posterior=fs.Whitened(np.zeros(3), np.eye(3))
    ),
}


@pytest.mark.parametrize("said", MODELS)
def test_another_model_is_refused_and_named(tmp_path, rng, said):
    model, X, Y = problem(rng)
    path = checkpoint(tmp_path, model, X, Y)
    message = refused(MODELS[said](model), X, Y, path, said)
    assert (
        "c.npz holds another model: " in message
        and "Resume with its own, fs.load(path).model, as `model`" in message
    )
    straight, _ = fs.fit(model, X, Y, steps=4, **OPTIONS)
    for start in (
        model,
        fs.load(path).model,
        fs.replace(model, covariance=fs.RBF(7.0, np.full(2, 0.3))),
    ):
        assert_same(fs.fit(start, X, Y, steps=4, resume=path, **OPTIONS)[0], straight)


def test_parts_and_settings_of_parts_are_compared(tmp_path, rng):
    model, X, Y = problem(rng)
    model = fs.replace(
        model,
        covariance=fs.covariances.Sum((fs.RBF(1.0, 1.0), fs.Linear())),
        likelihood=fs.StudentT(0.3, df=4.0),
    )
    path = checkpoint(tmp_path, model, X, Y)
    three = fs.replace(model, covariance=fs.covariances.Sum((*model.covariance.parts, fs.Linear())))
    refused(three, X, Y, path, "`covariance.parts` 2 parts then, 3 parts now")
    other = fs.replace(
        model, covariance=fs.covariances.Sum((fs.RBF(1.0, 1.0), fs.Matern32(1.0, 1.0)))
    )
    refused(other, X, Y, path, "`covariance.parts.1` Linear then, Matern32 now")
    said = "`likelihood.df` 4.0 then, 5.0 now; `likelihood.num_nodes` None then, 24 now"
    refused(fs.replace(model, likelihood=fs.StudentT(0.1, df=5.0, num_nodes=24)), X, Y, path, said)
    fs.fit(
        fs.replace(model, likelihood=fs.StudentT(0.9, df=4)), X, Y, steps=3, resume=path, **OPTIONS
    )


def test_a_wider_dtype_is_refused(tmp_path, rng):
    """X and Y are float32, and the model is float64."""
    model, X, Y = problem(rng, dtype=np.float32)
    path, wide = checkpoint(tmp_path, model, X, Y), problem(rng)[0]
    refused(wide, X, Y, path, "holds another model: float32 then, float64 now")
    path = checkpoint(tmp_path, wide, X, Y)
    assert fs.fit(wide, X, Y, steps=3, resume=path, **OPTIONS)[0].inducing.dtype == np.float64


@pytest.mark.parametrize("kind", ["sgpr", "deep", "qsgp", "em"])
def test_every_way_of_training_compares(tmp_path, rng, kind):
    path, options = tmp_path / "c.npz", {"rng": 3}
    train = functools.partial(fs.fit, **options, steps=2)
    if kind == "sgpr":
        start, X, Y = problem(rng)
        model = fs.SGPR(start.covariance, start.inducing, 0.1)
        other = fs.replace(model, covariance=fs.Matern12(1.0, 1.0))
    elif kind == "deep":
        model, X, Y = deep_problem(rng)
        other = fs.replace(model, likelihood=fs.likelihoods.Laplace(0.1))
    elif kind == "qsgp":
        model, X, Y = sampled_problem(rng)
        other = fs.replace(model, basis=fs.replace(model.basis, seed=model.basis.seed + 1))
    else:
        model, X, Y = em_problem(rng)
        other = fs.replace(
            model, posterior=fs.posteriors.at_prior(fs.Marginal, model.covariance, model.inducing)
        )
        train = functools.partial(fs.em, **options, rounds=1, m_iterations=2)
    train(model, X, Y, checkpoint=path)
    with pytest.raises(ValueError, match="holds another model: .* then, .* now"):
        train(other, X, Y, resume=path)
    with pytest.raises(
        ValueError, match="was made with other settings: `jitter` 1e-06 then, 0.0001 now"
    ):
        train(model, X, Y, resume=path, jitter=1e-4)
    if kind != "sgpr":  # which draws nothing
        with pytest.raises(ValueError, match="was made with other settings: `rng` 3 then, 4 now"):
            train(model, X, Y, resume=path, rng=4)
    with pytest.raises(ValueError, match="the optimiser moves .* then and not now"):
        train(model, X, Y, resume=path, fixed="inducing" if kind in ("sgpr", "em") else
              "layers.1.inducing" if kind == "deep" else "posterior.mean")  # fmt: skip
    train(model, X, Y, resume=path, jitter=1e-6)


def test_the_course_of_em_is_compared(tmp_path, rng):
    model, X, Y = em_problem(rng)
    path = tmp_path / "c.npz"
    fs.em(model, X, Y, rounds=1, checkpoint=path)
    for changes, said in (
        ({"e_limit": 50}, "`e_limit` 100 then, 50 now"),
        ({"step_size": 0.5}, "`step_size` 1.0 then, 0.5 now"),
        ({"optimiser": fs.adam()}, "`optimiser` None then, Adam now"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.em(model, X, Y, rounds=2, resume=path, **changes)
    assert fs.em(model, X, Y, rounds=2, tolerance=0.0, resume=path)[1].steps == 2


# --- the settings ---------------------------------------------------------------------------------

SETTINGS = {
    "`optimiser.step_size` 0.01 then, 0.02 now": ({}, {"optimiser": fs.adam(0.02)}),
    "`optimiser.step_size` 0.01 then, LogLinear now": (
        {},
        {"optimiser": fs.adam(RAMP(0.01, 0.1, 5))},
    ),
    "`optimiser.step_size.end` 0.1 then, 0.2 now": (
        {"optimiser": fs.adam(RAMP(0.01, 0.1, 5))},
        {"optimiser": fs.adam(RAMP(0.01, 0.2, 5))},
    ),
    "`optimiser.step_size` 0.01 then, Function now": (
        {},
        {"optimiser": fs.adam(lambda count: 0.01)},
    ),
    "`optimiser.step_sizes` nothing then, inducing now": (
        {},
        {"optimiser": fs.adam(step_sizes={"inducing": 0.1})},
    ),
    "`optimiser.step_sizes.inducing` 0.2 then, 0.1 now": (
        {"optimiser": fs.adam(step_sizes={"inducing": 0.2})},
        {"optimiser": fs.adam(step_sizes={"inducing": 0.1})},
    ),
    "`optimiser.transform` softplus then, log now": ({}, {"optimiser": fs.adam(transform="log")}),
    "`optimiser.parts.0.optimiser.step_size` 0.1 then, 0.3 now": tuple(
        {"optimiser": fs.optim.by_field(fs.adam(), {"inducing": fs.adam(size)})}
        for size in (0.1, 0.3)
    ),
    "`natural_step_size` None then, 0.1 now": ({}, {"natural_step_size": 0.1}),
    "`natural_step_size` 0.1 then, 0.2 now": (
        {"natural_step_size": 0.1},
        {"natural_step_size": 0.2},
    ),
    "`jitter` 1e-06 then, 1e-05 now": ({}, {"jitter": 1e-5}),
    "`jitter` 0.001 then, 1e-06 now": ({"jitter": 1e-3}, {}),
    "`rng` 3 then, 4 now": ({}, {"rng": 4}),
    "the optimiser moves covariance.variance then and not now": (
        {},
        {"fixed": "covariance.variance"},
    ),
    "the optimiser moves covariance.variance now and not then": (
        {"fixed": "covariance.variance"},
        {},
    ),
}


@pytest.mark.parametrize("said", SETTINGS)
def test_other_settings_are_refused_and_named(tmp_path, rng, said):
    model, X, Y = problem(rng)
    then, now = SETTINGS[said]
    path = checkpoint(tmp_path, model, X, Y, **then)
    message = refused(model, X, Y, path, said, **now)
    assert (
        "c.npz was made with other settings: " in message
        and "start from its model, fs.load(path).model" in message
    )
    straight, _ = fs.fit(model, X, Y, steps=4, **OPTIONS | then)
    assert_same(fs.fit(model, X, Y, steps=4, resume=path, **OPTIONS | then)[0], straight)


def test_inverse_updates_and_random_quantities_are_compared(tmp_path, rng):
    model, X, Y = problem(rng)
    q = fs.posteriors.Relaxed(mean=np.zeros(5), variance=np.ones(5), inverse_tril=0.5 * np.eye(5))
    model = fs.replace(model, posterior=q)
    path = checkpoint(tmp_path, model, X, Y, probes=4)
    refused(model, X, Y, path, "`probes` 4 then, 8 now", probes=8)
    updates = fs.optim.inverse_updates(tolerance=1e-2)
    refused(
        model,
        X,
        Y,
        path,
        "`inverse_updates.tolerance` 0.001 then, 0.01 now",
        probes=4,
        inverse_updates=updates,
    )
    fs.fit(
        model,
        X,
        Y,
        steps=3,
        resume=path,
        probes=4,
        inverse_updates=fs.optim.inverse_updates(),
        **OPTIONS,
    )


SAME = {
    "the defaults by name": ({}, {"optimiser": fs.adam(0.01), "jitter": 1e-6, "smoothing": 0.98}),
    "fixed in another place": (
        {"fixed": "inducing"},
        {"optimiser": fs.adam(fixed=("inducing", "inducing"))},
    ),
    "no seed": ({}, {"rng": None}),
    "a generator": ({}, {"rng": np.random.default_rng(9)}),
    "what only looks on": (
        {},
        {"callback": lambda *_: False, "validate": lambda m: 1.0, "patience": 9, "graph": False},
    ),
    "the same function, made again": tuple(
        {"optimiser": fs.adam(lambda count: 0.01 / (1 + count))} for _ in range(2)
    ),
    "one's own optimiser": tuple({"optimiser": SignAscent(0.01)} for _ in range(2)),
}


@pytest.mark.parametrize("case", SAME)
def test_what_does_not_change_the_course_may_differ(tmp_path, rng, case):
    model, X, Y = problem(rng)
    then, now = SAME[case]
    path = checkpoint(tmp_path, model, X, Y, **then)
    straight, _ = fs.fit(model, X, Y, steps=4, **OPTIONS | then)
    resumed, info = fs.fit(
        model, X, Y, steps=4, resume=path, checkpoint=tmp_path / "d.npz", **OPTIONS | now
    )
    assert_same(resumed, straight)
    assert info.steps == 4


def test_longer_training_extends_only_its_own_schedules(tmp_path, rng):
    model, X, Y = problem(rng)

    def options(total, length):
        size = fs.optim.schedules.cosine(0.1, 0.01, length)
        slow = fs.optim.by_field(
            fs.adam(size), {"inducing": fs.adam()}, after={"inducing": length // 2}
        )
        return {
            "optimiser": slow,
            "natural_step_size": RAMP(0.01, 0.1, length),
            "steps": total,
            **OPTIONS,
        }

    path = tmp_path / "c.npz"

    def stop(step, value, info):
        return step == 2

    fs.fit(model, X, Y, checkpoint=path, callback=stop, **options(10, 10))
    assert fs.fit(model, X, Y, resume=path, **options(20, 20))[1].steps == 20
    assert_same(
        fs.fit(model, X, Y, resume=path, **options(10, 10))[0],
        fs.fit(model, X, Y, **options(10, 10))[0],
    )
    with pytest.raises(
        ValueError,
        match="`optimiser.parts.0.after` 5 then, 10 now; .*step_size.steps` 10 then, 20 now",
    ):
        fs.fit(model, X, Y, resume=path, **options(10, 20))
    fs.fit(model, X, Y, resume=path, checkpoint=path, **options(12, 20))
    # those that went on count from then on
    with pytest.raises(ValueError, match="`natural_step_size.steps` 20 then, 10 now"):
        fs.fit(model, X, Y, resume=path, **options(12, 10))


def test_jitter_that_retries_raised_is_not_what_was_asked_for(tmp_path, rng, monkeypatch):
    model, X, Y = problem(rng)
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 0.9e-4))
    straight, info = fs.fit(model, X, Y, steps=4, **OPTIONS)
    path = checkpoint(tmp_path, model, X, Y)
    assert fs.load(path).retries == 2
    resumed, again = fs.fit(model, X, Y, steps=4, resume=path, **OPTIONS)
    assert_same(resumed, straight)
    assert again.retries == info.retries == 4


def test_a_setting_that_a_checkpoint_lacks_is_not_compared(tmp_path, rng):
    model, X, Y = problem(rng)
    path = checkpoint(tmp_path, model, X, Y)
    state = fs.load(path)
    left_out = "optimiser.beta1", "jitter"
    kept = {name: value for name, value in state.settings.items() if name not in left_out}
    fs.save(path, fs.replace(state, settings=kept))
    again, _ = fs.fit(
        model,
        X,
        Y,
        steps=4,
        resume=path,
        **OPTIONS | {"optimiser": fs.adam(beta1=0.8), "jitter": 1e-4},
    )
    assert np.isfinite(fs.elbo(again, X, Y))
    refused(
        model, X, Y, path, "`optimiser.beta2` 0.999 then, 0.99 now", optimiser=fs.adam(beta2=0.99)
    )


# --- descriptions of settings ---------------------------------------------------------------------


@dataclasses.dataclass
class Preconditioned:
    matrix: np.ndarray
    rate: float = 0.1
    cache: dict = dataclasses.field(default_factory=dict, compare=False)
    fixed: tuple = ()


class Opaque:
    def __init__(self, size):
        self.size = size


def plain(value):
    return json.loads(json.dumps(comparison.settings(total=1, it=value)))


def test_values_are_compared_as_far_as_they_can_be():
    one, other = (
        Preconditioned(np.eye(2), cache={"a": 1}),
        Preconditioned(np.eye(2), cache={"b": 2}, fixed=("inducing",)),
    )
    assert comparison.differences(plain(one), plain(other)) == []
    (words,) = comparison.differences(plain(one), plain(Preconditioned(2 * np.eye(2))))
    assert words.startswith("`it.matrix` an array float64 (2, 2) ")
    assert comparison.differences(
        plain(one), plain(dataclasses.replace(one, rate=np.float64(0.2)))
    ) == ["`it.rate` 0.1 then, 0.2 now"]
    assert comparison.differences(plain(Opaque(1)), plain(Opaque(2))) == []
    assert comparison.differences(plain(Opaque(1)), plain(one)) == [
        "`it` Opaque then, Preconditioned now"
    ]
    assert comparison.differences(plain(np.sin), plain(len)) == ["`it` ufunc then, a function now"]
    assert comparison.differences(plain(functools.partial(max, 1)), plain(lambda count: 1)) == []
    assert comparison.differences(plain(float("nan")), plain(float("nan"))) == []
    assert comparison.differences(plain((1, 2)), plain([1, 3])) == ["`it.1` 2 then, 3 now"]
    assert comparison.differences(plain(fs.RBF(1.0, 2.0)), plain(fs.RBF(1.0, 3.0))) == [
        "`it.lengthscales` 2.0 then, 3.0 now"
    ]
