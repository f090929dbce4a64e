"""Tied dual sites: E-steps against natural steps of q(u), invalid sites, pseudo-data, training."""

import numpy as np
import pytest
from support import definitions
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs

KINDS = [fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
NAMES = {fs.posteriors.AbsorbedDualSites: "absorbed-sites", fs.posteriors.DualSites: "dual-sites"}
M, N, D = 6, 40, 2


def problem(rng, kind, P=None, likelihood=None, mean=None):
    """``(model with sites, the same q as Whitened and as Marginal, X, Y)``."""
    batch = () if P is None else (P,)
    covariance, Z = fs.Matern52(1.1, np.array([0.9, 1.4])), rng.uniform(-2, 2, (M, D))
    A = covariance.Kuu(Z) + JITTER * np.eye(M)
    likelihood = likelihood or fs.Gaussian(0.3)
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))
    if likelihood.num_latent is not None:
        Y = rng.integers(0, likelihood.num_latent, N)
    q = EVERY[NAMES[kind]].make(rng, A, batch)
    model = fs.SVGP(covariance, Z, q, likelihood, mean)
    L, (m, S) = np.linalg.cholesky(A), definitions.q_of_u(q, A)
    W = np.linalg.cholesky(S)
    shape = (*batch, M)
    whitened = fs.Whitened(
        np.linalg.solve(L, m.T).T.reshape(shape), np.linalg.solve(L, W).reshape(*shape, M)
    )
    marginal = fs.Marginal(m.reshape(shape), W.reshape(*shape, M))
    return model, fs.replace(model, posterior=whitened), fs.replace(model, posterior=marginal), X, Y


def moments_of(model):
    A = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M)
    return definitions.q_of_u(model.posterior, A)


LIKELIHOODS = [
    ({}, fs.Gaussian(0.3)),
    ({}, fs.StudentT(0.3, df=3.0)),
    ({"P": 3}, fs.likelihoods.RobustMax(num_classes=3)),
    ({"P": 3}, fs.likelihoods.Laplace(0.4)),
    ({"mean": fs.means.ConstantMean(0.7)}, fs.Gaussian(0.2)),
]


