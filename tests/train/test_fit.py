"""Training: which fields which steps move, what the steps reach, and messages."""

import logging

import numpy as np
import pytest
from support.fit_problems import M, classes, problem
from support.own_optimiser import SignAscent, SignState

import fastsvgp as fs
from fastsvgp.records import leaves, record
from fastsvgp.train.batches import Batches
from fastsvgp.train.steps import minibatch


def test_fixed_fields_stay_and_are_never_differentiated(rng, monkeypatch):
    model, X, Y = problem(rng)
    calls = []
    real = minibatch.natural_step_and_grad
    monkeypatch.setattr(
        minibatch,
        "natural_step_and_grad",
        lambda *a, wrt, **k: calls.append(wrt) or real(*a, wrt=wrt, **k),
    )
    got, _ = fs.fit(
        model, X, Y, steps=3, fixed=("inducing", "covariance.variance"), natural_step_size=0.1
    )
    assert calls == [("covariance.lengthscales", "likelihood.variance")] * 3
    np.testing.assert_array_equal(got.inducing, model.inducing)
    assert got.covariance.variance == 1.0 and (got.covariance.lengthscales != 1.0).all()
    assert (got.posterior.mean != 0).all()


def test_natural_steps_alone_reach_the_collapsed_bound(rng):
    model, X, Y = problem(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    best, _ = fs.collapsed_bound_and_grad(sgpr, X, Y)
    everything = ("covariance", "inducing", "likelihood")
    got, _ = fs.fit(model, X, Y, steps=3, natural_step_size=1.0, fixed=everything)
    np.testing.assert_allclose(fs.elbo(got, X, Y), best, rtol=1e-9)
    falling = fs.optim.schedules.exponential(0.5, 0.97)
    got, info = fs.fit(
        model, X, Y, steps=150, natural_step_size=falling, fixed=everything, batch_size=20
    )
    assert best - 0.05 * abs(best) < fs.elbo(got, X, Y) < best


@pytest.mark.parametrize(
    "natural, e_steps, m_steps", [(0.2, 3, 2), (0.2, 1, 3), (0.2, 4, 1), (None, 1, 3)]
)
@pytest.mark.parametrize(
    "kind",
    [fs.Whitened, fs.posteriors.AbsorbedDualSites, fs.posteriors.WhitenedOrthogonal],
    ids=lambda kind: kind.__name__,
)
def test_rounds_of_natural_steps_and_of_the_optimiser(rng, kind, natural, e_steps, m_steps):
    """A batch per natural step; the optimiser reuses the last one, then takes new ones."""
    model, X, Y = problem(rng)
    if kind is fs.posteriors.WhitenedOrthogonal:
        pair = fs.posteriors.InducingPair(model.inducing, X[:4])
        model = fs.replace(
            model, inducing=pair, posterior=fs.posteriors.at_prior(kind, model.covariance, pair)
        )
    elif kind is fs.posteriors.AbsorbedDualSites:
        model = fs.posteriors.convert(model, kind)
    sites = () if kind is not fs.posteriors.AbsorbedDualSites else ("posterior",)
    if sites and natural is None:
        natural = 0.1  # the default
    options = {"batch_size": 16, "rng": 3, "optimiser": fs.adam(0.02)}
    got, info = fs.fit(
        model, X, Y, steps=4, natural_step_size=natural, e_steps=e_steps, m_steps=m_steps, **options
    )
    batches, optimiser = (
        Batches(X, Y, 16, 3),
        fs.adam(0.02, fixed=() if natural is None else ("posterior",)),
    )
    state, values, at = optimiser.init(model), [], 0
    for _ in range(4):
        for i in range(e_steps if natural else 0):
            model, _ = fs.natural_step(model, *batches.at(at + i), step_size=natural, num_data=60)
        at += e_steps - 1
        for i in range(m_steps):
            value, grad = fs.elbo_and_grad(
                model, *batches.at(at + i), num_data=60, wrt=optimiser.paths(model)
            )
            model, state = optimiser.step(model, grad, state, value)
        at += m_steps
        values.append(value)
    np.testing.assert_allclose(info.values, values, rtol=1e-9)
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(got), fs.records.leaves(model), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7, err_msg=path)


