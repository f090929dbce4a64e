"""EM: rounds never lower the bound; fixed sites or q(u), files, interrupts, and refusals."""

import numpy as np
import pytest
from support.interruptions import at_call

import fastsvgp as fs
from fastsvgp.train import em as module

M, N = 8, 60
KINDS = [
    fs.posteriors.AbsorbedDualSites,
    fs.posteriors.DualSites,
    fs.Whitened,
    fs.Marginal,
    fs.sites.SiteSVGP,
    fs.sites.VGP,
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def problem(
    rng, kind=fs.posteriors.AbsorbedDualSites, likelihood=None, variance=1.0, lengthscale=0.6
):
    X, Z = rng.uniform(-2, 2, (N, 1)), np.linspace(-2, 2, M)[:, None]
    f = 2 * np.sin(2.5 * X[:, 0])
    likelihood = likelihood or fs.Gaussian(0.1)
    targets = {
        "Gaussian": f + 0.3 * rng.standard_normal(N),
        "StudentT": f + 0.2 * rng.standard_t(3, N),
        "BernoulliLogit": (rng.random(N) < 1 / (1 + np.exp(-2 * f))) * 1.0,
        "Poisson": rng.poisson(np.exp(0.7 * f)) * 1.0,
    }
    covariance = fs.RBF(variance=variance, lengthscales=lengthscale)
    y = targets[type(likelihood).__name__]
    if kind is fs.sites.VGP:
        return kind(covariance, fs.sites.Sites(np.zeros(N), np.zeros(N)), likelihood), X, y
    if kind is fs.sites.SiteSVGP:
        return kind(covariance, Z, fs.sites.Sites(np.zeros(N), np.zeros(N)), likelihood), X, y
    if issubclass(kind, fs.Whitened | fs.Marginal):
        q = fs.posteriors.at_prior(kind, covariance, Z)
    else:
        q = kind(np.zeros(M), np.zeros((M, M)))
    return fs.SVGP(covariance, Z, q, likelihood), X, y


def bound_of(model, X, y):
    return (fs.sites.bound if isinstance(model, fs.sites.SiteSVGP | fs.sites.VGP) else fs.elbo)(
        model, X, y
    )


@pytest.mark.parametrize(
    "likelihood",
    [fs.Gaussian(0.1), fs.StudentT(0.3, df=4.0), fs.likelihoods.BernoulliLogit(), fs.Poisson()],
    ids=lambda v: type(v).__name__,
)
@each_kind
def test_no_step_of_either_kind_lowers_the_bound(rng, kind, likelihood):
    model, X, y = problem(rng, kind, likelihood)
    found, info = fs.em(model, X, y, rounds=4, m_iterations=8)
    assert (
        info.steps
        == len(info.values)
        == len(info.e_values)
        == len(info.e_steps)
        == len(info.m_evaluations)
        <= 4
    )
    climbed = np.ravel(np.column_stack([info.e_values, info.values]))
    assert np.diff(climbed).min() >= -1e-8 * np.abs(climbed).max()
    assert bound_of(found, X, y) == pytest.approx(info.values[-1], rel=1e-12)
    for path, _, value in fs.records.leaves(found):
        assert (
            np.asarray(value) != dict((p, v) for p, _, v in fs.records.leaves(model))[path]
        ).any(), path


def test_a_line_search_that_overflows_comes_back():
    """A trial step of a Poisson rate reaches 1e200, still finite; the M-step must not end there."""
    model, X, y = problem(np.random.default_rng(4242), fs.Marginal, fs.Poisson())
    _, info = fs.em(model, X, y, rounds=1, m_iterations=8)
    assert info.values[0] > info.e_values[0] + 1e-3


def test_absorbed_sites_need_three_rounds(rng):
    """They come within 0.01 nats of the optimum; whitened q(u) does not in three rounds."""
    ahead = []
    for likelihood in (fs.likelihoods.BernoulliLogit(), fs.Poisson(), fs.StudentT(0.3, df=4.0)):
        held, ends = (
            (
                ("inducing",)
                if isinstance(likelihood, fs.likelihoods.BernoulliLogit | fs.Poisson)
                else ("inducing", "likelihood")
            ),
            {},
        )
        for kind in (fs.posteriors.AbsorbedDualSites, fs.sites.SiteSVGP, fs.Whitened):
            model, X, y = problem(
                np.random.default_rng(3), kind, likelihood, variance=4.0, lengthscale=0.4
            )
            ends[kind] = fs.em(model, X, y, rounds=3, m_iterations=50, fixed=held)[1].values[-1]
        model, X, y = problem(
            np.random.default_rng(3),
            fs.posteriors.AbsorbedDualSites,
            likelihood,
            variance=4.0,
            lengthscale=0.4,
        )
        _, info = fs.em(model, X, y, rounds=60, m_iterations=100, fixed=held, tolerance=1e-9)
        best = max(info.values[-1], *ends.values())
        assert (
            ends[fs.posteriors.AbsorbedDualSites] > best - 0.01
            and ends[fs.sites.SiteSVGP] > best - 0.01
        )
        ahead.append(ends[fs.posteriors.AbsorbedDualSites] - ends[fs.Whitened])
    assert min(ahead) > -1e-3 and max(ahead) > 0.02


def test_with_gaussian_noise_it_climbs_the_collapsed_bound(rng):
    model, X, y = problem(rng)
    found, info = fs.em(model, X, y, rounds=1, m_iterations=0)
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    assert (
        info.e_values[0]
        == info.values[0]
        == pytest.approx(fs.collapsed_bound(sgpr, X, y), rel=1e-10)
    )
    found, info = fs.em(model, X, y, rounds=200, m_iterations=50, tolerance=1e-4, fixed="inducing")
    _, collapsed = fs.fit(sgpr, X, y, fixed="inducing")
    assert info.reason == "converged" and info.values[-1] == pytest.approx(
        collapsed.values[-1], abs=0.05
    )


@each_kind
def test_what_is_fixed_is_held(rng, kind):
    model, X, y = problem(rng, kind)
    inducing = () if kind is fs.sites.VGP else ("inducing",)
    found, info = fs.em(model, X, y, rounds=2, fixed=(*inducing, "covariance.variance"))
    for name in inducing:
        np.testing.assert_array_equal(getattr(found, name), getattr(model, name))
    assert (
        found.covariance.variance == model.covariance.variance
        and found.covariance.lengthscales != 0.6
    )
    found, info = fs.em(model, X, y, rounds=3, fixed=(*inducing, "covariance", "likelihood"))
    assert info.m_evaluations.tolist() == [0] * info.steps and info.reason == "converged"


@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "likelihood", [fs.likelihoods.BernoulliLogit(), fs.Poisson()], ids=lambda v: type(v).__name__
)
def test_e_steps_by_batches_end_where_full_ones_do(rng, kind, likelihood):
    """Without noise: a batch updates only its own sites."""
    model, X, y = problem(rng, kind, likelihood)
    whole, _ = fs.em(model, X, y, rounds=1, m_iterations=0, step_size=0.5)
    found, info = fs.em(model, X, y, rounds=1, m_iterations=0, step_size=1.0, batch_size=13)
    assert (
        bound_of(found, X, y) == pytest.approx(bound_of(whole, X, y), abs=1e-4)
        and info.e_steps[0] % 5 == 0
    )
    found, info = fs.em(model, X, y, rounds=3, m_iterations=5, batch_size=13)
    climbed = np.ravel(np.column_stack([info.e_values, info.values]))
    assert np.diff(climbed).min() >= -1e-8 * np.abs(climbed).max()


