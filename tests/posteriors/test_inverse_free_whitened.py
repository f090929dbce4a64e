"""The inverse-free whitened bound: its definition, every gradient, the whitened bound at the exact root, and products alone."""

import definitions
import numpy as np
import pytest
from budgets import assert_within_budget, by_name
from derivatives import assert_gradient
from gp_problems import lower_factor
from oracles import gp
from oracles import inverse_free_whitened as oracle
from reverse_rule import assert_reverse_rule

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cpu import cholesky as cpu_cholesky
from fastsvgp.kernels.cpu import triangular as cpu_triangular

SHAPES = [(1, 1, None), (5, 3, None), (3, 40, None), (4, 7, 2), (3, 17, 3), (2, 3, 1), (5, 0, None), (65, 66, None), (66, 150, 2)]
JITTER = 1e-3
each_shape = pytest.mark.parametrize("M, N, P", SHAPES)


def problem(rng, M, N, P, off=0.03, full=False):
    """Blocks of a positive definite joint covariance, parameters, and a root whose D0 is about ``off`` an entry."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    Kff = K[M:, M:]
    batch = () if P is None else (P,)
    mean = rng.standard_normal((*batch, M))
    tril = lower_factor(rng, *batch, M, off=0.3 / np.sqrt(M))
    exact = np.linalg.cholesky(np.linalg.inv(K[:M, :M] + JITTER * np.eye(M)))
    root = exact @ (np.eye(M) + off / max(1, M / 10) * np.tril(rng.standard_normal((M, M))))
    blocks = fs.Blocks(K[:M, :M].copy(), K[:M, M:].copy(), Kff.diagonal().copy(), Kff.copy() if full else None)
    return blocks, mean, tril, root


def holey(tril):
    return tril + np.triu(np.full(tril.shape[-2:], np.nan), 1)


def posterior_of(mean, tril, root):
    return fs.InverseFreeWhitened(mean, holey(tril), holey(root))


def each_output(mean, tril):
    return zip(np.atleast_2d(mean), (tril @ tril.swapaxes(-1, -2)).reshape(-1, *tril.shape[-2:]), strict=True)


# --- values -----------------------------------------------------------------------------------------------------------


@each_shape
def test_marginals_and_kl_by_definition(rng, M, N, P):
    blocks, mean, tril, root = problem(rng, M, N, P, full=True)
    K = blocks.Kuu + JITTER * np.eye(M)
    T = oracle.implicit_step(K, root)
    posterior = posterior_of(mean, tril, root)
    f, kl, saved = posterior.forward(blocks, JITTER)
    work = posterior.start(blocks.Kuu, JITTER)
    joint_mean, joint_cov = posterior.joint(work, blocks.Kuf, blocks.Kff)
    A = np.linalg.solve(K, blocks.Kuf)
    total = exact = 0.0
    for p, (m, S) in enumerate(each_output(mean, tril)):
        at = () if P is None else p
        truth = oracle.marginals(K, T, m, S, blocks.Kuf, blocks.kff)
        np.testing.assert_allclose((f.mean[at], f.var[at]), truth, atol=1e-11)
        m_u, S_u = oracle.q_of_u(K, T, m, S)  # they are the marginals of this q(u)
        np.testing.assert_allclose(joint_mean[at], A.T @ m_u, atol=1e-11)
        np.testing.assert_allclose(joint_cov[at], blocks.Kff - blocks.Kuf.T @ A + A.T @ S_u @ A, atol=1e-11)
        np.testing.assert_array_equal(joint_cov[at], joint_cov[at].T)
        total += oracle.kl_bound(K, T, m, S)
        exact += gp.kl_gaussians(m_u, S_u, np.zeros(M), K)
    assert kl == pytest.approx(total, rel=1e-10)
    assert kl >= exact - 1e-10 and saved[0].clamped == 0


@pytest.mark.parametrize("off", [0.0, 0.01, 0.1, 0.2])
def test_it_is_a_lower_bound(rng, off):
    """R <= ELBO of its own q(u) <= evidence, at every root; equality at the exact one."""
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
        model = fs.SVGP(covariance, Z, fs.InverseFreeWhitened(mean, W, R), fs.Gaussian(noise))
        value = fs.elbo(model, X, y, jitter=JITTER)
        m_u, S_u = oracle.q_of_u(K, T, mean, W @ W.T)
        own = fs.SVGP(covariance, Z, fs.Marginal(m_u, np.linalg.cholesky((S_u + S_u.T) / 2)), fs.Gaussian(noise))
        own = fs.elbo(own, X, y, jitter=JITTER)
        assert value <= own + 1e-9 * abs(own) and value <= evidence
        assert off or value == pytest.approx(own, rel=1e-9)


# --- gradients --------------------------------------------------------------------------------------------------------


@each_shape
def test_reverse_rule_of_every_field(rng, M, N, P):
    blocks, mean, tril, root = problem(rng, M, N, P)
    assert_reverse_rule(rng, posterior_of(mean, tril, root), blocks, JITTER)


@pytest.mark.parametrize("P", [None, 2])
def test_parts_add_up_to_the_whole(rng, P):
    N = 20
    blocks, mean, tril, root = problem(rng, 6, N, P)
    posterior = posterior_of(mean, tril, root)
    f, kl, saved = posterior.forward(blocks, JITTER)
    f_bar = fs.Marginals(*rng.standard_normal((2, *f.mean.shape)))
    whole, whole_blocks = posterior.vjp(f_bar, -0.7, saved)
    work = posterior.start(blocks.Kuu, JITTER, N)
    assert posterior.kl(work) == kl
    Kuf_bars = []
    for cols in (slice(0, 3), slice(3, 3), slice(3, N)):
        part_f, part = posterior.project(work, blocks.Kuf[:, cols], blocks.kff[cols])
        np.testing.assert_allclose(part_f.var, f.var[..., cols], rtol=1e-12)
        Kuf_bars.append(posterior.pull(work, part, fs.tree_map(lambda x, c=cols: x[..., c], f_bar)))
    bar, Kuu_bar = posterior.finish(work, -0.7)
    np.testing.assert_allclose(np.hstack(Kuf_bars), whole_blocks.Kuf, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(Kuu_bar, whole_blocks.Kuu, rtol=1e-10, atol=1e-10)
    for name in ("mean", "scale_tril", "inverse_root"):
        np.testing.assert_allclose(getattr(bar, name), getattr(whole, name), rtol=1e-10, atol=1e-10, err_msg=name)


def test_only_what_is_needed_is_computed_and_equals_the_whole(rng):
    blocks, mean, tril, root = problem(rng, 6, 9, 2)
    posterior = posterior_of(mean, tril, root)

    def bars(*need):
        f, _, saved = posterior.forward(blocks, JITTER)
        f_bar = fs.Marginals(np.sin(f.mean), -np.cos(f.var))
        return posterior.vjp(f_bar, -1.0, saved, need) if need else posterior.vjp(f_bar, -1.0, saved)

    whole, whole_blocks = bars()
    fields = ("mean", "scale_tril", "inverse_root")
    for field in fields:
        only, nothing = bars(f"posterior.{field}")
        assert nothing is None
        for name in fields:
            got = getattr(only, name)
            assert (got is not None) == (name == field)
            if name == field:
                np.testing.assert_allclose(got, getattr(whole, name), rtol=1e-11, atol=1e-11)
    nothing, only = bars("blocks")
    assert all(getattr(nothing, name) is None for name in fields)
    for name in ("Kuu", "Kuf", "kff"):
        np.testing.assert_allclose(getattr(only, name), getattr(whole_blocks, name), rtol=1e-11, atol=1e-11)


# --- the whitened bound at the exact root -------------------------------------------------------------------------------


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("likelihood", ["gaussian", "logit"])
def test_value_and_gradients_of_the_whitened_bound_at_the_exact_root(rng, likelihood, P):
    """chol(K^-1) whitens as the Cholesky factor does when inducing inputs are numbered backwards: K = J L L' J."""
    M, N = 7, 12
    X, Z = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (M, 2))
    Y = rng.standard_normal((N,) if P is None else (N, P))
    Y, lik = (Y, fs.Gaussian(0.2)) if likelihood == "gaussian" else ((Y > 0).astype(int), fs.BernoulliLogit())
    covariance = fs.Matern52(1.3, np.array([0.9, 1.4]))
    batch = () if P is None else (P,)
    mean = rng.standard_normal((*batch, M))
    W = lower_factor(rng, *batch, M, off=0.2)
    S = W @ W.swapaxes(-1, -2)
    K = covariance.matrix(Z) + JITTER * np.eye(M)
    root = np.linalg.cholesky(np.linalg.inv(K))
    ours = fs.SVGP(covariance, Z, fs.InverseFreeWhitened(mean, W, root), lik, fs.ConstantMean(0.3))
    backwards = np.linalg.cholesky(S[..., ::-1, ::-1])
    theirs = fs.SVGP(covariance, Z[::-1].copy(), fs.Whitened(mean[..., ::-1].copy(), backwards), lik, fs.ConstantMean(0.3))
    arguments = {"num_data": 40, "jitter": JITTER}
    value, grad = fs.elbo_and_grad(ours, X, Y, **arguments)
    truth, truth_grad = fs.elbo_and_grad(theirs, X, Y, **arguments)
    assert value == pytest.approx(truth, rel=1e-11)
    assert value == pytest.approx(fs.elbo(ours, X, Y, **arguments), rel=1e-13)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * max(1, np.abs(b).max()))  # noqa: E731
    close(grad.inducing, truth_grad.inducing[::-1])
    close(grad.covariance.variance, truth_grad.covariance.variance)
    close(grad.covariance.lengthscales, truth_grad.covariance.lengthscales)
    close(grad.mean.value, truth_grad.mean.value)
    close(grad.posterior.mean, truth_grad.posterior.mean[..., ::-1])
    if likelihood == "gaussian":
        close(grad.likelihood.variance, truth_grad.likelihood.variance)
    np.testing.assert_allclose(grad.posterior.inverse_root, 0, atol=1e-9 * np.abs(grad.inducing).max() / np.abs(root).max())
    # the same S_bar behind both factors: W_bar = tril(2 S_bar W)
    for p in np.ndindex(batch):
        H = symmetric_behind(grad.posterior.scale_tril[p], W[p])
        back = symmetric_behind(truth_grad.posterior.scale_tril[p], backwards[p])
        close(H, back[::-1, ::-1])
    for of in (fs.predict_f, fs.predict_y):
        for a, b in zip(of(ours, X, jitter=JITTER), of(theirs, X, jitter=JITTER), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
    _, kl_grad = fs.kl_term_and_grad(ours, jitter=JITTER)
    close(kl_grad.posterior.mean, mean)


def symmetric_behind(W_bar, W):
    """The symmetric X with tril(2 X W) = W_bar."""
    P = W.T @ W_bar  # = tril-part rule: W' (2 X W) = symmetric with this lower triangle
    P = np.tril(P) + np.tril(P, -1).T
    inverse = np.linalg.inv(W)
    return inverse.T @ P @ inverse / 2


def test_errors_of_value_and_gradient_against_the_distance_of_the_root(rng):
    """The value is off by the square of the distance, gradients by the distance itself, as those of ``Relaxed``."""
    M = 8
    blocks, mean, tril, exact = problem(rng, M, 10, None, off=0.0)
    f_bar = fs.Marginals(*rng.standard_normal((2, 10)))
    directions = np.tril(rng.standard_normal((5, M, M)))  # in one alone the leading term may happen to be small

    def at(off, direction):
        posterior = posterior_of(mean, tril, exact @ (np.eye(M) + off * direction))
        f, kl, saved = posterior.forward(blocks, JITTER)
        value = np.vdot(f_bar.mean, f.mean) + np.vdot(f_bar.var, f.var) - kl
        return value, posterior.vjp(f_bar, -1.0, saved)[1].Kuu

    value, Kuu_bar = at(0.0, directions[0])
    off = []
    for size in (1e-3, 5e-4, 2.5e-4):
        values, bars = zip(*(at(size, direction) for direction in directions), strict=True)
        off.append((np.linalg.norm(np.array(values) - value), np.linalg.norm(np.array(bars) - Kuu_bar)))
    orders = np.log2(np.array(off[:-1]) / np.array(off[1:]))
    np.testing.assert_allclose(orders, [[2, 1], [2, 1]], atol=0.15)


def test_no_decomposition_and_no_solve(rng, monkeypatch):
    """Nothing that factorises, solves or inverts is called between the inputs and the gradients; products are."""
    model, X, Y = whole_model(rng)
    expected = fs.elbo_and_grad(model, X, Y, jitter=JITTER)[0]

    def refused(*_, **__):
        raise AssertionError("this path has no decompositions and no solves")

    count = 0
    for module in (kernels, cpu_cholesky, cpu_triangular, np.linalg):
        words = ("chol", "solve", "inv", "whiten") + (("eig", "svd", "qr", "lstsq") if module is np.linalg else ())
        for name, function in vars(module).copy().items():
            if callable(function) and any(word in name for word in words) and name != "cholesky_product":
                monkeypatch.setattr(module, name, refused)
                count += 1
    assert count > 20
    products = []
    for name in ("matmul", "multiply_triangular", "tril_product", "weighted_gram", "newton_schulz_gram"):
        real = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *a, real=real, name=name, **k: products.append(name) or real(*a, **k))
    assert fs.elbo_and_grad(model, X, Y, jitter=JITTER)[0] == expected
    assert len(set(products)) == 5
    fs.predict_f(model, X, jitter=JITTER)
    fs.predict_f(model, X, jitter=JITTER, full_cov=True)
    fs.kl_term_and_grad(model, jitter=JITTER)
    with pytest.raises(AssertionError, match="no decompositions"):
        fs.elbo(fs.replace(model, posterior=fs.Whitened(model.posterior.mean, model.posterior.scale_tril)), X, Y)