@pytest.mark.parametrize("size", [1.0, 0.3])
@pytest.mark.parametrize(
    "options, likelihood",
    LIKELIHOODS,
    ids=lambda v: "+".join(v) if isinstance(v, dict) else type(v).__name__,
)
@each_kind
def test_an_e_step_is_the_natural_step_of_q(rng, kind, options, likelihood, size):
    """E-steps equal those of ``Whitened`` and ``Marginal``, with the same backtracking."""
    model, whitened, marginal, X, Y = problem(rng, kind, likelihood=likelihood, **options)
    stepped = [
        fs.natural_step(m, X, Y, step_size=size, num_data=3 * N, jitter=JITTER)
        for m in (model, whitened, marginal)
    ]
    ours, info = stepped[0]
    assert type(ours.posterior) is kind
    for other, theirs in stepped[1:]:
        assert (
            info.value == pytest.approx(theirs.value, rel=1e-10)
            and info.step_size == theirs.step_size
        )
        for a, b in zip(moments_of(ours), moments_of(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@each_kind
def test_unit_step_on_gaussian_data_is_the_optimum(rng, kind):
    """Value and gradients there, except of the sites, are those of the collapsed bound."""
    model, _, _, X, Y = problem(rng, kind)
    best, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    value, grad = fs.elbo_and_grad(best, X, Y, jitter=JITTER)
    collapsed, truth = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=JITTER)
    assert value == pytest.approx(collapsed, rel=1e-10)
    np.testing.assert_allclose(grad.inducing, truth.inducing, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(
        grad.covariance.lengthscales, truth.covariance.lengthscales, rtol=1e-8
    )
    np.testing.assert_allclose(grad.likelihood.variance, truth.noise_variance, rtol=1e-8)
    np.testing.assert_allclose(grad.posterior.lambda1, 0, atol=1e-8)


def test_the_m_step_of_absorbed_sites_is_tighter(rng):
    """Under Gaussian noise absorbed sites follow the collapsed bound; dual sites do not."""
    found = {}
    for kind in KINDS:
        model, whitened, _, X, Y = problem(rng, kind)
        best, _ = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
        other, _ = fs.natural_step(whitened, X, Y, step_size=1.0, jitter=JITTER)
        for factor in (0.5, 2.0):
            moved = [
                fs.elbo(
                    fs.records.replace_at(m, "covariance.variance", factor * 1.1),
                    X,
                    Y,
                    jitter=JITTER,
                )
                for m in (best, other)
            ]
            found.setdefault(kind, []).append(moved[0] - moved[1])
    assert min(found[fs.posteriors.AbsorbedDualSites]) > 0 > max(found[fs.posteriors.DualSites])


@pytest.mark.parametrize(
    "likelihood", [fs.likelihoods.BernoulliLogit(), fs.Poisson()], ids=lambda v: type(v).__name__
)
def test_bounds_as_the_prior_moves(rng, likelihood):
    """All bounds have one value and, after a converged E-step, one gradient.

    If the variance moves, absorbed sites are always tighter than whitened q, and the tying of the
    paper never is. If the lengthscale moves, they mostly are. Sites per datum equal absorbed sites.
    """
    tighter = {"variance": [], "lengthscales": []}
    for _ in range(5):
        X, Z = rng.uniform(-2, 2, (40, 1)), np.linspace(-2, 2, 8)[:, None]
        f = 2 * np.sin(2 * X[:, 0])
        Y = (
            rng.poisson(np.exp(f / 2))
            if isinstance(likelihood, fs.Poisson)
            else rng.random(40) < 1 / (1 + np.exp(-f))
        )
        Y = Y.astype(float)
        model = fs.SVGP(
            fs.RBF(1.0, 0.6),
            Z,
            fs.posteriors.at_prior(fs.posteriors.AbsorbedDualSites, fs.RBF(1.0, 0.6), Z),
            likelihood,
        )
        model, _ = fs.sites.natural_steps(
            model, X, Y, steps=300, step_size=1.0, monotone=True, tolerance=1e-12
        )
        held = [
            model,
            fs.posteriors.convert(model, fs.Whitened),
            fs.posteriors.convert(model, fs.posteriors.DualSites),
            fs.posteriors.convert(model, fs.Marginal),
        ]
        (value, grad), *others = (fs.elbo_and_grad(one, X, Y, wrt=("covariance",)) for one in held)
        for other, bars in others:
            assert other == pytest.approx(value, rel=1e-8)
            np.testing.assert_allclose(
                bars.covariance.variance, grad.covariance.variance, rtol=1e-3, atol=1e-4
            )
            np.testing.assert_allclose(
                bars.covariance.lengthscales, grad.covariance.lengthscales, rtol=1e-3, atol=1e-4
            )
        each = fs.sites.SiteSVGP(
            model.covariance, Z, fs.sites.dual_parameters(model, X, Y), likelihood
        )
        for field, found in tighter.items():
            for factor in (0.4, 0.6, 0.8, 1.25, 1.6, 2.5):
                covariance = fs.replace(
                    model.covariance, **{field: getattr(model.covariance, field) * factor}
                )
                absorbed, whitened, dual, _ = (
                    fs.elbo(fs.replace(one, covariance=covariance), X, Y) for one in held
                )
                found.append((absorbed >= whitened, dual >= whitened))
                if field == "variance":
                    assert fs.sites.bound(
                        fs.replace(each, covariance=covariance), X, Y
                    ) == pytest.approx(absorbed, abs=1e-3)
    assert np.mean(tighter["variance"], axis=0).tolist() == [1, 0]
    assert np.mean(tighter["lengthscales"], axis=0)[0] > 0.6


def test_pseudo_observations_are_absorbed_sites(rng):
    """``LikelihoodForm`` with targets m, noise s has lambda1 = m / s, lambda2 = diag(1 / s)."""
    model, _, _, X, Y = problem(rng, fs.posteriors.AbsorbedDualSites)
    m, s = rng.standard_normal(M), rng.uniform(0.2, 2, M)
    ours, theirs = (fs.replace(model, posterior=q) for q in (
        fs.posteriors.AbsorbedDualSites(m / s, np.diag(1 / s)), fs.posteriors.LikelihoodForm(m, s)
    ))  # fmt: skip
    value, grad = fs.elbo_and_grad(ours, X, Y, jitter=JITTER)
    other, truth = fs.elbo_and_grad(theirs, X, Y, jitter=JITTER)
    assert value == pytest.approx(other, rel=1e-10)
    np.testing.assert_allclose(grad.inducing, truth.inducing, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        grad.covariance.lengthscales, truth.covariance.lengthscales, rtol=1e-9
    )
    np.testing.assert_allclose(
        grad.posterior.lambda1 / s, truth.posterior.mean, rtol=1e-9, atol=1e-10
    )
    of_s = -(grad.posterior.lambda1 * m + grad.posterior.lambda2.diagonal()) / s**2
    np.testing.assert_allclose(of_s, truth.posterior.variance, rtol=1e-8, atol=1e-9)


@each_kind
def test_invalid_sites_are_refused_without_jitter_retries(rng, kind, caplog):
    for P in (None, 3):
        model, _, _, X, Y = problem(rng, kind, P=P)
        wrong = -1e6 * np.eye(M)
        if P is not None:
            lambda2 = np.nan_to_num(model.posterior.lambda2)
            lambda2[1] = wrong
            wrong = lambda2
        bad = fs.records.replace_at(model, "posterior.lambda2", wrong)
        message = (
            r"`posterior.lambda2` holds no valid sites: Kuu(\^-1)? \+ lambda2 is not positive"
            r" definite"
        )
        for call in (
            fs.elbo,
            fs.elbo_and_grad,
            fs.natural_step,
            lambda m, X, Y: fs.fit(m, X, Y, steps=3),
        ):
            with pytest.raises(
                ValueError, match=message + (r" \(output 1\)" if P else "")
            ) as caught:
                call(bad, X, Y)
            assert not isinstance(caught.value, fs.NotPositiveDefinite)
    assert "jitter" not in caplog.text
    holed = np.zeros((M, M))
    holed[3, 1] = np.nan
    for field, value, message in (
        ("lambda2", holed, "`posterior.lambda2` contains nan"),
        ("lambda1", np.full(M, np.inf), "`posterior.lambda1` contains inf"),
        ("lambda2", np.zeros((M, M + 1)), r"`posterior.lambda2` must have shape \(..., M, M\)"),
        (
            "lambda2",
            np.zeros((M + 1, M + 1)),
            r"`posterior` has lambda1 \(6,\) and lambda2 \(7, 7\)",
        ),
        ("lambda1", np.zeros(M - 1), r"`posterior` has lambda1 \(5,\)"),
    ):
        one = fs.replace(model, posterior=kind(np.zeros(M), np.zeros((M, M))))
        with pytest.raises(ValueError, match=message):
            fs.elbo(fs.records.replace_at(one, f"posterior.{field}", value), X, Y[:, 0])


@each_kind
def test_upper_triangle_of_lambda2_is_never_read(rng, kind):
    model, _, _, X, Y = problem(rng, kind)
    clean = np.tril(model.posterior.lambda2) + np.tril(model.posterior.lambda2, -1).T
    same = fs.records.replace_at(model, "posterior.lambda2", clean)
    (a, grad), (b, other) = (fs.elbo_and_grad(m, X, Y, jitter=JITTER) for m in (model, same))
    assert a == b
    np.testing.assert_array_equal(grad.posterior.lambda2, other.posterior.lambda2)
    vector, unravel = fs.ravel(model)
    np.testing.assert_array_equal(unravel(vector).posterior.lambda2, clean)
    assert (
        unravel.slices["posterior.lambda2"].stop - unravel.slices["posterior.lambda2"].start
        == M * (M + 1) // 2
    )
    value = lambda moved: fs.elbo(moved, X, Y, jitter=JITTER)  # noqa: E731
    fs.testing.assert_gradient(value, model, grad, rng=rng, rtol=1e-7, step=2e-5)


@each_kind
def test_training_moves_sites_by_natural_steps_only(rng, kind, tmp_path):
    model, _, _, X, Y = problem(rng, kind)
    zeros = fs.replace(model, posterior=kind(np.zeros(M), np.zeros((M, M))))
    sizes = []
    trained, info = fs.fit(
        zeros,
        X,
        Y,
        steps=40,
        batch_size=10,
        rng=0,
        callback=lambda step, value, info: sizes.append(info.natural_step_size),
    )
    assert set(sizes) == {0.1} and np.mean(info.values[-5:]) > np.mean(info.values[:5])
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(trained), fs.records.leaves(zeros), strict=True
    ):
        assert (np.asarray(a) != b).any(), path
    half, _ = fs.fit(zeros, X, Y, steps=20, batch_size=10, rng=0, checkpoint=tmp_path / "c.npz")
    again, _ = fs.fit(half, X, Y, steps=40, batch_size=10, resume=tmp_path / "c.npz")
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(again), fs.records.leaves(trained), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)
    held, _ = fs.fit(zeros, X, Y, steps=3, fixed="posterior", rng=0)
    np.testing.assert_array_equal(held.posterior.lambda2, 0)
    assert held.covariance.variance != zeros.covariance.variance
    ramped = []
    robust = fs.replace(zeros, likelihood=fs.StudentT(0.3, df=4.0))
    fs.fit(
        robust,
        X,
        Y,
        steps=3,
        rng=0,
        callback=lambda step, value, info: ramped.append(info.natural_step_size),
    )
    assert ramped[0] == pytest.approx(1e-3) and ramped == sorted(ramped)
    with pytest.raises(
        ValueError,
        match=(
            "'posterior.lambda1' is fixed, but `natural_step_size` asks for steps of the posterior"
        ),
    ):
        fs.fit(zeros, X, Y, steps=3, fixed="posterior.lambda1", natural_step_size=0.1)
