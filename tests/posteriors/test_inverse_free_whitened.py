"""The inverse-free whitened bound: exact at the exact root, from matrix products only."""

import numpy as np
import pytest
from oracles import gp, inverse_free_whitened as oracle
from support.gp_problems import lower_factor
from support.posterior_problems import JITTER, joint_blocks, problem, through
from support.reverse_rule import symmetric_behind

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cpu import factorisations as cpu_factorisations, triangular as cpu_triangular

# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [0.0, 0.01, 0.1, 0.2])
def test_bound_is_below_the_evidence(rng, off):
    """Bound <= ELBO of its q(u) <= evidence at every root, with equality at the exact root."""
    X, Z = rng.uniform(-2, 2, (30, 1)), np.linspace(-2, 2, 6)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.standard_normal(30)
    k, noise = gp.rbf(1.3, 0.9), 0.1
    K = k(Z, Z) + JITTER * np.eye(6)
    mean, W = rng.standard_normal(6), lower_factor(rng, 6, off=0.2)
    exact = np.linalg.cholesky(np.linalg.inv(K))
    evidence = gp.exact_log_marginal(k, X, y, noise)
    for _ in range(20):
        R = exact @ (np.eye(6) + off * np.tril(rng.standard_normal((6, 6))))
        R *= np.sign(np.diag(R))
        T = oracle.implicit_step(K, R)
        if np.linalg.norm(T.T @ K @ T - np.eye(6)) >= 1:
            continue
        covariance = fs.RBF(1.3, 0.9)
        model = fs.SVGP(
            covariance, Z, fs.posteriors.InverseFreeWhitened(mean, W, R), fs.Gaussian(noise)
        )
        value = fs.elbo(model, X, y, jitter=JITTER)
        m_u, S_u = oracle.q_of_u(K, T, mean, W @ W.T)
        own = fs.SVGP(
            covariance,
            Z,
            fs.Marginal(m_u, np.linalg.cholesky((S_u + S_u.T) / 2)),
            fs.Gaussian(noise),
        )
        own = fs.elbo(own, X, y, jitter=JITTER)
        assert value <= own + 1e-9 * abs(own) and value <= evidence
        assert off or value == pytest.approx(own, rel=1e-9)


def test_joint_covariances_are_symmetric_to_the_bit(rng):
    q, blocks, _ = problem(rng, "inverse-free", 17, 23, 2)
    cov = q.start(blocks.Kuu, JITTER).joint(blocks.Kuf, blocks.Kff).cov
    np.testing.assert_array_equal(cov, cov.swapaxes(-1, -2))