def test_epochs_of_rounds(rng):
    model, X, Y = problem(rng)
    seen = []
    options = {"e_steps": 2, "m_steps": 2, "natural_step_size": 0.1, "batch_size": 10}
    _, info = fs.fit(
        model, X, Y, epochs=2, callback=lambda step, value, info: seen.append(info.epoch), **options
    )
    assert info.steps == 4 and seen == [0.5, 1.0, 1.5, 2.0]
    with pytest.raises(
        ValueError,
        match="fit: `e_steps` of 2 are natural steps of the posterior; give `natural_step_size`",
    ):
        fs.fit(model, X, Y, steps=1, e_steps=2)
    for name in ("e_steps", "m_steps"):
        with pytest.raises(
            ValueError, match=f"`{name}` must be a whole number of at least 1, got 0"
        ):
            fs.fit(model, X, Y, steps=1, natural_step_size=0.1, **{name: 0})
        with pytest.raises(
            TypeError,
            match=f"fit: `{name}` is an option of BasisSVGP, DeepGP, .*VIF, not of SGPR",
        ):
            fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y, **{name: 2})


def test_natural_steps_with_adam_reach_the_collapsed_optimum(rng):
    model, X, Y = problem(rng, D=1)
    best, found = fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y)
    assert found.reason == "converged"
    got, info = fs.fit(model, X, Y, steps=300, natural_step_size=1.0, optimiser=fs.adam(0.1))
    np.testing.assert_allclose(info.values[-1], found.values[-1], rtol=1e-6)
    np.testing.assert_allclose(got.covariance.lengthscales, best.covariance.lengthscales, rtol=1e-3)


def test_a_natural_step_that_backs_off_is_logged(rng, caplog):
    """Student-t is convex at outliers: a full step leaves the positive definite precisions."""
    model, X, Y = problem(rng, likelihood=fs.StudentT(scale=0.05, df=2))
    taken = []
    with caplog.at_level(logging.INFO, "fastsvgp"):
        fs.fit(
            model, X, Y + 3, steps=2, natural_step_size=30.0, fixed="inducing",
            callback=lambda step, value, info: taken.append(info.natural_step_size),
        )  # fmt: skip
    assert min(taken) < 30 and "the natural step of 30 would leave the cone; took" in caplog.text


@pytest.mark.parametrize(
    "make",
    [problem, classes, lambda rng: problem(rng, outputs=(2,))],
    ids=["one", "classes", "two"],
)
def test_adam_climbs(rng, make):
    model, X, Y = make(rng)
    start = fs.elbo(model, X, Y)
    got, info = fs.fit(model, X, Y, steps=100, batch_size=30, optimiser=fs.adam(0.05), rng=1)
    assert fs.elbo(got, X, Y) > start + 0.1 * abs(start)


def test_seeds(rng):
    model, X, Y = problem(rng)
    a, b, c = (
        fs.fit(model, X, Y, steps=3, batch_size=16, rng=seed)[1].values
        for seed in (1, np.random.default_rng(5), 2)
    )
    assert (a != c).any()
    np.testing.assert_array_equal(
        b, fs.fit(model, X, Y, steps=3, batch_size=16, rng=np.random.default_rng(5))[1].values
    )


@record
class RenamedState(SignState):
    pass


class Renamed(SignAscent):
    """An optimiser of another class whose state has the same shapes."""

    def init(self, model):
        return RenamedState(super().init(model).average, count=0)


