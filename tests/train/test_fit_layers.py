"""Training of deep GPs: bitwise resuming, draws, natural steps, factors of inverses, refusals."""

import numpy as np
import pytest
from oracles import inverse_factor

import fastsvgp as fs
from fastsvgp.layers import deep_gp
from fastsvgp.posteriors import AbsorbedDualSites, LikelihoodForm, Relaxed, at_prior
from fastsvgp.records import leaves
from fastsvgp.train.batches import Batches
from fastsvgp.train.kinds import deep
from fastsvgp.train.steps import minibatch

M, N = 4, 40


def problem(rng, posterior=fs.Whitened, layers=2, width=None, dtype=np.float64, likelihood=None):
    X = rng.uniform(-2, 2, (N, 2)).astype(dtype)
    Y = np.sign(X[:, 0]) + 0.1 * rng.standard_normal(N).astype(dtype)
    sizes = (M, 2) if posterior is fs.posteriors.WhitenedOrthogonal else M
    likelihood = likelihood or fs.Gaussian(variance=0.1)
    return (deep_gp(X, likelihood, layers, sizes, width=width, posterior=posterior, rng=1), X, Y)


def assert_same(a, b, rtol=0.0):
    for (path, _, x), (_, _, y) in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol, err_msg=path, strict=True)


def with_last(model, posterior):
    *below, last = model.layers
    return fs.replace(model, layers=(*below, fs.replace(last, posterior=posterior)))


def sites(rng):
    model, X, Y = problem(rng)
    inducing = model.layers[-1].inducing
    return (
        with_last(model, at_prior(AbsorbedDualSites, model.layers[-1].covariance, inducing)),
        X,
        Y,
    )


# --- resuming -------------------------------------------------------------------------------------

INDUCING = "layers.0.inducing", "layers.1.inducing"
RUNS = {
    "adam": (problem, {}),
    "natural": (problem, {"natural_step_size": fs.optim.schedules.log_linear(0.01, 0.2, 5)}),
    "rounds": (problem, {"natural_step_size": 0.1, "e_steps": 2, "m_steps": 2, "num_samples": 1}),
    "plateau": (
        lambda rng: problem(rng, LikelihoodForm, 3, 1),
        {
            "optimiser": fs.adam(fs.optim.schedules.plateau(0.05, patience=2, smoothing=0.5)),
            "num_samples": 3,
        },
    ),
    "inverses": (
        lambda rng: problem(rng, Relaxed),
        {
            "optimiser": fs.optim.by_field(
                fs.adam(0.02),
                dict.fromkeys(INDUCING, fs.adam(fs.optim.schedules.plateau(1e-3), beta1=0.99)),
                after=dict.fromkeys(INDUCING, 2),
            ),
            "validate": lambda m: -float(m.likelihood.variance),
            "validate_every": 2,
        },
    ),
    "two sets, float32": (
        lambda rng: problem(rng, fs.posteriors.WhitenedOrthogonal, dtype=np.float32),
        {"natural_step_size": 0.1},
    ),
    "sites": (sites, {}),
}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_is_bitwise_the_same(tmp_path, rng, name):
    make, options = RUNS[name]
    model, X, Y = make(rng)
    options = {"batch_size": 16, "rng": 3, **options}
    straight, info = fs.fit(model, X, Y, steps=6, **options)
    path = tmp_path / "half.npz"
    half, _ = fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
    assert_same(fs.load(path).model, half) if "validate" not in options else None
    resumed, again = fs.fit(model, X, Y, steps=6, resume=path, **{**options, "rng": None})
    assert_same(resumed, straight)
    np.testing.assert_array_equal(again.values, info.values)
    assert len(set(np.round(info.values, 6))) > 1


def test_what_a_checkpoint_was_made_with(tmp_path, rng):
    model, X, Y = problem(rng)
    path, options = tmp_path / "c.npz", {"batch_size": 16, "rng": 0}
    fs.fit(model, X, Y, steps=1, checkpoint=path, **options)
    with pytest.raises(ValueError, match="`num_samples` 2 then, 4 now"):
        fs.fit(model, X, Y, steps=2, resume=path, num_samples=4, **options)
    with pytest.raises(
        ValueError,
        match="`natural_step_size` None then, 0.1 now; the optimiser moves layers.0.posterior.mean",
    ):
        fs.fit(model, X, Y, steps=2, resume=path, natural_step_size=0.1, **options)


