"""SiteSVGP: the bound at the q(u) of its sites, its gradient, and steps of some sites."""

import numpy as np
import pytest
from oracles.linear_algebra import solve
from support import definitions
from support.derivatives import assert_gradient, assert_restricted

import fastsvgp as fs
from fastsvgp.optim.natural.sites import SiteSteps
from fastsvgp.sites import site_pass

JITTER = 1e-3
SHAPES = [(1, 1, None), (5, 30, None), (6, 4, None), (4, 20, 3), (3, 9, 1), (30, 50, None)]


def problem(rng, M=5, N=30, P=None, likelihood=None, mean=None):
    batch = () if P is None else (P,)
    X, Y = rng.uniform(-2, 2, (N, 2)), rng.standard_normal((N, *batch))
    sites = fs.sites.Sites(rng.standard_normal((*batch, N)), rng.uniform(0.1, 2.0, (*batch, N)))
    covariance = fs.Matern52(1.1, np.array([0.9, 1.3])) + fs.Linear(0.2)
    return (
        fs.sites.SiteSVGP(
            covariance,
            rng.uniform(-2, 2, (M, 2)),
            sites,
            likelihood or fs.StudentT(0.4, df=4.0),
            mean,
        ),
        X,
        Y,
    )


def as_tied(model, X):
    """The SVGP by plain formulas: absorbed sites are sums over the data with k = Kuu^-1 k_un."""
    b = definitions.blocks(model.covariance, model.inducing, X, JITTER)
    weights = solve(b.Kuu, b.Kuf)
    first, second = model.sites.lambda1, model.sites.lambda2
    lambda2 = np.einsum("mn,...n,kn->...mk", weights, second, weights)
    q = fs.posteriors.AbsorbedDualSites(np.einsum("mn,...n->...m", weights, first), lambda2)
    return fs.SVGP(model.covariance, model.inducing, q, model.likelihood, model.mean)


@pytest.mark.parametrize("run", [7, 2**22])
@pytest.mark.parametrize("M, N, P", SHAPES)
def test_the_bound_and_its_gradient_by_definition(rng, tune, M, N, P, run):
    tune(site_run_numbers=run * M)
    model, X, Y = problem(rng, M, N, P, mean=None if P else fs.means.LinearMean(np.ones(2), 0.3))
    value, grad = fs.sites.bound_and_grad(model, X, Y, jitter=JITTER)
    assert fs.sites.bound(model, X, Y, jitter=JITTER) == pytest.approx(value, rel=1e-12, abs=1e-12)

    def definition(m):
        return definitions.elbo(as_tied(m, X), X, Y, 1.0, JITTER)

    assert value == pytest.approx(float(definition(model).real), rel=1e-9, abs=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-8)


def log_Z_by_definition(Q, first, second):
    """Log integral of N(g | 0, Q) times the sites, normalised if lambda_2 > 0.

    Completing the square, int N(g | 0, Q) exp(lambda_1' g - g' Lambda g / 2) = |I + Q Lambda|^-1/2
    exp(lambda_1' S lambda_1 / 2).
    """
    inner = np.eye(len(Q)) + Q * second
    exponent = first @ np.linalg.solve(inner, Q @ first) - np.linalg.slogdet(inner)[1]
    own = second > 0
    return 0.5 * (
        exponent + np.sum(np.log(second[own] / (2 * np.pi)) - first[own] ** 2 / second[own])
    )