# --- through the public door --------------------------------------------------------------------------------------------


def whole_model(rng, M=6, N=11, dtype=np.float64, off=0.02):
    X, Z = rng.uniform(-2, 2, (N, 2)), rng.uniform(-2, 2, (M, 2))
    Y = np.sin(X.sum(1)) + 0.1 * rng.standard_normal(N)
    covariance = fs.RBF(1.2, np.array([0.9, 1.3]))
    root, _ = fs.inverse_factor(covariance.matrix(Z) + JITTER * np.eye(M), tolerance=1e-10)
    root = root @ (np.eye(M) + off * np.tril(rng.standard_normal((M, M))))
    W = lower_factor(rng, M, off=0.2)
    model = fs.SVGP(covariance, Z, fs.InverseFreeWhitened(rng.standard_normal(M), W, root), fs.Gaussian(0.2))
    cast = lambda a: a.astype(dtype) if isinstance(a, np.ndarray) else a  # noqa: E731
    return fs.tree_map(cast, model), cast(X), cast(Y)


@pytest.mark.parametrize("covariance", [fs.RBF(1.2, 0.9), fs.Matern32(0.8, 1.1) + fs.Linear(0.3) + fs.Constant(0.2)], ids=str)
def test_gradients_of_the_bound(rng, covariance):
    model, X, Y = whole_model(rng)
    root = np.linalg.cholesky(np.linalg.inv(covariance.matrix(model.inducing) + 0.01 * np.eye(6)))
    root = root @ (np.eye(6) + 0.03 * np.tril(rng.standard_normal((6, 6))))
    model = fs.replace_at(fs.replace(model, covariance=covariance), "posterior.inverse_root", root)
    arguments = {"num_data": 40, "jitter": 0.01}
    _, grad = fs.elbo_and_grad(model, X, Y, **arguments)
    assert_gradient(lambda m: definitions.elbo(m, X, Y, 40 / 11, 0.01), model, grad, rng)