def test_an_interrupt_keeps_the_last_whole_step(tmp_path, rng):
    model, X, Y = problem(rng)
    path, options = tmp_path / "c.npz", {"batch_size": 16, "rng": 0, "natural_step_size": 0.1}

    def stop(step, value, info):
        if step == 3:
            raise KeyboardInterrupt

    kept, info = fs.fit(model, X, Y, steps=6, callback=stop, checkpoint=path, **options)
    assert info.interrupted and info.steps == 3
    assert_same(fs.load(path).model, kept)
    assert_same(
        fs.fit(model, X, Y, steps=6, resume=path, **options)[0],
        fs.fit(model, X, Y, steps=6, **options)[0],
    )


# --- a step ---------------------------------------------------------------------------------------


def test_the_objective_is_the_bound_at_new_draws_in_each_step(rng):
    """Only the draws differ: the step size is 0, and a batch has all rows."""
    model, X, Y = problem(rng)
    hidden, last = model.layers
    wide = fs.replace(
        hidden, posterior=fs.replace(hidden.posterior, scale_tril=np.array(2 * [0.5 * np.eye(M)]))
    )
    model = fs.replace(model, layers=(wide, last), likelihood=fs.Gaussian(2.0))
    model = with_last(model, fs.Whitened(np.array([1.0, -1.0, 1.0, -1.0]), 0.5 * np.eye(M)))
    still = {"optimiser": fs.sgd(1e-300), "fixed": "layers", "batch_size": N, "steps": 30}
    values = fs.fit(model, X, Y, rng=0, **still)[1].values
    assert len(set(values)) == 30
    np.testing.assert_array_equal(values, fs.fit(model, X, Y, rng=0, **still)[1].values)
    assert set(values).isdisjoint(fs.fit(model, X, Y, rng=1, **still)[1].values)
    many = [fs.elbo(model, X, Y, rng=seed, num_samples=500) for seed in range(4)]
    assert abs(values.mean() - np.mean(many)) < 6 * values.std() / np.sqrt(30)
    assert fs.fit(model, X, Y, rng=0, num_samples=200, **still)[1].values.std() < 0.3 * values.std()


def test_step_is_the_closed_form_then_one_gradient_for_the_rest(rng, monkeypatch):
    model, X, Y = problem(rng)
    calls = []

    def noted(function):
        return lambda *args, **options: (
            calls.append((function.__name__, options)) or function(*args, **options)
        )

    for name in ("natural_step", "elbo_and_grad"):
        monkeypatch.setattr(minibatch, name, noted(getattr(minibatch, name)))
    adam = fs.adam(0.01)
    found, info = fs.fit(
        model, X, Y, steps=1, batch_size=16, natural_step_size=0.3, optimiser=adam, rng=2
    )
    (first, options), (second, more) = calls
    assert (first, second) == ("natural_step", "elbo_and_grad")
    assert options["rng"] == more["rng"]  # one set of draws
    batch, same = Batches(X, Y, 16, 2).at(0), {"num_data": N, "rng": options["rng"]}
    stepped, _ = fs.natural_step(model, *batch, step_size=0.3, **same)
    value, grad = fs.elbo_and_grad(stepped, *batch, **same)
    held = adam.fixing(["layers.1.posterior", "layers.0.posterior"])
    expected, _ = held.step(stepped, grad, held.init(stepped))
    hidden = fs.optim.natural_update(stepped.layers[0].posterior, grad.layers[0].posterior, 0.3)
    expected = fs.replace(
        expected, layers=(fs.replace(expected.layers[0], posterior=hidden), expected.layers[1])
    )
    assert_same(found, expected, 1e-12)
    assert info.values[0] == pytest.approx(value, rel=1e-12)


def test_sizes_of_natural_steps_fall_in_every_layer(rng, monkeypatch):
    """A schedule of all steps, which the steps of the last layer and of hidden ones follow."""
    model, X, Y = problem(rng)
    hidden, plain, last = [], deep.natural_update, []
    monkeypatch.setattr(
        deep, "natural_update", lambda q, bar, size: hidden.append(size) or plain(q, bar, size)
    )
    falling = {"natural_step_size": fs.optim.schedules.cosine(0.1, 0.01, "all"), "batch_size": 16}

    def note(step, value, info):
        last.append(info.natural_step_size)

    fs.fit(model, X, Y, steps=5, callback=note, rng=0, **falling)
    expected = 0.055 + 0.045 * np.cos(np.pi * np.arange(5) / 4)
    assert hidden == pytest.approx(expected, rel=1e-12) and last == pytest.approx(expected)