# --- the whitened bound at the exact root -------------------------------------------------------


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("likelihood", ["gaussian", "logit"])
def test_exact_root_gives_the_whitened_bound(rng, likelihood, P):
    """chol(K^-1) whitens like the Cholesky factor of reversed inducing inputs: K = J L L' J."""
    M, N = 7, 12
    X, Z = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (M, 2))
    Y = rng.standard_normal((N,) if P is None else (N, P))
    Y, lik = (
        (Y, fs.Gaussian(0.2))
        if likelihood == "gaussian"
        else ((Y > 0).astype(int), fs.likelihoods.BernoulliLogit())
    )
    covariance = fs.Matern52(1.3, np.array([0.9, 1.4]))
    batch = () if P is None else (P,)
    mean = rng.standard_normal((*batch, M))
    W = lower_factor(rng, *batch, M, off=0.2)
    S = W @ W.swapaxes(-1, -2)
    K = covariance.matrix(Z) + JITTER * np.eye(M)
    root = np.linalg.cholesky(np.linalg.inv(K))
    ours = fs.SVGP(
        covariance,
        Z,
        fs.posteriors.InverseFreeWhitened(mean, W, root),
        lik,
        fs.means.ConstantMean(0.3),
    )
    backwards = np.linalg.cholesky(S[..., ::-1, ::-1])
    theirs = fs.SVGP(
        covariance,
        Z[::-1].copy(),
        fs.Whitened(mean[..., ::-1].copy(), backwards),
        lik,
        fs.means.ConstantMean(0.3),
    )
    arguments = {"num_data": 40, "jitter": JITTER}
    value, grad = fs.elbo_and_grad(ours, X, Y, **arguments)
    truth, truth_grad = fs.elbo_and_grad(theirs, X, Y, **arguments)
    assert value == pytest.approx(truth, rel=1e-11)
    assert value == pytest.approx(fs.elbo(ours, X, Y, **arguments), rel=1e-13)
    close = lambda a, b: np.testing.assert_allclose(  # noqa: E731
        a, b, rtol=0, atol=1e-10 * max(1, np.abs(b).max())
    )
    close(grad.inducing, truth_grad.inducing[::-1])
    close(grad.covariance.variance, truth_grad.covariance.variance)
    close(grad.covariance.lengthscales, truth_grad.covariance.lengthscales)
    close(grad.mean.value, truth_grad.mean.value)
    close(grad.posterior.mean, truth_grad.posterior.mean[..., ::-1])
    if likelihood == "gaussian":
        close(grad.likelihood.variance, truth_grad.likelihood.variance)
    np.testing.assert_allclose(
        grad.posterior.inverse_root, 0, atol=1e-9 * np.abs(grad.inducing).max() / np.abs(root).max()
    )
    # the same S_bar behind both factors: W_bar = tril(2 S_bar W)
    for p in np.ndindex(batch):
        H = symmetric_behind(grad.posterior.scale_tril[p], W[p])
        back = symmetric_behind(truth_grad.posterior.scale_tril[p], backwards[p])
        close(H, back[::-1, ::-1])
    for of in (fs.predict_f, fs.predict_y):
        for a, b in zip(of(ours, X, jitter=JITTER), of(theirs, X, jitter=JITTER), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
    _, kl_grad = fs.bounds.kl_term_and_grad(ours, jitter=JITTER)
    close(kl_grad.posterior.mean, mean)


def test_errors_grow_with_the_distance_of_the_root(rng):
    """The error of the value is quadratic in the distance; gradient errors are linear."""
    M = 8
    blocks, mean, tril = (
        joint_blocks(rng, M, 10),
        rng.standard_normal(M),
        lower_factor(rng, M, off=0.1),
    )
    exact = np.linalg.cholesky(np.linalg.inv(blocks.Kuu + JITTER * np.eye(M)))
    f_bar = fs.records.Marginals(*rng.standard_normal((2, 10)))
    # in one alone the leading term may happen to be small
    directions = np.tril(rng.standard_normal((5, M, M)))

    def at(off, direction):
        q = fs.posteriors.InverseFreeWhitened(mean, tril, exact @ (np.eye(M) + off * direction))
        back = through(q, blocks, f_bar, -1.0)
        return np.vdot(f_bar.mean, back.f.mean) + np.vdot(f_bar.var, back.f.var) - back.kl, back.Kuu

    value, Kuu_bar = at(0.0, directions[0])
    off = []
    for size in (1e-3, 5e-4, 2.5e-4):
        values, bars = zip(*(at(size, direction) for direction in directions), strict=True)
        off.append(
            (np.linalg.norm(np.array(values) - value), np.linalg.norm(np.array(bars) - Kuu_bar))
        )
    orders = np.log2(np.array(off[:-1]) / np.array(off[1:]))
    np.testing.assert_allclose(orders, [[2, 1], [2, 1]], atol=0.15)


def test_no_decomposition_and_no_solve(rng, monkeypatch):
    """No function that factorises, solves or inverts is called; products are."""
    model, X, Y = whole_model(rng)
    expected = fs.elbo_and_grad(model, X, Y, jitter=JITTER)[0]

    def refused(*_, **__):
        raise AssertionError("this path has no decompositions and no solves")

    count = 0
    for module in (kernels, cpu_factorisations, cpu_triangular, np.linalg):
        words = ("chol", "solve", "inv", "whiten") + (
            ("eig", "svd", "qr", "lstsq") if module is np.linalg else ()
        )
        for name, function in vars(module).copy().items():
            if (
                callable(function)
                and any(word in name for word in words)
                and name != "cholesky_product"
            ):
                monkeypatch.setattr(module, name, refused)
                count += 1
    assert count > 20
    products = []
    for name in (
        "matmul",
        "multiply_triangular",
        "tril_product",
        "weighted_gram",
        "newton_schulz_gram",
    ):
        real = getattr(kernels, name)
        monkeypatch.setattr(
            kernels,
            name,
            lambda *a, real=real, name=name, **k: products.append(name) or real(*a, **k),
        )
    assert fs.elbo_and_grad(model, X, Y, jitter=JITTER)[0] == expected
    assert len(set(products)) == 5
    fs.predict_f(model, X, jitter=JITTER)
    fs.predict_f(model, X, jitter=JITTER, full_cov=True)
    fs.bounds.kl_term_and_grad(model, jitter=JITTER)
    with pytest.raises(AssertionError, match="no decompositions"):
        fs.elbo(
            fs.replace(
                model, posterior=fs.Whitened(model.posterior.mean, model.posterior.scale_tril)
            ),
            X,
            Y,
        )


# --- through the public door --------------------------------------------------------------------


def whole_model(rng, M=6, N=11, off=0.02):
    X, Z = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (M, 2))
    Y = np.sin(X.sum(1)) + 0.1 * rng.standard_normal(N)
    covariance = fs.RBF(1.2, np.array([0.9, 1.3]))
    root, _ = fs.optim.inverse_factor(covariance.matrix(Z) + JITTER * np.eye(M), tolerance=1e-10)
    root = root @ (np.eye(M) + off * np.tril(rng.standard_normal((M, M))))
    W = lower_factor(rng, M, off=0.2)
    return (
        fs.SVGP(
            covariance,
            Z,
            fs.posteriors.InverseFreeWhitened(rng.standard_normal(M), W, root),
            fs.Gaussian(0.2),
        ),
        X,
        Y,
    )