@pytest.mark.filterwarnings("ignore::fastsvgp.VarianceClampWarning")
@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
def test_an_epoch_that_goes_too_far_is_taken_back(rng, kind):
    """Large Poisson rates: a batch overshoots, and the next bound is lower, or minus infinity."""
    model, X, _ = problem(rng, kind, fs.Poisson(), variance=4.0)
    y = rng.poisson(np.exp(5 + 1.5 * np.sin(2 * X[:, 0]))) * 1.0
    found, info = fs.em(model, X, y, rounds=2, m_iterations=3, batch_size=13)
    climbed = np.ravel(np.column_stack([info.e_values, info.values]))
    assert np.diff(climbed).min() >= -1e-8 * np.abs(climbed).max() and climbed[0] > bound_of(
        model, X, y
    )


def test_an_optimiser_in_the_place_of_lbfgs(rng):
    model, X, y = problem(rng)
    found, info = fs.em(
        model, X, y, rounds=3, optimiser=fs.adam(0.02), m_iterations=15, fixed="inducing"
    )
    assert info.m_evaluations.tolist() == [15] * 3 and info.values[-1] > info.e_values[0]
    np.testing.assert_array_equal(found.inducing, model.inducing)


@each_kind
def test_checkpoints_go_on_as_if_nothing_had_been(rng, tmp_path, kind):
    model, X, y = problem(rng, kind, fs.likelihoods.BernoulliLogit())
    options = {"m_iterations": 6, "tolerance": 0.0, "rng": 5}
    whole, info = fs.em(model, X, y, rounds=4, **options)
    fs.em(model, X, y, rounds=2, checkpoint=tmp_path / "c.npz", **options)
    again, resumed = fs.em(model, X, y, rounds=4, resume=tmp_path / "c.npz", **options)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(again), fs.records.leaves(whole), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)
    for name in ("values", "e_values", "e_steps", "m_evaluations"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(info, name))
    # not of ``fit``
    with pytest.raises(ValueError, match="^`resume`: .* was made with other data"):
        fs.em(model, X + 1, y, resume=tmp_path / "c.npz")