def test_bound_from_blocks_restricted_gradients_and_records(rng, tmp_path):
    model, X, Y = whole_model(rng)
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    k, Z = model.covariance, model.inducing
    from_blocks, (_, bar, _) = fs.elbo_and_grad_from_blocks(
        fs.Blocks(k.matrix(Z), k.matrix(Z, X), k.diag(X)), model.posterior, model.likelihood, Y, jitter=JITTER
    )
    assert from_blocks == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(bar.inverse_root, grad.posterior.inverse_root, rtol=1e-9, atol=1e-9)
    _, part = fs.elbo_and_grad(model, X, Y, jitter=JITTER, wrt=("covariance", "posterior.mean"))
    assert part.posterior.inverse_root is None and part.posterior.scale_tril is None and part.inducing is None
    np.testing.assert_allclose(part.covariance.lengthscales, grad.covariance.lengthscales, rtol=1e-10)
    data, data_grad = fs.data_term_and_grad(model, X, Y, jitter=JITTER)
    kl, kl_grad = fs.kl_term_and_grad(model, jitter=JITTER)
    assert data - kl == pytest.approx(value, rel=1e-12)
    for (path, _, d), (_, _, c), (_, _, g) in zip(fs.leaves(data_grad), fs.leaves(kl_grad), fs.leaves(grad), strict=True):
        np.testing.assert_allclose(d - c, g, rtol=0, atol=1e-10 * max(1, np.abs(g).max()), err_msg=path)
    fs.save(tmp_path / "model.npz", model)
    assert fs.elbo(fs.load(tmp_path / "model.npz"), X, Y, jitter=JITTER) == fs.elbo(model, X, Y, jitter=JITTER)