@pytest.mark.parametrize("signs", ["positive", "some negative", "some zero", "all negative"])
@pytest.mark.parametrize(
    "P, mean",
    [(None, None), (3, None), (None, fs.means.ConstantMean(0.4))],
    ids=["one", "three", "mean"],
)
@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
def test_each_of_the_two_terms_by_definition(rng, kind, P, mean, signs):
    """For sites of any sign: their exact evidence, and the remainder of the bound."""
    model, X, Y = problem(rng, 5, 20, P, mean=mean)
    first, second = model.sites.lambda1, model.sites.lambda2.copy()
    if signs != "positive":
        at = slice(None) if signs == "all negative" else np.s_[..., ::3]
        second[at] *= 0.0 if signs == "some zero" else -0.1 / 20  # no eigenvalue is above 2.7 N
    model = fs.replace(model, sites=fs.sites.Sites(first, second))
    Q = model.covariance.Kff(X)
    if kind is fs.sites.SiteSVGP:
        blocks = model.covariance.blocks(model.inducing, X)
        Q = blocks.Kuf.T @ np.linalg.solve(blocks.Kuu + JITTER * np.eye(5), blocks.Kuf)
    else:
        model = fs.sites.VGP(model.covariance, model.sites, model.likelihood, model.mean)
    truth = sum(
        log_Z_by_definition(Q, *one)
        for one in zip(first.reshape(-1, 20), second.reshape(-1, 20), strict=True)
    )
    log_Z, c = fs.sites.bound_terms(model, X, Y, jitter=JITTER)
    assert log_Z == pytest.approx(truth, rel=1e-9, abs=1e-9)
    assert c == pytest.approx(
        fs.sites.bound(model, X, Y, jitter=JITTER) - truth, rel=1e-9, abs=1e-8
    )


@pytest.mark.parametrize(
    "to",
    [fs.posteriors.AbsorbedDualSites, fs.posteriors.DualSites, fs.Whitened, fs.Marginal],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("P", [None, 2])
def test_tied_has_the_same_q(rng, to, P):
    model, X, Y = problem(rng, P=P)
    svgp = fs.sites.tie_sites(model, X, to=to, jitter=JITTER)
    assert type(svgp.posterior) is to
    assert fs.elbo(svgp, X, Y, jitter=JITTER) == pytest.approx(
        fs.sites.bound(model, X, Y, jitter=JITTER), rel=1e-9
    )


def test_with_gaussian_noise_the_bound_is_the_collapsed_bound(rng):
    """After one unit step from any start, in value and gradient, for any hyperparameters."""
    model, X, Y = problem(rng, likelihood=fs.Gaussian(0.3), mean=fs.means.ConstantMean(0.4))
    best, info = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    assert info.value == pytest.approx(fs.sites.bound(model, X, Y, jitter=JITTER), rel=1e-10)
    np.testing.assert_allclose(best.sites.lambda1, (Y - 0.4) / 0.3, rtol=1e-10, atol=1e-10)
    for variance in (1.1, 0.3, 4.0):
        moved = fs.records.replace_at(best, "covariance.parts.0.variance", variance)
        sgpr = fs.SGPR(moved.covariance, moved.inducing, 0.3, moved.mean)
        value, grad = fs.sites.bound_and_grad(moved, X, Y, jitter=JITTER)
        collapsed, truth = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=JITTER)
        assert value == pytest.approx(collapsed, rel=1e-10)
        np.testing.assert_allclose(grad.inducing, truth.inducing, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            grad.covariance.parts[0].lengthscales, truth.covariance.parts[0].lengthscales, rtol=1e-8
        )


@pytest.mark.parametrize("P", [None, 2])
def test_a_step_of_all_sites_is_that_of_tied_ones(rng, P):
    model, X, Y = problem(rng, P=P, mean=None if P else fs.means.ConstantMean(0.4))
    stepped, info = fs.natural_step(model, X, Y, step_size=0.3, jitter=JITTER)
    other, theirs = fs.natural_step(
        fs.sites.tie_sites(model, X, jitter=JITTER), X, Y, step_size=0.3, jitter=JITTER
    )
    assert info.value == pytest.approx(theirs.value, rel=1e-10) and info[1:] == theirs[1:]
    ours = fs.sites.tie_sites(stepped, X, jitter=JITTER).posterior
    np.testing.assert_allclose(ours.lambda1, other.posterior.lambda1, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.lambda2, other.posterior.lambda2, rtol=1e-8, atol=1e-9)


