"""Natural steps on real models; tests of the posteriors cover the algebra."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.posteriors import Pass

POSTERIORS = pytest.mark.parametrize("cls", [fs.Whitened, fs.Marginal], ids=lambda c: c.__name__)


def model(rng, cls, likelihood, M=6):
    q = cls(rng.standard_normal(M), lower_factor(rng, M))
    return fs.SVGP(
        fs.RBF(1.2, np.array([0.9, 1.1])),
        rng.standard_normal((M, 2)),
        q,
        likelihood,
        fs.means.ConstantMean(0.3),
    )


def prior_factor(m):
    """Return the Cholesky factor of the prior covariance in the coordinates of the posterior."""
    if isinstance(m.posterior, fs.Whitened):
        return np.eye(6)
    return np.linalg.cholesky(m.covariance.matrix(m.inducing) + 1e-6 * np.eye(6))


@POSTERIORS
def test_gaussian_step_of_size_one_is_the_optimum(rng, cls):
    X = rng.standard_normal((40, 2))
    Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(40)
    start = model(rng, cls, fs.Gaussian(0.05))
    stepped, info = fs.natural_step(start, X, Y, step_size=1.0)
    sgpr = fs.SGPR(start.covariance, start.inducing, 0.05, start.mean)
    np.testing.assert_allclose(fs.elbo(stepped, X, Y), fs.collapsed_bound(sgpr, X, Y), rtol=1e-10)
    np.testing.assert_allclose(info.value, fs.elbo(start, X, Y), rtol=1e-12)
    assert info.step_size == 1.0 and not info.backed_off
    assert stepped.covariance.variance == start.covariance.variance
    again, _ = fs.natural_step(stepped, X, Y, step_size=1.0)
    np.testing.assert_allclose(
        again.posterior.scale_tril, stepped.posterior.scale_tril, rtol=1e-8, atol=1e-10
    )


@POSTERIORS
@pytest.mark.parametrize("likelihood", [fs.likelihoods.BernoulliLogit(), fs.Poisson()])
def test_repeated_steps_climb_to_a_stationary_point(rng, cls, likelihood):
    X = rng.standard_normal((60, 2))
    Y = (X[:, 0] > 0).astype(float)
    m = model(rng, cls, likelihood)
    m = fs.replace(m, posterior=cls(np.zeros(6), 0.1 * np.eye(6)))
    values = []
    # each shrinks the way left to about 0.8 of it where the likelihood is least like a Gaussian
    for _ in range(150):
        m, info = fs.natural_step(m, X, Y, step_size=0.5)
        values.append(info.value)
    assert all(b > a - 1e-9 for a, b in zip(values[5:], values[6:], strict=False))
    _, grad = fs.elbo_and_grad(m, X, Y, wrt=("posterior",))
    L = prior_factor(m)  # gradients in coordinates where the prior has unit covariance
    assert (
        np.abs(L.T @ grad.posterior.mean).max() < 1e-6
        and np.abs(L.T @ grad.posterior.scale_tril).max() < 1e-6
    )


@POSTERIORS
def test_a_step_out_of_the_cone_is_halved_and_reported(rng, cls):
    # Student-t: far outliers make the curvature negative; a long step then leaves the positive
    # definite precisions
    X = rng.standard_normal((200, 2))
    Y = np.where(np.arange(200) % 2, 6.0, -6.0)
    m = model(rng, cls, fs.StudentT(0.3, df=3.0))
    m = fs.replace(m, posterior=cls(np.zeros(6), 0.5 * prior_factor(m)))
    stepped, info = fs.natural_step(m, X, Y, step_size=1.0)
    assert info.backed_off and 0 < info.step_size < 1.0
    assert np.log2(info.step_size) == round(np.log2(info.step_size))
    assert np.isfinite(fs.elbo(stepped, X, Y))
    # the longest of the halves that stays inside
    again, inside = fs.natural_step(m, X, Y, step_size=info.step_size)
    assert not inside.backed_off
    np.testing.assert_array_equal(again.posterior.scale_tril, stepped.posterior.scale_tril)
    assert fs.natural_step(m, X, Y, step_size=2 * info.step_size)[1].step_size == info.step_size


def test_minibatch_step_scales_the_data_term(rng):
    X = rng.standard_normal((20, 2))
    Y = X[:, 0]
    m = model(rng, fs.Whitened, fs.Gaussian(0.1))
    copies, _ = fs.natural_step(m, np.tile(X, (3, 1)), np.tile(Y, 3), step_size=0.4)
    scaled, _ = fs.natural_step(m, X, Y, step_size=0.4, num_data=60)
    np.testing.assert_allclose(scaled.posterior.mean, copies.posterior.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(
        scaled.posterior.scale_tril, copies.posterior.scale_tril, rtol=1e-9, atol=1e-10
    )


def test_a_bound_that_is_not_finite_is_named(rng):
    X = rng.standard_normal((10, 2))
    m = model(rng, fs.Whitened, fs.Poisson())
    m = fs.records.replace_at(m, "mean.value", 2000.0)  # exp(2000) overflows
    with pytest.raises(ValueError, match="the bound is -inf at this posterior"):
        fs.natural_step(m, X, np.ones(10))


def test_monotone_steps_never_lower_the_bound(rng):
    """Poisson with large rates from a distant start, where a step of 1 overshoots."""
    X, Z = rng.uniform(-2, 2, (60, 1)), np.linspace(-2, 2, 6)[:, None]
    Y = rng.poisson(np.exp(3 + 1.5 * np.sin(2 * X[:, 0]))) * 1.0
    model = fs.SVGP(
        fs.RBF(4.0, 0.7), Z, fs.posteriors.at_prior(fs.Whitened, fs.RBF(4.0, 0.7), Z), fs.Poisson()
    )
    bare, info = fs.natural_step(model, X, Y, step_size=1.0)
    assert info.step_size == 1.0
    before, sizes = fs.elbo(model, X, Y), []
    for _ in range(12):
        model, info = fs.natural_step(model, X, Y, step_size=1.0, monotone=True)
        sizes.append(info.step_size)
        assert info.value >= before - 1e-9 * abs(before)
        before = info.value
    assert min(sizes) < 1 == sizes[-1] and fs.elbo(model, X, Y) > before - 1e-9 * abs(before)
    with pytest.raises(TypeError, match="`monotone` must be"):
        fs.natural_step(model, X, Y, monotone=3)


def test_monotone_steps_of_outputs_and_of_random_quantities(rng):
    X, Y = rng.uniform(-2, 2, (30, 1)), rng.standard_normal((30, 2))
    pair = fs.posteriors.InducingPair(X[:4].copy(), X[4:12].copy())
    covariance = fs.RBF(1.0, 0.7)
    for q, options in (
        (fs.Whitened, {}),
        (fs.posteriors.DecoupledWeights, {"sampled": 3, "rng": 0}),
    ):
        inducing = pair if q is fs.posteriors.DecoupledWeights else pair.Z
        start = fs.posteriors.at_prior(q, covariance, inducing, outputs=2)
        model = fs.SVGP(covariance, inducing, start, fs.StudentT(0.3, df=4.0))
        stepped, info = fs.natural_step(
            model, X, Y, step_size=0.5, num_data=60, monotone=True, **options
        )
        assert fs.elbo(stepped, X, Y, num_data=60, **options) >= info.value
        bare, same = fs.natural_step(model, X, Y, step_size=info.step_size, num_data=60, **options)
        assert same.value == info.value
        for (_, _, one), (_, _, other) in zip(
            fs.records.leaves(stepped), fs.records.leaves(bare), strict=True
        ):
            np.testing.assert_array_equal(one, other)


# --- with the gradient at the new q(u) -----------------------------------------


def both_ways(model, X, Y, wrt=None, monotone=False, **options):
    """Compare ``natural_step_and_grad`` with the two separate calls."""
    found, info, value, grad = fs.optim.natural_step_and_grad(
        model, X, Y, step_size=0.4, wrt=wrt, monotone=monotone, **options
    )
    stepped, same = fs.natural_step(model, X, Y, step_size=0.4, monotone=monotone, **options)
    names = ("covariance", "inducing", "likelihood", "mean") if wrt is None else wrt
    expected, bars = fs.elbo_and_grad(stepped, X, Y, wrt=names, **options)
    tolerance = 1e-3 if X.dtype == np.float32 else 1e-11
    np.testing.assert_allclose([value, info.value], [expected, same.value], rtol=tolerance)
    assert info[1:] == same[1:]
    for ours, theirs in ((found, stepped), (grad, bars)):
        for (path, _, a), (other, _, b) in zip(
            fs.records.leaves(ours), fs.records.leaves(theirs), strict=True
        ):
            assert path == other and (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(
                    a, b, rtol=tolerance, atol=tolerance * (1e-30 + np.abs(b).max()), err_msg=path
                )
    return grad


KINDS = pytest.mark.parametrize(
    "kind",
    [fs.Whitened, fs.Marginal, fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites],
    ids=lambda c: c.__name__,
)


@KINDS
@pytest.mark.parametrize("N", [5, 20, 70])  # batch, Gram and long forms
@pytest.mark.parametrize("outputs", [None, 2])
def test_step_and_gradient_are_those_of_two_calls(rng, kind, N, outputs, tune):
    X = rng.standard_normal((N, 2))
    Y = (
        np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)
        if outputs is None
        else rng.standard_normal((N, outputs))
    )
    batch = () if outputs is None else (outputs,)
    q = fs.Whitened(rng.standard_normal((*batch, 6)), lower_factor(rng, *batch, 6))
    start = fs.SVGP(
        fs.RBF(1.2, np.array([0.9, 1.1])),
        rng.standard_normal((6, 2)),
        q,
        fs.Gaussian(0.3),
        fs.means.ConstantMean(0.3),
    )
    start = fs.posteriors.convert(start, kind, jitter=1e-4)
    both_ways(start, X, Y, num_data=100, jitter=1e-4)
    grad = both_ways(start, X, Y, ("covariance.variance", "posterior"), jitter=1e-4)
    assert (
        grad.covariance.lengthscales is None
        and grad.posterior is not None
        and grad.inducing is None
    )
    tune(bound_chunk_columns=8, bound_chunk_numbers=1)
    both_ways(start, X, Y, num_data=100, jitter=1e-4)


def test_step_and_gradient_share_the_blocks(rng, monkeypatch, tune):
    X = rng.standard_normal((20, 2))
    m, calls = model(rng, fs.Whitened, fs.StudentT(0.3, df=4.0)), []
    for name in ("Kuu", "Kuf"):
        whole = getattr(fs.RBF, name)
        monkeypatch.setattr(
            fs.RBF,
            name,
            lambda self, *a, _name=name, _whole=whole: calls.append(_name) or _whole(self, *a),
        )
    together = fs.optim.natural_step_and_grad(m, X, X[:, 0], step_size=0.2)
    assert calls == ["Kuu", "Kuf"]
    # too many to be kept: one after the other
    tune(shared_block_numbers=2 * 20 * 6 - 1)
    apart = fs.optim.natural_step_and_grad(m, X, X[:, 0], step_size=0.2)
    assert calls == ["Kuu", "Kuf"] * 3
    np.testing.assert_allclose(together[3].inducing, apart[3].inducing, rtol=1e-9)


def test_step_and_gradient_of_other_posteriors_and_options(rng):
    X, Y = rng.uniform(-2, 2, (30, 1)), rng.standard_normal((30, 2))
    pair, covariance = fs.posteriors.InducingPair(X[:4].copy(), X[4:12].copy()), fs.RBF(1.0, 0.7)
    for q, options in (
        (fs.posteriors.WhitenedOrthogonal, {}),
        (fs.posteriors.Orthogonal, {}),
        (fs.posteriors.DecoupledWeights, {"sampled": 3, "rng": 0}),
    ):
        start = fs.SVGP(
            covariance,
            pair,
            fs.posteriors.at_prior(q, covariance, pair, outputs=2),
            fs.StudentT(0.3, df=4.0),
        )
        both_ways(start, X, Y, ("covariance", "inducing"), num_data=60, monotone=True, **options)
    m = model(rng, fs.Whitened, fs.StudentT(0.3, df=4.0))
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], m)
    X = rng.standard_normal((40, 2))
    both_ways(m, X, X[:, 0], ("covariance", "inducing"), monotone=True)
    both_ways(single, X.astype(np.float32), X[:, 0].astype(np.float32), ("covariance", "inducing"))
    with pytest.raises(TypeError, match="natural_step: a LikelihoodForm posterior cannot take"):
        fs.optim.natural_step_and_grad(
            fs.replace(m, posterior=fs.posteriors.LikelihoodForm(np.zeros(6), np.ones(6))),
            X,
            X[:, 0],
        )
    with pytest.raises(ValueError, match="wrt"):
        fs.optim.natural_step_and_grad(m, X, X[:, 0], wrt=("lengthscales",))


def test_fit_takes_the_gradient_with_its_natural_step(rng, monkeypatch):
    """The trajectory equals that of the two calls, with one Kuu per step."""
    X = rng.standard_normal((50, 2))
    Y = np.sin(X[:, 0])
    start, options = (
        model(rng, fs.Whitened, fs.Gaussian(0.1)),
        dict(steps=4, batch_size=50, natural_step_size=0.3, rng=0),
    )
    whole, calls = fs.RBF.Kuu, []
    with monkeypatch.context() as patched:
        patched.setattr(fs.RBF, "Kuu", lambda self, *a: calls.append(1) or whole(self, *a))
        fitted, info = fs.fit(start, X, Y, **options)
    assert len(calls) == 4
    adam = fs.adam(0.01).fixing(("posterior",))
    m, state = start, adam.init(start)
    for _ in range(4):
        m, _ = fs.natural_step(m, X, Y, step_size=0.3)
        value, grad = fs.elbo_and_grad(m, X, Y)
        m, state = adam.step(m, grad, state, value)
    np.testing.assert_allclose(info.values[-1], value, rtol=1e-10)
    np.testing.assert_allclose(fitted.inducing, m.inducing, rtol=1e-9)
    np.testing.assert_allclose(
        fitted.posterior.scale_tril, m.posterior.scale_tril, rtol=1e-7, atol=1e-9
    )


class OwnPass(Pass):
    """Pass without shared rows."""

    def __init__(self, work):
        self._work = work

    clamped = 0

    def __getattr__(self, name):
        return getattr(self._work, name)

    def project(self, Kuf, kff):
        return self._work.project(Kuf, kff)

    def pull(self, rows, f_bar):
        return self._work.pull(rows, f_bar)

    def kl(self):
        return self._work.kl()

    def finish(self, kl_bar):
        return self._work.finish(kl_bar)

    def natural_step(self, step_size):
        return self._work.natural_step(step_size)


def test_step_and_gradient_of_user_defined_passes(rng, monkeypatch):
    """Derived from a posterior whose passes share rows; with random quantities too."""
    X = rng.standard_normal((30, 2))
    m, plain = model(rng, fs.Whitened, fs.Gaussian(0.1)), fs.Whitened.start_from
    expected = fs.optim.natural_step_and_grad(m, X, X[:, 0])
    monkeypatch.setattr(
        fs.Whitened, "start_from", lambda self, *a, **k: OwnPass(plain(self, *a, **k))
    )
    found = fs.optim.natural_step_and_grad(m, X, X[:, 0])
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-10)
    np.testing.assert_allclose(found[3].inducing, expected[3].inducing, rtol=1e-8, atol=1e-10)
    monkeypatch.undo()
    probes_seen = []
    monkeypatch.setattr(fs.Whitened, "random_quantities", ("probes",))
    monkeypatch.setattr(fs.Whitened, "draw", lambda self, name, value, M, dtype, rng: value)
    monkeypatch.setattr(
        fs.Whitened,
        "start_from",
        lambda self, *a, probes=None: probes_seen.append(probes) or plain(self, *a),
    )
    monkeypatch.setattr(
        fs.extending.models, "RANDOM_QUANTITIES", fs.extending.models.RANDOM_QUANTITIES | {"probes"}
    )
    fs.optim.natural_step_and_grad(m, X, X[:, 0], probes=2)
    assert probes_seen == [2, 2]


def test_step_and_gradient_without_any_field(rng):
    X = rng.standard_normal((30, 2))
    m = model(rng, fs.Whitened, fs.Gaussian(0.1))
    stepped, info, value, grad = fs.optim.natural_step_and_grad(m, X, X[:, 0], wrt=())
    np.testing.assert_allclose(value, fs.elbo(stepped, X, X[:, 0]), rtol=1e-12)
    assert grad.covariance is grad.inducing is grad.posterior is grad.likelihood is None