@pytest.mark.parametrize("M, N", [(6, 4), (6, 60), (70, 90)])
def test_float32_is_as_accurate_as_numpy(rng, M, N):
    def plain(dtype, blocks, mean, tril, root, f_bar):
        b = fs.tree_map(lambda a: a.astype(dtype), blocks)
        m, W, R, fm, fv = (a.astype(dtype) for a in (mean, tril, root, f_bar.mean, f_bar.var))
        K = b.Kuu + dtype(JITTER) * np.eye(M, dtype=dtype)
        T = oracle.implicit_step(K, R).astype(dtype)
        return *oracle.marginals(K, T, m, W @ W.T, b.Kuf, b.kff), *oracle.cotangents(K, R, m, W, b.Kuf, fm, fv, dtype(-1))

    def draw():
        p = *problem(rng, M, N, None), fs.Marginals(*rng.standard_normal((2, N)))
        single, posterior, single_bar = (
            fs.tree_map(lambda a: a.astype(np.float32), tree) for tree in (p[0], posterior_of(*p[1:4]), p[-1])
        )
        f, kl, saved = posterior.forward(single, JITTER)
        bar, blocks_bar = posterior.vjp(single_bar, -1.0, saved)
        fast = (f.mean, f.var, bar.mean, bar.scale_tril, blocks_bar.Kuu, blocks_bar.Kuf)
        assert {a.dtype for a in (*fast, bar.inverse_root, blocks_bar.kff)} == {np.dtype(np.float32)}
        assert kl == pytest.approx(posterior_of(*p[1:4]).forward(p[0], JITTER)[1], rel=1e-5, abs=1e-5 * M)  # M terms that cancel
        names = ("mean", "var", "mean_bar", "scale_tril_bar", "Kuu_bar", "Kuf_bar")
        return by_name(names, fast, plain(np.float32, *p), plain(np.float64, *p))

    assert_within_budget(draw, problems=9)