def test_steps_of_some_rows_reach_the_same_end(rng):
    """Other sites do not change: minibatches without noise."""
    model, X, Y = problem(rng, likelihood=fs.likelihoods.BernoulliLogit())
    Y = (Y > 0) * 1.0
    rows = np.array([3, 1, 7])
    some, _ = fs.natural_step(model, X, Y, rows=rows, step_size=0.5, jitter=JITTER)
    others = np.setdiff1d(np.arange(30), rows)
    np.testing.assert_array_equal(some.sites.lambda1[others], model.sites.lambda1[others])
    assert (some.sites.lambda2[rows] != model.sites.lambda2[rows]).all()
    whole = batched = fs.replace(model, sites=fs.sites.Sites(np.zeros(30), np.zeros(30)))
    for step in range(60):
        whole, info = fs.natural_step(whole, X, Y, step_size=0.5, jitter=JITTER, monotone=True)
        batched, _ = fs.natural_step(
            batched, X, Y, rows=np.arange(step % 6, 30, 6), step_size=0.9, jitter=JITTER
        )
    assert fs.sites.bound(batched, X, Y, jitter=JITTER) == pytest.approx(
        fs.sites.bound(whole, X, Y, jitter=JITTER), abs=1e-4
    )


@pytest.mark.parametrize("P", [None, 2])
def test_rounding_of_strong_sites_is_removed_each_epoch(rng, monkeypatch, P):
    """A and t are updated by differences and recomputed once per epoch of updated rows."""
    made = []
    monkeypatch.setattr(
        site_pass,
        "layer_of_sites",
        lambda *given, of=site_pass.layer_of_sites: made.append(1) or of(*given),
    )
    model, X, Y = problem(rng, P=P, likelihood=fs.likelihoods.BernoulliLogit())
    strong = fs.sites.Sites(1e12 * model.sites.lambda1, np.full_like(model.sites.lambda2, 1e12))
    kept, Y, off = (
        SiteSteps("natural_step", fs.replace(model, sites=strong), X, (Y > 0) * 1.0, JITTER, None),
        (Y > 0) * 1.0,
        [],
    )
    for step in range(12):  # of 6 rows of 30
        before, rows, count = kept.model, np.arange(step % 5, 30, 5), len(made)
        value = kept.step(rows, 1.0, False).value
        assert len(made) - count == (step in (5, 11))  # with it more than 30 rows moved
        _, info = fs.natural_step(before, X, Y, rows=rows, step_size=1.0, jitter=JITTER)
        off.append(abs(value / info.value - 1))
    assert off[5] > 1e-8  # what differences of strong sites left, which is what this is about
    assert max(off[6:]) < 1e-11


def test_steps_that_would_leave_the_cone_are_halved(rng):
    model, X, Y = problem(rng, likelihood=fs.StudentT(0.02, df=2.0))
    zeros = fs.replace(model, sites=fs.sites.Sites(np.zeros(30), np.zeros(30)))
    stepped, info = fs.natural_step(zeros, X, 3 * Y, step_size=1.0, monotone=True)
    assert info.negative > 0 and fs.sites.bound(stepped, X, 3 * Y) >= info.value
    with pytest.raises(ValueError, match="`sites.lambda2` holds no valid sites: with them"):
        fs.sites.bound(
            fs.replace(model, sites=fs.sites.Sites(np.zeros(30), np.full(30, -1e3))), X, Y
        )