def test_natural_steps_climb_faster(rng):
    """On all rows with few draws natural steps in all layers give a higher bound."""
    model, X, Y = problem(rng)
    reached = [
        fs.elbo(
            fs.fit(model, X, Y, steps=25, batch_size=N, natural_step_size=size, rng=0)[0],
            X,
            Y,
            rng=1,
            num_samples=32,
        )
        for size in (None, 0.2)
    ]
    assert reached[1] > reached[0] + 10


def test_hidden_means_stay_unless_they_are_asked_for(rng):
    model, X, Y = problem(rng, width=1)
    mean = model.layers[0].mean
    assert isinstance(mean, fs.means.LinearMean)
    options = {"steps": 2, "batch_size": 16, "rng": 0, "natural_step_size": 0.1}
    assert_same(fs.fit(model, X, Y, **options)[0].layers[0].mean, mean)
    assert (
        fs.fit(model, X, Y, fixed=(), **options)[0].layers[0].mean.weights != mean.weights
    ).all()


def test_what_is_fixed_stays(rng):
    model, X, Y = problem(rng)
    found, _ = fs.fit(
        model,
        X,
        Y,
        steps=2,
        batch_size=16,
        natural_step_size=0.1,
        rng=0,
        fixed=["layers.0", "likelihood"],
    )
    assert_same(found.layers[0], model.layers[0])
    assert_same(found.likelihood, model.likelihood)
    only, _ = fs.fit(
        model,
        X,
        Y,
        steps=2,
        batch_size=16,
        natural_step_size=0.1,
        rng=0,
        fixed=[
            "layers.0.covariance",
            "layers.1.covariance",
            "layers.0.inducing",
            "layers.1.inducing",
            "likelihood",
        ],
    )
    assert_same(only.layers[0].covariance, model.layers[0].covariance)
    for layer, before in zip(only.layers, model.layers, strict=True):
        assert (layer.posterior.mean != before.posterior.mean).all()


def test_natural_steps_above_a_diagonal_layer_that_is_fixed(rng):
    model, X, Y = diagonal_below(rng)
    held = "layers.0.posterior"
    found, _ = fs.fit(model, X, Y, steps=2, batch_size=16, natural_step_size=0.1, rng=0, fixed=held)
    assert_same(found.layers[0].posterior, model.layers[0].posterior)
    assert (found.layers[1].posterior.mean != model.layers[1].posterior.mean).all()


def test_one_layer_trains_as_an_svgp(rng):
    model, X, Y = problem(rng, layers=1)
    (layer,) = model.layers
    svgp = fs.SVGP(layer.covariance, layer.inducing, layer.posterior, model.likelihood)
    options = {"steps": 5, "batch_size": 16, "rng": 0, "natural_step_size": 0.2}
    found, (expected, info) = fs.fit(model, X, Y, **options), fs.fit(svgp, X, Y, **options)
    np.testing.assert_allclose(found[1].values, info.values, rtol=1e-10)
    assert_same(found[0].layers[0].posterior, expected.posterior, 1e-9)


# --- factors of inverses --------------------------------------------------------------------------


def residuals(model):
    for layer in model.layers:
        q = layer.posterior
        if q.inverse_field:
            A, _ = q.inverse_of(layer.covariance.Kuu(layer.inducing), 1e-6)
            yield inverse_factor.residual(A, getattr(q, q.inverse_field))


def test_every_factor_of_an_inverse_is_kept(rng):
    seen = []
    model, X, Y = problem(rng, Relaxed, 3)
    trained, _ = fs.fit(
        model, X, Y, steps=6, batch_size=16, rng=0, callback=lambda *a: seen.append(a[2].inverse)
    )
    assert max(residuals(trained)) <= 1e-3
    assert all(len(infos) == 3 and all(info.converged for info in infos) for infos in seen)
    middle = deep_gp(X, model.likelihood, 3, M, rng=1).layers[1]
    mixed = fs.replace(model, layers=(model.layers[0], middle, model.layers[2]))
    trained, _ = fs.fit(
        mixed, X, Y, steps=4, batch_size=16, rng=0, callback=lambda *a: seen.append(a[2].inverse)
    )
    assert max(residuals(trained)) <= 1e-3
    assert seen[-1][1] is None
    held = "layers.2.posterior.inverse_tril"
    trained, _ = fs.fit(
        mixed,
        X,
        Y,
        steps=2,
        batch_size=16,
        rng=0,
        fixed=held,
        inverse_updates=fs.optim.inverse_updates(1e-8),
    )
    first, last = residuals(trained)
    assert first <= 1e-8 < last


# --- refusals -------------------------------------------------------------------------------------


def hidden_sites(rng):
    model, X, Y = problem(rng)
    layer = model.layers[0]
    own = at_prior(AbsorbedDualSites, layer.covariance, layer.inducing, outputs=2)
    return fs.replace(model, layers=(fs.replace(layer, posterior=own), model.layers[1])), X, Y