# --- bad input ----------------------------------------------------------------------------------


def test_bad_input(rng):
    model, X, Y = whole_model(rng)
    for field, bad, message in [
        (
            "inverse_root",
            np.eye(5),
            r"`posterior` has inverse_root \(5, 5\), but there are 6 inducing inputs",
        ),
        ("inverse_root", np.eye(6)[None], r"`posterior` has inverse_root \(1, 6, 6\)"),
        ("inverse_root", -np.eye(6), "diagonal of posterior.inverse_root` must be positive"),
        (
            "inverse_root",
            np.diag([1, 1, 0, 1, 1, 1.0]),
            "diagonal of posterior.inverse_root` must be positive",
        ),
        (
            "inverse_root",
            np.diag([1, 1, np.nan, 1, 1, 1.0]),
            "diagonal of posterior.inverse_root` contains nan",
        ),
        (
            "inverse_root",
            10 * np.eye(6),
            "`posterior.inverse_root` is too far.*less than 1; use inverse_factor",
        ),
        ("inverse_root", 0.01 * np.eye(6), "`posterior.inverse_root` is too far"),
        ("mean", np.zeros(5), "`posterior` has mean"),
        ("scale_tril", -np.eye(6), "diagonal of posterior.scale_tril` must be positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            fs.elbo_and_grad(fs.records.replace_at(model, f"posterior.{field}", bad), X, Y)
    below = model.posterior.inverse_root.copy()
    below[3, 1] = np.nan
    with pytest.raises(ValueError, match="`posterior.inverse_root` contains nan"):
        fs.elbo(fs.records.replace_at(model, "posterior.inverse_root", below), X, Y)
    far = fs.records.replace_at(model, "posterior.inverse_root", 0.01 * np.eye(6))
    # predictions need no divergence
    assert (fs.predict_f(far, X)[1] >= fs.predict_f(model, X)[1] - 1).all()


def test_float32_gradient_of_inducing_inputs_is_as_documented(rng):
    """The median error is 2 % at cond(Kuu) = 5e4; Whitened, and lengthscales of both, have 1e-4."""
    M, N, jitter, errors = 60, 400, 3e-4, []
    for _ in range(25):  # one in ten is off by ten times the median: a gradient near zero
        X = rng.uniform(-2, 2, (N, 2)).astype("f")
        Z, Y = (
            X[:M] + np.float32(0.01) * rng.standard_normal((M, 2)).astype("f"),
            np.sin(2 * X[:, 0]),
        )
        K = fs.RBF().matrix(Z.astype(float)) + jitter * np.eye(M)
        assert 2e4 < np.linalg.cond(K) < 1e5
        root, _ = fs.optim.inverse_factor(
            K.astype("f"), np.linalg.cholesky(np.linalg.inv(K)).astype("f")
        )
        mean = 0.3 * rng.standard_normal(M)
        tril = np.tril(0.05 * rng.standard_normal((M, M)), -1) + np.diag(rng.uniform(0.2, 0.8, M))

        def error(kind, *factor, X=X, Y=Y, Z=Z, mean=mean, tril=tril):
            grads = []
            for dtype in (np.float32, np.float64):
                q = kind(*(a.astype("f").astype(dtype) for a in (mean, tril, *factor)))
                model = fs.SVGP(fs.RBF(), Z.astype(dtype), q, fs.Gaussian(0.1))
                grads.append(
                    fs.elbo_and_grad(model, X.astype(dtype), Y.astype(dtype), jitter=jitter)[1]
                )
            pairs = [(g.inducing, g.covariance.lengthscales) for g in grads]
            return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(*pairs, strict=True)]

        errors.append(error(fs.posteriors.InverseFreeWhitened, root) + error(fs.Whitened))
    ours, lengthscale, whitened, other = np.median(errors, axis=0)
    assert ours < 0.06 and max(whitened, lengthscale, other) < 1e-3
