"""Training of models of several latent functions: fit, natural steps, inverses, EM, files."""

from typing import Any

import numpy as np
import pytest
from support.fit_problems import assert_same
from support.gp_problems import assert_records_close
from support.latent_problems import D, P, layer, mixing, problem, with_posteriors

import fastsvgp as fs
from fastsvgp.extending import minibatch_training
from fastsvgp.posteriors.locate import posteriors_of

ROWS = 40
OPTIMISERS = {
    "adam": fs.adam(0.02),
    "sgd": fs.sgd(1e-4, momentum=0.5),
    "adagrad": fs.optim.adagrad(0.02),
    "by field": fs.optim.by_field(
        fs.adam(0.02), {"mixing": fs.sgd(1e-3), "latents.0.covariance": fs.adam(0.05)}
    ),
    "late": fs.optim.by_field(
        fs.adam(0.02),
        {"latents.1.inducing": fs.adam(fs.optim.schedules.plateau(1e-3), beta1=0.99)},
        after={"latents.1.inducing": 2},
    ),
    "plateau": fs.adam(fs.optim.schedules.plateau(0.05, patience=2, smoothing=0.5)),
}
NAMES = "lmc", "icm", "noise", "dispersed", "classes", "pairs"


def trained(rng, name, **options):
    model, X, Y, _ = problem(rng, name, N=ROWS)
    options = {"steps": 6, "batch_size": 16, "rng": 3} | options
    return model, X, Y, options