def diagonal_below(rng):
    model, X, Y = problem(rng)
    return (
        fs.replace(model, layers=(problem(rng, LikelihoodForm)[0].layers[0], model.layers[1])),
        X,
        Y,
    )


REFUSED = {
    "diagonal": (
        lambda rng: problem(rng, LikelihoodForm),
        {"natural_step_size": 0.1},
        TypeError,
        r"`layers\[1\]`: .*LikelihoodForm.*S~ diagonal.*use a Whitened",
    ),
    "relaxed": (
        lambda rng: problem(rng, Relaxed),
        {"natural_step_size": 0.1},
        TypeError,
        r"`layers\[1\]`: .*Relaxed",
    ),
    "diagonal below": (
        diagonal_below,
        {"natural_step_size": 0.1},
        TypeError,
        r"`layers\[0\]` a LikelihoodForm .*diagonal.*or name .layers.0.posterior. in",
    ),
    "hidden sites": (
        hidden_sites,
        {},
        TypeError,
        r"`layers\[0\]`: natural steps move the sites .*use Whitened elsewhere",
    ),
    "probes": (
        lambda rng: problem(rng, Relaxed),
        {"probes": 3},
        ValueError,
        "`probes` would have no effect",
    ),
    "basis": (
        problem,
        {"basis_size": 3},
        TypeError,
        "`basis_size` is an option of QSGP, not of DeepGP",
    ),
    "rounds": (problem, {"e_steps": 2}, ValueError, "`e_steps` of 2 are natural steps"),
    "fixed": (
        problem,
        {"natural_step_size": 0.1, "fixed": "layers.1.posterior"},
        ValueError,
        "is fixed, but `natural_step_size",
    ),
    "no such field": (problem, {"fixed": "layers.7"}, ValueError, "layers.7"),
    "all": (problem, {"fixed": ["layers", "likelihood"]}, ValueError, "all fields are fixed"),
    "draws": (problem, {"num_samples": 0}, ValueError, "`num_samples` must be .*at least 1"),
    "no factor": (
        problem,
        {"inverse_updates": fs.optim.inverse_updates()},
        ValueError,
        "no layer has a factor of an inverse",
    ),
    "nats": (
        lambda rng: problem(rng, Relaxed),
        {"inverse_updates": fs.optim.inverse_updates(nats=0.1)},
        ValueError,
        "`nats` is for an SVGP; give `tolerance`",
    ),
    "direction": (
        lambda rng: problem(rng, Relaxed),
        {"inverse_updates": fs.optim.inverse_updates(direction="likelihood")},
        ValueError,
        "'likelihood' is for an SVGP",
    ),
    "kind": (
        problem,
        {"inverse_updates": True},
        TypeError,
        "must be made by fs.optim.inverse_updates",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(rng, name):
    make, options, kind, said = REFUSED[name]
    model, X, Y = make(rng)
    with pytest.raises(kind, match=said):
        fs.fit(model, X, Y, steps=2, batch_size=16, **options)


def test_num_samples_is_for_deep_models(rng):
    model, X, Y = problem(rng, layers=1)
    (layer,) = model.layers
    svgp = fs.SVGP(layer.covariance, layer.inducing, layer.posterior, model.likelihood)
    with pytest.raises(
        TypeError, match="fit: `num_samples` is an option of DeepGP, not of SVGP; leave it out"
    ):
        fs.fit(svgp, X, Y, steps=1, num_samples=4)


def test_bad_rows_are_named_by_the_data(rng):
    model, X, Y = problem(rng)
    X[33, 1] = np.nan
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(33, 1\)"):
        fs.fit(model, X, Y, steps=9, batch_size=10, rng=0)


def test_a_gradient_that_is_not_finite_ends_it(rng, monkeypatch):
    model, X, Y = problem(rng)
    plain = minibatch.elbo_and_grad

    def broken(*args, **options):
        value, grad = plain(*args, **options)
        q = fs.replace(grad.layers[0].posterior, mean=np.full((2, M), np.nan))
        return value, fs.replace(
            grad, layers=(fs.replace(grad.layers[0], posterior=q), grad.layers[1])
        )

    monkeypatch.setattr(minibatch, "elbo_and_grad", broken)
    with pytest.raises(
        fs.errors.Diverged, match=r"NaN or infinity in 'layers.0.posterior' at step 1"
    ):
        fs.fit(model, X, Y, steps=2, batch_size=16, natural_step_size=0.1, rng=0)
