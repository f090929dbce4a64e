"""Natural steps of one latent function after the other, at the marginals that the others left."""

import numpy as np
import pytest
from support.gp_problems import assert_records_close
from support.latent_problems import (
    JITTER,
    D,
    P,
    layer,
    mixing,
    plain_step,
    problem,
    with_posteriors,
)

import fastsvgp as fs
from fastsvgp.latents import turns

SITES = fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites
KINDS = fs.Whitened, fs.Marginal, *SITES


def best(model, X, Y, tolerance=1e-9, most=100, **options):
    """Return the bound after monotone steps to convergence, and the last info."""
    before = -np.inf
    for _ in range(most):
        model, info = fs.natural_step(model, X, Y, step_size=1.0, monotone=True, **options)
        if info.value - before < tolerance * abs(info.value):
            break
        before = info.value
    return fs.elbo(model, X, Y, **options), info


@pytest.mark.parametrize("name", ["lmc", "icm", "noise"])
def test_every_kind_of_posterior_reaches_one_bound(rng, name):
    model, X, Y, options = problem(rng, name)
    mixed = [KINDS[(i + 1) % 4] for i in range(len(model.latents))]
    choices = [[kind] * len(model.latents) for kind in KINDS] + [mixed]
    values = []
    for kinds in choices:
        value, info = best(with_posteriors(model, *kinds), X, Y, **options)
        values.append(value)
        assert info.in_turn is any(kind in SITES for kind in kinds)
    # steps in turn can be slow under a likelihood that is not Gaussian
    np.testing.assert_allclose(values, values[0], rtol=1e-5 if name == "noise" else 1e-7)


@pytest.mark.parametrize("kind", SITES)
def test_sites_under_nearly_equal_columns(rng, kind):
    """Outputs of one layer move one by one too: at once they would diverge."""
    W = rng.standard_normal((P, 1)) + 1e-3 * rng.standard_normal((P, 2))
    model = fs.MultiGP((layer(rng, outputs=(2,)),), fs.Gaussian(0.2), W)
    X, Y = rng.uniform(-2, 2, (30, D)), rng.standard_normal((30, P))
    joint, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    due = fs.elbo(joint, X, Y, jitter=JITTER)
    turned, values = with_posteriors(model, kind), []
    for _ in range(30):
        turned, info = fs.natural_step(turned, X, Y, step_size=1.0, jitter=JITTER)
        assert info.in_turn and not info.backed_off
        values.append(info.value)
    assert (np.diff(values) >= -1e-10 * abs(due)).all()
    assert values[0] < values[-1] <= due + 1e-9 * abs(due)


def test_many_inducing_variables_move_in_turn(rng, tune):
    model, X, Y, options = problem(rng, "lmc")
    joint, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert not info.in_turn
    tune(joint_step_rows=9)  # 4 and 5 in the layers
    same, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert not info.in_turn
    assert_records_close(same, joint, 0)
    tune(joint_step_rows=8)
    first, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert info.in_turn and info.step_size == 1.0
    # the first layer moves at the marginals before, the second at those that the first left
    due = model
    for number in range(2):
        _, grad = fs.elbo_and_grad(due, X, Y, wrt=(f"latents.{number}.posterior",), **options)
        moved = plain_step(due.latents[number].posterior, grad.latents[number].posterior, 1.0)
        due = fs.records.replace_at(due, f"latents.{number}.posterior", moved)
    assert_records_close(first, due, 1e-8)
    value, info = best(model, X, Y, **options)
    assert value == pytest.approx(fs.elbo(joint, X, Y, **options), rel=1e-7)


@pytest.mark.parametrize("name", ["lmc", "noise", "wide", "separate"])
def test_in_turn_with_weights_chunks_and_missing_outputs(rng, tune, name):
    model, X, Y, options = problem(rng, name, N=17)
    model = with_posteriors(model, *([fs.posteriors.AbsorbedDualSites] * len(model.latents)))
    weights = rng.uniform(0.5, 2, Y.shape) * (rng.uniform(size=Y.shape) < 0.7)
    options |= {"weights": weights, "step_size": 0.5}
    holed = np.where(weights > 0, Y, np.nan)
    expected, info = fs.natural_step(model, X, holed, **options)
    assert info.in_turn is (name != "separate")
    tune(bound_chunk_numbers=1, bound_chunk_columns=5)
    found, other = fs.natural_step(model, X, Y, **options)
    assert other.value == pytest.approx(info.value, rel=1e-12)
    assert_records_close(found, expected, 1e-9)


def test_without_a_mixing_sites_move_at_once(rng):
    model, X, Y, options = problem(rng, "separate")
    model = with_posteriors(
        model, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites, fs.Whitened
    )
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, **options)
    assert not info.in_turn
    value, _ = best(model, X, Y, **options)
    assert fs.elbo(stepped, X, Y, **options) == pytest.approx(value, rel=1e-8)