@pytest.mark.parametrize("natural", [None, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_training_raises_the_bound(rng, name, natural):
    model, X, Y, options = trained(rng, name, steps=40, natural_step_size=natural)
    found, info = fs.fit(model, X, Y, optimiser=fs.adam(0.02), **options)
    assert info.steps == 40 and np.isfinite(info.values).all()
    assert fs.elbo(found, X, Y) > fs.elbo(model, X, Y)
    for path, _, leaf in fs.records.leaves(model):
        moved = dict((p, leaf) for p, _, leaf in fs.records.leaves(found))[path]
        assert leaf is None or not np.array_equal(moved, leaf), path


@pytest.mark.parametrize("natural", [None, 0.1])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_resumed_is_bitwise_the_same(rng, tmp_path, optimiser, natural):
    model, X, Y, options = trained(rng, "lmc", natural_step_size=natural)
    options |= {"optimiser": OPTIMISERS[optimiser]}
    assert_resumes(model, X, Y, options, tmp_path / "half.npz")


RUNS = {
    "rounds": ("noise", {"natural_step_size": 0.1, "e_steps": 2, "m_steps": 2}),
    "sites": ("sites", {}),
    "classes": ("classes", {"natural_step_size": fs.optim.schedules.log_linear(0.01, 0.2, 5)}),
    "inverses": ("inverse-free", {}),
    "probes": ("probes", {"probes": 2}),
    "validated": (
        "icm",
        {"validate": lambda m: -float(m.likelihood.variance), "validate_every": 2},
    ),
}


@pytest.mark.parametrize("run", RUNS)
def test_other_trainings_resume_too(rng, tmp_path, run):
    name, more = RUNS[run]
    model, X, Y, options = trained(rng, name, **more)
    assert_resumes(model, X, Y, options, tmp_path / "half.npz")


def assert_resumes(model, X, Y, options, path):
    straight, info = fs.fit(model, X, Y, **options)
    fs.fit(model, X, Y, **options | {"steps": 3, "checkpoint": path})
    resumed, again = fs.fit(model, X, Y, resume=path, **options | {"rng": None})
    assert_same(resumed, straight)
    np.testing.assert_array_equal(again.values, info.values)


def test_weights_of_minibatches(rng):
    """Missing outputs, as NaN of weight 0."""
    model, X, Y, options = trained(rng, "lmc", steps=20, natural_step_size=0.1)
    weights = (rng.uniform(size=Y.shape) < 0.7) * 1.0
    found, _ = fs.fit(model, X, np.where(weights > 0, Y, np.nan), weights=weights, **options)
    other, _ = fs.fit(model, X, np.where(weights > 0, Y, 7.0), weights=weights, **options)
    assert_same(found, other)
    plain, _ = fs.fit(model, X, Y, **options)
    assert np.abs(plain.mixing - found.mixing).max() > 1e-6


def test_one_step_is_the_step_of_its_functions(rng):
    model, X, Y, options = trained(rng, "lmc", steps=1, batch_size=ROWS)
    optimiser = fs.sgd(1e-3)
    found, info = fs.fit(model, X, Y, natural_step_size=0.3, optimiser=optimiser, **options)
    stepped, _ = fs.natural_step(model, X, Y, step_size=0.3)
    held = optimiser.fixing(list(model.posterior_paths))
    value, grad = fs.elbo_and_grad(stepped, X, Y)
    due, _ = held.step(stepped, grad, held.init(stepped), value)
    assert info.values[0] == pytest.approx(value, rel=1e-12)
    assert_records_close(found, due, 1e-11)


def test_fixed_fields_stay(rng):
    model, X, Y, options = trained(rng, "lmc")
    fixed = "mixing", "latents.0.covariance", "latents.1.inducing", "mean"
    found, _ = fs.fit(model, X, Y, fixed=fixed, natural_step_size=0.1, **options)
    after = {path: leaf for path, _, leaf in fs.records.leaves(found)}
    for path, _, leaf in fs.records.leaves(model):
        if leaf is not None:
            stays = any(f"{path}.".startswith(f"{name}.") for name in fixed)
            assert np.array_equal(after[path], leaf) is stays, path


def test_a_callback_sees_each_step(rng):
    model, X, Y, options = trained(rng, "noise", natural_step_size=0.1)
    seen = []

    def note(step, value, info):
        seen.append((step, value, info.natural_step_size, info.inverse, type(info.model)))
        return step == 4

    _, info = fs.fit(model, X, Y, callback=note, **options)
    assert info.reason == "callback" and [one[0] for one in seen] == [1, 2, 3, 4]
    assert {one[2:] for one in seen} == {(0.1, None, fs.MultiGP)}


def test_sites_take_natural_steps_by_default(rng):
    model, X, Y, options = trained(rng, "sites")
    sizes = []

    def note(step, value, info):
        sizes.append(info.natural_step_size)

    found, _ = fs.fit(model, X, Y, callback=note, **options)
    assert all(size > 0 for size in sizes)
    for path, q in posteriors_of(found).items():
        assert not np.array_equal(q.lambda1, posteriors_of(model)[path].lambda1)


def test_mixed_kinds_move_together_or_not_at_all(rng):
    """A layer of sites gives all layers natural steps; one that can take none is an error."""
    model, X, Y, options = trained(rng, "lmc")
    mixed = with_posteriors(model, fs.Whitened, fs.posteriors.AbsorbedDualSites)
    fs.fit(mixed, X, Y, callback=lambda step, value, info: info.natural_step_size < 0, **options)
    diagonal = layer(rng, "likelihood")
    other = fs.replace(mixed, latents=(diagonal, mixed.latents[1]))
    match = r"'latents.0.posterior': .*a LikelihoodForm posterior cannot take natural"
    with pytest.raises(TypeError, match=match):
        fs.fit(other, X, Y, **options)
    none = fs.replace(model, latents=(model.latents[0], diagonal))
    with pytest.raises(TypeError, match=match.replace("0", "1")):
        fs.fit(none, X, Y, natural_step_size=0.1, **options)
    fs.fit(none, X, Y, **options)


# --- factors of inverses --------------------------------------------------------------------------


def test_updates_of_the_inverse_of_one_layer(rng):
    model, X, Y, options = trained(rng, "inverse-free")
    seen = []

    def note(step, value, info):
        seen.append(info.inverse)

    found, _ = fs.fit(model, X, Y, callback=note, **options)
    assert all(type(one) is tuple and len(one) == 3 for one in seen)
    assert all(one[0] is one[2] is None and one[1].residual <= 1e-3 for one in seen)
    q, own = found.latents[1].posterior, found.latents[1]
    A = own.covariance.Kuu(own.inducing) + 1e-6 * np.eye(len(q.mean)) + np.diag(q.variance)
    L = np.tril(q.inverse_tril)
    assert np.linalg.norm(L.T @ A @ L - np.eye(len(A))) / np.sqrt(len(A)) < 2e-3
    still, _ = fs.fit(model, X, Y, inverse_updates=False, fixed="latents.1.posterior", **options)
    np.testing.assert_array_equal(
        still.latents[1].posterior.inverse_tril, model.latents[1].posterior.inverse_tril
    )
    none, X, Y, options = trained(rng, "lmc")
    with pytest.raises(ValueError, match="no layer has a factor of an inverse"):
        fs.fit(none, X, Y, inverse_updates=fs.optim.inverse_updates(), **options)
    with pytest.raises(ValueError, match="`nats` is for an SVGP"):
        fs.fit(model, X, Y, inverse_updates=fs.optim.inverse_updates(nats=0.1), **options)


def test_refreshed_inverses(rng):
    model, _, _, _ = trained(rng, "probes")
    refreshed, infos = fs.optim.update_inverse_factor(model)
    assert [info is None for info in infos] == [False, True, False]
    assert infos[0].converged and infos[2].converged
    assert_same(refreshed.latents[1], model.latents[1])
    shared = fs.replace(model.latents[0], inducing=None)
    with_own = fs.replace(
        model, latents=(shared, *model.latents[1:]), inducing=model.latents[0].inducing
    )
    other, _ = fs.optim.update_inverse_factor(with_own)
    assert other.latents[0].inducing is None
    assert_same(other.latents[0].posterior, refreshed.latents[0].posterior)


# --- EM -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lmc", "icm", "noise"])
def test_no_round_of_em_lowers_the_bound(rng, name):
    model, X, Y, _ = problem(rng, name, N=ROWS)
    found, info = fs.em(model, X, Y, rounds=3, m_iterations=4)
    climbed = np.ravel(np.column_stack([info.e_values, info.values]))
    assert np.diff(climbed).min() >= -1e-8 * np.abs(climbed).max()
    assert fs.elbo(found, X, Y) == pytest.approx(info.values[-1], rel=1e-9)


def test_em_resumes_and_holds_fields(rng, tmp_path):
    model, X, Y, _ = problem(rng, "lmc", N=ROWS)
    options, path = {"m_iterations": 3, "fixed": ("mixing",)}, tmp_path / "state.npz"
    straight, info = fs.em(model, X, Y, rounds=3, **options)
    np.testing.assert_array_equal(straight.mixing, model.mixing)
    fs.em(model, X, Y, rounds=1, checkpoint=path, **options)
    resumed, again = fs.em(model, X, Y, rounds=3, resume=path, **options)
    assert_same(resumed, straight)
    np.testing.assert_array_equal(again.values, info.values)


def test_em_of_sites_is_refused(rng):
    model, X, Y, _ = problem(rng, "sites", N=ROWS)
    with pytest.raises(
        TypeError, match="em: 'latents.0.posterior' is a AbsorbedDualSites|Absorbed"
    ):
        fs.em(model, X, Y)


# --- a user-defined kind of model -----------------------------------------------------------------


@fs.records.record
class Pair:
    """Two models of one input: y is the sum of both, as far as a test needs."""

    first: Any
    second: Any

    @property
    def posterior_paths(self):
        return "first.posterior", "second.posterior"

    @property
    def likelihood(self):
        return self.first.likelihood


def _split(wrt, name):
    return tuple(one.removeprefix(f"{name}.") for one in wrt if one.startswith(f"{name}."))


def pair_and_grad(model, X, Y, *, wrt=(), num_data=None, jitter=None, rng=None):
    shared = {"num_data": num_data, "jitter": jitter}
    one, grad = fs.elbo_and_grad(model.first, X, Y, wrt=_split(wrt, "first"), **shared)
    two, other = fs.elbo_and_grad(model.second, X, Y, wrt=_split(wrt, "second"), **shared)
    return one + two, Pair(grad, other)


def pair_step(model, X, Y, *, step_size, num_data=None, jitter=None, rng=None):
    shared = {"num_data": num_data, "jitter": jitter, "step_size": step_size}
    first, info = fs.natural_step(model.first, X, Y, **shared)
    second, other = fs.natural_step(model.second, X, Y, **shared)
    return Pair(first, second), info._replace(value=info.value + other.value)


def test_a_kind_with_posteriors_elsewhere_takes_natural_steps(rng, monkeypatch):
    known = {kind: dict(offers) for kind, offers in fs.extending.models._IMPLEMENTATIONS.items()}
    monkeypatch.setattr(fs.extending.models, "_IMPLEMENTATIONS", known)
    fs.extending.models.register(
        Pair, elbo_and_grad=pair_and_grad, natural_step=pair_step, fit=minibatch_training
    )
    X, y = rng.uniform(-2, 2, (ROWS, D)), rng.standard_normal(ROWS)
    alone = []
    for _ in range(2):
        one = layer(rng)
        alone.append(fs.SVGP(one.covariance, one.inducing, one.posterior, fs.Gaussian(0.2)))
    options = {"steps": 3, "batch_size": 16, "rng": 1, "optimiser": fs.sgd(1e-4)}
    found, info = fs.fit(Pair(*alone), X, y, natural_step_size=0.2, **options)
    due = [fs.fit(one, X, y, natural_step_size=0.2, **options) for one in alone]
    np.testing.assert_allclose(info.values, due[0][1].values + due[1][1].values, rtol=1e-12)
    assert_records_close(found.first, due[0][0], 1e-11)
    assert_records_close(found.second, due[1][0], 1e-11)
    fs.fit(Pair(*alone), X, y, e_steps=2, natural_step_size=0.2, **options)


# --- refusals -------------------------------------------------------------------------------------


def test_what_fit_refuses(rng):
    model, X, Y, options = trained(rng, "lmc")
    posteriors = "latents.0.posterior", "latents.1.posterior"
    with pytest.raises(ValueError, match="'latents.0.posterior.*' is fixed, but `natural_step_si"):
        fs.fit(model, X, Y, fixed=posteriors, natural_step_size=0.1, **options)
    with pytest.raises(ValueError, match="graph=True.* `model` is a MultiGP"):
        fs.fit(model, X, Y, graph=True, **options)
    with pytest.raises((TypeError, ValueError), match="`probes` is no random quantity"):
        fs.fit(model, X, Y, probes=2, **options)
    with pytest.raises(ValueError, match="latents.7"):
        fs.fit(model, X, Y, fixed="latents.7", **options)
    everything = "latents", "likelihood", "mixing", "mean"
    with pytest.raises(ValueError, match="all fields are fixed"):
        fs.fit(model, X, Y, fixed=everything, **options)
    Y[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"`Y`.*\(3, 1\)"):
        fs.fit(model, X, Y, **options)
    wrong = fs.replace(model, mixing=mixing(rng, P, 5))
    with pytest.raises(ValueError, match="`mixing` has 5 columns"):
        fs.fit(wrong, X, Y, **options)