def test_callbacks_and_interrupts_end_it_after_whole_rounds(rng, monkeypatch):
    model, X, y = problem(rng)
    calls = []
    found, info = fs.em(
        model, X, y, rounds=9, tolerance=0.0, callback=lambda *a: calls.append(a) or len(calls) == 2
    )
    assert info.reason == "callback" and info.steps == 2 and [t[0] for t in calls] == [1, 2]
    assert calls[-1][1] == info.values[-1] and calls[-1][2].model is found
    with at_call(module, "natural_steps", 3):
        same, info = fs.em(model, X, y, rounds=9, tolerance=0.0)
    assert info.interrupted and info.steps == 2
    assert fs.elbo(same, X, y) == fs.elbo(found, X, y)


def test_bad_input(rng):
    model, X, y = problem(rng)
    relaxed = fs.replace(model, posterior=fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M)))
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    for change, error, message in (
        ({"rounds": -1}, ValueError, "`rounds` must be a whole number of at least 0"),
        ({"e_limit": 0}, ValueError, "`e_limit` must be a whole number of at least 1"),
        ({"e_tolerance": -1.0}, ValueError, "em: `e_tolerance` must be zero or more, got -1"),
        ({"tolerance": -1.0}, ValueError, "em: `tolerance` must be zero or more"),
        ({"step_size": 1.5}, ValueError, "`step_size` must be above 0 and at most 1"),
        ({"optimiser": "adam"}, TypeError, "em: `optimiser` must"),
        ({"fixed": "lengthscale"}, ValueError, "`fixed` names 'lengthscale', which is no field"),
        (
            {"rng": np.random.default_rng(0)},
            TypeError,
            "em: `rng` must be a whole number from 0, a seed",
        ),
        ({"rng": -1}, TypeError, "em: `rng` must be a whole number from 0, a seed, got -1"),
        ({"callback": 3}, TypeError, "em: `callback` must be a function"),
        (
            {"model": relaxed},
            TypeError,
            "natural_steps: a Relaxed posterior is none of Whitened, Marginal",
        ),
        (
            {"model": sgpr},
            TypeError,
            "em: `model` must be a fastsvgp.MultiGP, SVGP, sites.SiteSVGP or sites.VGP, got SGPR",
        ),
        ({"Y": y[:-1]}, ValueError, "`Y` must have one row for each"),
        ({"checkpoint": "nowhere/c.npz"}, ValueError, "`checkpoint` is to be written to .*nowhere"),
    ):
        with pytest.raises(error, match=message):
            fs.em(**({"model": model, "X": X, "Y": y} | change))