def test_wrt_files_flat_vectors_and_float32(rng, tmp_path):
    model, X, Y = problem(rng)
    _, whole = fs.sites.bound_and_grad(model, X, Y)
    for wrt in (
        ("covariance",),
        ("inducing", "likelihood.scale"),
        ("sites.lambda2",),
        ("likelihood",),
    ):
        _, grad = fs.sites.bound_and_grad(model, X, Y, wrt=wrt)
        assert_restricted(grad, whole, wrt, rtol=1e-9, atol=1e-11)
    fs.save(tmp_path / "m.npz", model)
    assert fs.sites.bound(fs.load(tmp_path / "m.npz"), X, Y) == fs.sites.bound(model, X, Y)
    vector, unravel = fs.ravel(model, fixed="sites")
    assert fs.sites.bound(unravel(vector), X, Y) == pytest.approx(
        fs.sites.bound(model, X, Y), rel=1e-12
    )
    narrow = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    value, grad = fs.sites.bound_and_grad(narrow, X.astype(np.float32), Y.astype(np.float32))
    assert {bar.dtype for _, _, bar in fs.records.leaves(grad)} == {np.dtype(np.float32)}
    assert value == pytest.approx(fs.sites.bound(model, X, Y, jitter=1e-4), rel=1e-3)


def test_bad_input(rng):
    model, X, Y = problem(rng)
    for change, error, message in (
        (
            fs.sites.Sites(np.zeros(29), np.zeros(29)),
            ValueError,
            r"`sites` has lambda1 \(29,\) and .*, and `X` has 30 rows",
        ),
        (
            fs.sites.Sites(np.zeros(30), np.zeros((2, 30))),
            ValueError,
            r"`sites` has lambda1 \(30,\) and lambda2 \(2, 30\)",
        ),
        (
            fs.sites.Sites(np.full(30, np.nan), np.zeros(30)),
            ValueError,
            "`sites.lambda1` contains nan",
        ),
        (
            np.zeros(30),
            TypeError,
            r"`sites` of the model must be a fastsvgp.sites.Sites\(lambda1, lambda2\), got ndarray",
        ),
    ):
        for call in (fs.sites.bound, fs.sites.bound_and_grad, fs.natural_step):
            with pytest.raises(error, match=message):
                call(fs.replace(model, sites=change), X, Y)
    for call, error, message in (
        (
            lambda: fs.elbo(model, X, Y),
            TypeError,
            "must be a fastsvgp.DeepGP, (MultiGP, )?SVGP.* em trains it.*tie_sites",
        ),
        (
            lambda: fs.predict_f(model, X),
            TypeError,
            "predict_f: `model` must be .*, got SiteSVGP: .*tie_sites",
        ),
        (
            lambda: fs.fit(model, X, Y, steps=1),
            TypeError,
            "fit: `model` must be .*, got SiteSVGP: em trains it",
        ),
        (
            lambda: fs.sites.tie_sites(model, X, to=fs.posteriors.Relaxed),
            TypeError,
            "tie_sites: `to` must be Whitened, .*, got Relaxed",
        ),
        (
            lambda: fs.natural_step(model, X, Y, rows=[1, 1]),
            ValueError,
            "`rows` has row 1 more than once",
        ),
        (
            lambda: fs.natural_step(model, X, Y, rows=[30]),
            ValueError,
            "`rows` must hold row numbers, 0 to 29, in an array",
        ),
        (
            lambda: fs.natural_step(model, X, Y, step_size=0.0),
            ValueError,
            "`step_size` must be positive",
        ),
        (
            lambda: fs.natural_step(model, X, Y, rows=[1], monotone=True),
            ValueError,
            "leave `rows` out",
        ),
        (
            lambda: fs.natural_step(fs.sites.tie_sites(model, X), X, Y, rows=[1]),
            TypeError,
            "natural_step: `rows` is an option of VIF, not of SVGP",
        ),
        (
            lambda: fs.sites.bound(fs.sites.tie_sites(model, X), X, Y),
            TypeError,
            "bound: `model` must be .*SiteSVGP or sites.VGP, got SVGP",
        ),
        (
            lambda: fs.sites.bound(model, X, Y[:-1]),
            ValueError,
            "`Y` must have one row for each of the 30 rows of `X`",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