def test_the_bound_of_a_float32_model(rng):
    model, X, Y = whole_model(rng, dtype=np.float32)
    double = fs.tree_map(lambda a: np.float64(a), model)
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    truth, _ = fs.elbo_and_grad(double, X.astype(float), Y.astype(float), jitter=JITTER)
    assert value == pytest.approx(truth, rel=1e-4)
    assert {a.dtype for _, _, a in fs.leaves(grad)} == {np.dtype(np.float32)}


def test_variances_below_rounding_are_raised_and_counted():
    M = 4
    blocks = fs.Blocks(np.eye(M), np.eye(M)[:, :3].copy(), np.array([1.0, 1.0, 2.0]))  # the first two are inducing inputs
    f, _, saved = fs.InverseFreeWhitened(np.zeros(M), 1e-12 * np.eye(M), np.eye(M)).forward(blocks, 0.0)
    assert saved[0].clamped == 2
    np.testing.assert_array_equal(f.var, [np.finfo(float).eps, np.finfo(float).eps, 1.0])


# --- bad input ----------------------------------------------------------------------------------------------------------


def test_bad_input(rng):
    model, X, Y = whole_model(rng)
    for field, bad, message in [
        ("inverse_root", np.eye(5), r"`posterior` has inverse_root \(5, 5\), but there are 6 inducing inputs"),
        ("inverse_root", np.eye(6)[None], r"`posterior` has inverse_root \(1, 6, 6\)"),
        ("inverse_root", -np.eye(6), "diagonal of posterior.inverse_root` must be positive"),
        ("inverse_root", np.diag([1, 1, 0, 1, 1, 1.0]), "diagonal of posterior.inverse_root` must be positive"),
        ("inverse_root", np.diag([1, 1, np.nan, 1, 1, 1.0]), "diagonal of posterior.inverse_root` contains nan"),
        ("inverse_root", 10 * np.eye(6), "`posterior.inverse_root` is too far.*less than 1; take inverse_factor"),
        ("inverse_root", 0.01 * np.eye(6), "`posterior.inverse_root` is too far"),
        ("mean", np.zeros(5), "`posterior` has mean"),
        ("scale_tril", -np.eye(6), "diagonal of posterior.scale_tril` must be positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            fs.elbo_and_grad(fs.replace_at(model, f"posterior.{field}", bad), X, Y)
    below = model.posterior.inverse_root.copy()
    below[3, 1] = np.nan
    with pytest.raises(ValueError, match="`posterior.inverse_root` contains nan"):
        fs.elbo(fs.replace_at(model, "posterior.inverse_root", below), X, Y)
    with pytest.raises(TypeError, match="natural_step: a step of an InverseFreeWhitened would factorise"):
        fs.natural_step(model, X, Y)
    far = fs.replace_at(model, "posterior.inverse_root", 0.01 * np.eye(6))
    assert (fs.predict_f(far, X)[1] >= fs.predict_f(model, X)[1] - 1).all()  # predictions need no divergence


def test_float32_gradient_of_the_inducing_inputs_is_as_the_record_says(rng):
    """2 % in the median at cond(Kuu) of about 5e4, where Whitened, and the lengthscales of both, are off by 1e-4."""
    M, N, jitter, errors = 60, 400, 3e-4, []
    for _ in range(5):
        X = rng.uniform(-2, 2, (N, 2)).astype("f")
        Z, Y = X[:M] + np.float32(0.01) * rng.standard_normal((M, 2)).astype("f"), np.sin(2 * X[:, 0])
        K = fs.RBF().matrix(Z.astype(float)) + jitter * np.eye(M)
        assert 2e4 < np.linalg.cond(K) < 1e5
        root, _ = fs.inverse_factor(K.astype("f"), np.linalg.cholesky(np.linalg.inv(K)).astype("f"))
        mean = 0.3 * rng.standard_normal(M)
        tril = np.tril(0.05 * rng.standard_normal((M, M)), -1) + np.diag(rng.uniform(0.2, 0.8, M))

        def error(kind, *factor, X=X, Y=Y, Z=Z, mean=mean, tril=tril):
            grads = []
            for dtype in (np.float32, np.float64):
                q = kind(*(a.astype("f").astype(dtype) for a in (mean, tril, *factor)))
                model = fs.SVGP(fs.RBF(), Z.astype(dtype), q, fs.Gaussian(0.1))
                grads.append(fs.elbo_and_grad(model, X.astype(dtype), Y.astype(dtype), jitter=jitter)[1])
            pairs = [(g.inducing, g.covariance.lengthscales) for g in grads]
            return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(*pairs, strict=True)]

        errors.append(error(fs.InverseFreeWhitened, root) + error(fs.Whitened))
    ours, lengthscale, whitened, other = np.median(errors, axis=0)
    assert ours < 0.06 and max(whitened, lengthscale, other) < 1e-3