def test_an_optimiser_of_ones_own(tmp_path, rng):
    model, X, Y = problem(rng)
    options = {"batch_size": 16, "rng": 0, "checkpoint": tmp_path / "c.npz"}
    seen = []
    got, _ = fs.fit(
        model,
        X,
        Y,
        steps=60,
        optimiser=SignAscent(0.01),
        callback=lambda step, value, i: seen.append(i.step_size),
        **options,
    )
    assert fs.elbo(got, X, Y) > fs.elbo(model, X, Y) + 5 and seen == [0.01] * 60
    # it moves no such thing
    np.testing.assert_array_equal(got.posterior.scale_tril, model.posterior.scale_tril)
    assert type(fs.load(tmp_path / "c.npz").optimiser).__name__ == "SignState"
    for other, kind in (
        (fs.adam(), "Adam"),
        (fs.optim.by_field(SignAscent(0.01), {}), "ByField"),
        (Renamed(0.01), "Renamed"),
    ):
        with pytest.raises(ValueError, match=f"`optimiser` SignAscent then, {kind} now"):
            fs.fit(model, X, Y, steps=61, optimiser=other, resume=tmp_path / "c.npz", **options)
    with pytest.raises(ValueError, match="all fields are fixed"):
        fs.fit(
            model,
            X,
            Y,
            steps=1,
            optimiser=SignAscent(0.1),
            fixed=("covariance", "inducing", "likelihood", "posterior.mean"),
        )

    class Stateless(SignAscent):
        def init(self, model):
            return None

    with pytest.raises(
        TypeError, match="`init` of the optimiser Stateless must return a record .* got None"
    ):
        fs.fit(model, X, Y, steps=1, optimiser=Stateless(0.1))


@record
class WithHeldFactor(fs.Whitened):
    held_fields = ("scale_tril",)


@record
class WithNaturalMean(fs.Whitened):
    natural_fields = ("mean",)


def test_the_posterior_says_which_fields_which_steps_move(rng, monkeypatch):
    model, X, Y = problem(rng)
    calls = []
    for name in ("elbo_and_grad", "natural_step_and_grad"):
        real = getattr(minibatch, name)
        monkeypatch.setattr(
            minibatch,
            name,
            lambda *a, wrt, real=real, **k: calls.append(wrt) or real(*a, wrt=wrt, **k),
        )
    fields = model.posterior.mean, model.posterior.scale_tril
    held, _ = fs.fit(fs.replace(model, posterior=WithHeldFactor(*fields)), X, Y, steps=2)
    np.testing.assert_array_equal(held.posterior.scale_tril, np.eye(M))
    assert (held.posterior.mean != 0).all()
    start = fs.replace(model, posterior=WithNaturalMean(*fields))
    fs.fit(start, X, Y, steps=1, natural_step_size=0.1)
    fs.fit(model, X, Y, steps=1, natural_step_size=0.1)
    assert [[name for name in wrt if name.startswith("posterior")] for wrt in calls[1:]] == [
        ["posterior.mean"], ["posterior.scale_tril"], []
    ]  # fmt: skip
    for fixed in ("posterior", "posterior.mean"):
        with pytest.raises(ValueError, match=f"'{fixed}' is fixed, but `natural_step_size`"):
            fs.fit(start, X, Y, steps=1, natural_step_size=0.1, fixed=fixed)
    fs.fit(start, X, Y, steps=1, natural_step_size=0.1, fixed="posterior.scale_tril")