def test_the_info_is_of_all_turns(rng):
    """The value before the first, the smallest size."""
    model, X, Y, options = problem(rng, "wide")
    model = with_posteriors(model, *[fs.posteriors.AbsorbedDualSites] * 3)
    Y[:3] += 30
    before = fs.elbo(model, X, Y, **options)
    _, info = fs.natural_step(model, X, Y, step_size=1.0, monotone=True, **options)
    assert info.value == pytest.approx(before, rel=1e-13)
    assert info.in_turn and info.backed_off is (info.step_size < 1)


# --- several steps --------------------------------------------------------------------------------


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("name", ["lmc", "icm", "separate", "noise", "sites", "pairs"])
def test_several_steps_are_repeated_single_ones(rng, name, monotone):
    model, X, Y, options = problem(rng, name)
    found, infos = fs.sites.natural_steps(
        model, X, Y, steps=3, step_size=0.5, monotone=monotone, **options
    )
    due, size = model, 0.5
    for info in infos:
        due, one = fs.natural_step(due, X, Y, step_size=size, monotone=monotone, **options)
        assert info.value == pytest.approx(one.value, rel=1e-12)
        assert info[1:] == one[1:] and len(infos) == 3
        size = min(0.5, 1.5 * one.step_size) if monotone else 0.5
    assert_records_close(found, due, 1e-9)


def test_rows_of_each_step(rng):
    model, X, Y, _ = problem(rng, "lmc")
    rows = [np.arange(5), [8, 2, 6], np.array([10])]
    found, infos = fs.sites.natural_steps(model, X, Y, rows=rows, step_size=0.4, jitter=JITTER)
    due = model
    for at, info in zip(rows, infos, strict=True):
        at = np.sort(at)
        due, one = fs.natural_step(due, X[at], Y[at], step_size=0.4, num_data=len(X), jitter=JITTER)
        assert info.value == pytest.approx(one.value, rel=1e-12)
    assert_records_close(found, due, 1e-9)
    with pytest.raises(ValueError, match="`rows`"):
        fs.sites.natural_steps(model, X, Y, rows=[[0, 0]])


def test_a_tolerance_ends_the_steps(rng):
    model, X, Y, options = problem(rng, "noise")
    _, infos = fs.sites.natural_steps(
        model, X, Y, steps=200, step_size=0.7, tolerance=1e-3, monotone=True, **options
    )
    gains = np.diff([info.value for info in infos])
    assert 2 < len(infos) < 200 and gains[-1] < 1e-3 and (gains[:-1] >= 1e-3).all()
    same, infos = fs.sites.natural_steps(model, X, Y, steps=0, **options)
    assert infos == [] and same is model


def test_mixing_of_one_column_is_joint_for_any_kind(rng):
    """One latent function has no others to wait for."""
    one = layer(rng)
    model = fs.MultiGP((one,), fs.Gaussian(0.2), mixing(rng, P, 1))
    X, Y = rng.uniform(-2, 2, (30, D)), rng.standard_normal((30, P))
    values = []
    for kind in KINDS:
        stepped, info = fs.natural_step(
            with_posteriors(model, kind), X, Y, step_size=1.0, jitter=JITTER
        )
        values.append(fs.elbo(stepped, X, Y, jitter=JITTER))
        assert not info.in_turn
    np.testing.assert_allclose(values, values[0], rtol=1e-10)


@pytest.mark.parametrize("random", [{}, {"sampled": 2}])
def test_the_passes_of_a_layer_share_the_factor_of_Kuu(rng, monkeypatch, random):
    X, Y = rng.uniform(-2, 2, (20, D)), rng.standard_normal((20, P))
    Z = fs.posteriors.InducingPair(X[:4].copy(), X[4:10].copy())
    weights = fs.posteriors.DecoupledWeights(np.zeros(4), np.eye(4), np.zeros(6))
    covariance = fs.RBF(1.0, np.ones(D))
    first = fs.layers.Layer(covariance, Z, weights)
    second = fs.layers.Layer(covariance, X[:5].copy(), fs.Whitened(np.zeros(5), np.eye(5)))
    model = fs.MultiGP((first, second), fs.Gaussian(0.2), mixing(rng, P, 2))
    made, prior_factor = [], turns.PriorFactor
    monkeypatch.setattr(
        turns, "PriorFactor", lambda *args: made.append(args) or prior_factor(*args)
    )
    _, info = fs.natural_step(model, X, Y, jitter=JITTER, rng=0, **random)
    assert info.in_turn and len(made) == 1  # of the second layer; the first makes its own