def test_the_model_that_came_in_is_not_modified(rng):
    model, X, Y = problem(rng)
    before = [np.copy(v) for _, _, v in leaves(model)]
    fs.fit(model, X, Y, steps=3, natural_step_size=0.1)
    for a, (_, _, b) in zip(before, leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_messages(rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="one of `steps`, `epochs` and `seconds`"):
        fs.fit(model, X, Y)
    with pytest.raises(ValueError, match="one of `steps`, `epochs` and `seconds`"):
        fs.fit(model, X, Y, steps=1, epochs=1)
    with pytest.raises(ValueError, match="same number of rows, at least one, got 60 and 59"):
        fs.fit(model, X, Y[:-1], steps=1)
    for wrong, name in (
        (model.covariance, "RBF"),
        (X, "ndarray"),
        (None, "NoneType"),
        (fs.SVGP, "type"),
    ):
        kinds = (
            "DeepGP, MultiGP, QSGP, SGPR, SVGP, VIF, bounds.BasisGP, bounds.BasisSVGP,"
            " bounds.GPLVM or bounds.OrthogonalSGPR"
        )
        with pytest.raises(TypeError, match=f"fit: `model` must be a fastsvgp.{kinds}, got {name}"):
            fs.fit(wrong, X, Y, steps=1)
    with pytest.raises(
        TypeError,
        match="`posterior` of the model must be a record such as fastsvgp.Whitened.*, got NoneType",
    ):
        fs.fit(fs.replace(model, posterior=None), X, Y, steps=1)
    with pytest.raises(
        ValueError, match="`batch_size` must be a whole number of at least 1, got 0"
    ):
        fs.fit(model, X, Y, steps=1, batch_size=0)
    for name in ("steps", "batch_size", "patience", "validate_every", "checkpoint_every"):
        for wrong in ("many", 2.5, True, [1]):
            with pytest.raises(
                (ValueError, TypeError),
                match=f"`{name}` must be a whole number of at least [01], got",
            ):
                fs.fit(model, X, Y, **{"steps": 1, name: wrong})
    with pytest.raises(TypeError, match="`epochs` must be a number, got 'many'"):
        fs.fit(model, X, Y, epochs="many")
    with pytest.raises(TypeError, match="`rng` must be None, a seed .*, got 'a'"):
        fs.fit(model, X, Y, steps=1, rng="a")
    with pytest.raises(ValueError, match="nothing to train"):
        fs.fit(model, X, Y, steps=1, fixed=("covariance", "inducing", "posterior", "likelihood"))
    with pytest.raises(ValueError, match="'posterior.mean' is fixed, but `natural_step_size`"):
        fs.fit(model, X, Y, steps=1, fixed="posterior.mean", natural_step_size=0.1)
    with pytest.raises(ValueError, match="`fixed` names 'kernel'"):
        fs.fit(model, X, Y, steps=1, fixed="kernel")
    with pytest.raises(ValueError, match="the seed `rng` must be zero or more, got -1"):
        fs.fit(model, X, Y, steps=1, rng=-1)
    with pytest.raises(ValueError, match="`smoothing`"):
        fs.fit(model, X, Y, steps=1, smoothing=1.0)
    for name in ("steps", "batch_size", "patience", "validate_every", "checkpoint_every"):
        for much in (10**22, 10**400):
            with pytest.raises(ValueError, match=rf"fit: `{name}` must be at most 10\*\*15"):
                fs.fit(model, X, Y, **{"steps": 1, name: much})
    with pytest.raises(
        ValueError, match=r"`epochs` of 1e\+300 are 6e\+301 steps; at most 10\*\*15"
    ):
        fs.fit(model, X, Y, epochs=1e300, batch_size=1)
    with pytest.raises(ValueError, match="`epochs` must be finite, got inf"):
        fs.fit(model, X, Y, epochs=10**400)
    with pytest.raises(ValueError, match="`tolerance` must be finite, got inf"):
        fs.fit(model, X, Y, steps=1, tolerance=10**400)
    with pytest.raises(ValueError, match=r"fit: `steps` must be at most 10\*\*15"):
        fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y, steps=10**22)
    stopped = fs.fit(model, X, Y, steps=10**15, callback=lambda step, value, info: step == 2)[1]
    assert stopped.reason == "callback" and stopped.steps == 2
    with pytest.raises(TypeError, match="`validate` must be a function, got") as caught:
        fs.fit(model, X, Y, steps=1, validate=(X, Y))
    assert len(str(caught.value)) < 160
    with pytest.raises(TypeError, match="`callback` must be a function, got 3"):
        fs.fit(model, X, Y, steps=1, callback=3)
    with pytest.raises(
        TypeError,
        match=r"fit: `optimiser` must be an optimiser: fs.adam\(0.01\); got the text 'adam'",
    ):
        fs.fit(model, X, Y, steps=1, optimiser="adam")


def test_a_checkpoint_must_be_a_file_in_a_folder(tmp_path, rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        fs.fit(model, X, Y, steps=1, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="which is not a folder; make it first"):
        fs.fit(model, X, Y, steps=1, checkpoint=tmp_path / "absent" / "model.npz")
