"""The contract of every posterior: marginals and KL by their definitions, exact reverse rules, predictions, natural steps."""

import numpy as np
import pytest
from budgets import assert_within_budget, by_name
from gp_problems import lower_factor
from reverse_rule import assert_reverse_rule

import fastsvgp as fs
from fastsvgp.posteriors import whitening

POSTERIORS = [fs.Whitened, fs.Marginal]
SHAPES = [
    (1, 1, None),
    (5, 3, None),
    (3, 40, None),
    (4, 7, 2),
    (4, 20, 2),
    (66, 150, None),
    (3, 50, 2),
    (2, 3, 1),
    (5, 0, None),
    (70, 66, None),
    (66, 300, None),
]
JITTER = 1e-3

each_posterior = pytest.mark.parametrize("cls", POSTERIORS, ids=lambda c: c.__name__)
each_shape = pytest.mark.parametrize("M, N, P", SHAPES)


def problem(rng, M, N, P, full=False):
    """Blocks of a positive definite joint covariance, and parameters with NaN in the unread triangle."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    Kff = K[M:, M:]
    batch = () if P is None else (P,)
    mean = rng.standard_normal((*batch, M))
    tril = lower_factor(rng, *batch, M, off=0.3 / np.sqrt(M))
    return fs.Blocks(K[:M, :M].copy(), K[:M, M:].copy(), Kff.diagonal().copy(), Kff.copy() if full else None), mean, tril


def holey(tril):
    return tril + np.triu(np.full(tril.shape[-2:], np.nan), 1)


def q_of_u(cls, mean, tril, Kuu):
    """Mean and covariance of u."""
    if cls is fs.Whitened:
        L = np.linalg.cholesky(Kuu)
        return mean @ L.T, L @ tril @ tril.swapaxes(-1, -2) @ L.T
    return mean, tril @ tril.swapaxes(-1, -2)


@each_shape
@each_posterior
def test_marginals_and_kl_by_definition(rng, cls, M, N, P):
    blocks, mean, tril = problem(rng, M, N, P, full=True)
    Kuu = blocks.Kuu + JITTER * np.eye(M)
    m, S = q_of_u(cls, mean, tril, Kuu)
    A = np.linalg.solve(Kuu, blocks.Kuf)
    truth_mean = m @ A
    truth_cov = blocks.Kff - blocks.Kuf.T @ A + A.T @ S @ A
    inverse = np.linalg.inv(Kuu)
    each = [
        0.5 * (np.trace(inverse @ s) + v @ inverse @ v - M + np.linalg.slogdet(Kuu)[1] - np.linalg.slogdet(s)[1])
        for v, s in zip(np.atleast_2d(m), S.reshape(-1, M, M), strict=True)
    ]
    posterior = cls(mean, holey(tril))
    f, kl, saved = posterior.forward(blocks, JITTER)
    np.testing.assert_allclose(f.mean, truth_mean, atol=1e-10)
    np.testing.assert_allclose(f.var, np.diagonal(truth_cov, axis1=-2, axis2=-1), atol=1e-10)
    np.testing.assert_allclose(kl, sum(each), rtol=1e-10, atol=1e-10)
    assert saved[0].clamped == 0
    work = posterior.start(blocks.Kuu, JITTER)
    got_mean, got_cov = posterior.joint(work, blocks.Kuf, blocks.Kff)
    np.testing.assert_allclose(got_mean, truth_mean, atol=1e-10)
    np.testing.assert_allclose(got_cov, truth_cov, atol=1e-10)


@each_shape
@each_posterior
def test_reverse_rule_of_every_field(rng, cls, M, N, P):
    blocks, mean, tril = problem(rng, M, N, P)
    assert_reverse_rule(rng, cls(mean, holey(tril)), blocks, JITTER)


@each_posterior
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("N", [7, 60])  # the batch form and the Gram form
def test_parts_add_up_to_the_whole(rng, cls, N, P):
    blocks, mean, tril = problem(rng, 6, N, P)
    posterior = cls(mean, holey(tril))
    f, kl, saved = posterior.forward(blocks, JITTER)
    f_bar = fs.Marginals(*rng.standard_normal((2, *f.mean.shape)))
    whole, whole_blocks = posterior.vjp(f_bar, -0.7, saved)
    work = posterior.start(blocks.Kuu, JITTER, N)
    np.testing.assert_allclose(posterior.kl(work), kl, rtol=1e-13)
    Kuf_bars = []
    for cols in (slice(0, 3), slice(3, 3), slice(3, N)):
        part_f, part = posterior.project(work, blocks.Kuf[:, cols], blocks.kff[cols])
        np.testing.assert_allclose(part_f.var, f.var[..., cols], rtol=1e-12)
        Kuf_bars.append(posterior.pull(work, part, fs.tree_map(lambda x, c=cols: x[..., c], f_bar)))
    posterior_bar, Kuu_bar = posterior.finish(work, -0.7)
    np.testing.assert_allclose(np.hstack(Kuf_bars), whole_blocks.Kuf, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(Kuu_bar, whole_blocks.Kuu, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(posterior_bar.mean, whole.mean, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(posterior_bar.scale_tril, whole.scale_tril, rtol=1e-10, atol=1e-11)


@each_posterior
@pytest.mark.parametrize("N", [4, 60])  # the batch form and the Gram form
def test_only_what_is_needed_is_computed_and_equals_the_whole(rng, cls, N):
    blocks, mean, tril = problem(rng, 6, N, 2)
    posterior = cls(mean, tril)

    def bars(*need):
        f, _, saved = posterior.forward(blocks, JITTER)
        f_bar = fs.Marginals(np.sin(f.mean), -np.cos(f.var))
        return posterior.vjp(f_bar, -1.0, saved, need) if need else posterior.vjp(f_bar, -1.0, saved)

    whole, whole_blocks = bars()
    only_mean, nothing = bars("posterior.mean")
    assert only_mean.scale_tril is None and nothing is None
    np.testing.assert_allclose(only_mean.mean, whole.mean, rtol=1e-12, atol=1e-12)
    only_tril, nothing = bars("posterior.scale_tril")
    assert only_tril.mean is None and nothing is None
    np.testing.assert_allclose(only_tril.scale_tril, whole.scale_tril, rtol=1e-12, atol=1e-12)
    nothing, only_blocks = bars("blocks")
    assert nothing.mean is None and nothing.scale_tril is None
    for name in ("Kuu", "Kuf", "kff"):
        np.testing.assert_allclose(getattr(only_blocks, name), getattr(whole_blocks, name), rtol=1e-11, atol=1e-11)


@each_posterior
@pytest.mark.parametrize("M, N", [(6, 4), (6, 60), (70, 90)])
def test_float32_is_as_accurate_as_numpy(rng, cls, M, N):
    """Plain NumPy in float32, by the definition with triangular whitening, sets the budget."""
    def plain(dtype, blocks, mean, tril):
        b = fs.tree_map(lambda a: a.astype(dtype), blocks)
        m, W = mean.astype(dtype), tril.astype(dtype)
        L = np.linalg.cholesky(b.Kuu + dtype(JITTER) * np.eye(M, dtype=dtype))
        if cls is fs.Marginal:
            m, W = np.linalg.solve(L, m), np.linalg.solve(L, W)
        Lam = np.linalg.solve(L, b.Kuf)
        V = W.T @ Lam
        return m @ Lam, b.kff - (Lam**2).sum(0) + (V**2).sum(0)

    def draw():
        p = problem(rng, M, N, None)
        single = [fs.tree_map(lambda a: a.astype(np.float32), p[0]), *(a.astype(np.float32) for a in p[1:])]
        posterior = cls(*single[1:])
        f, _, saved = posterior.forward(single[0], JITTER)
        trees = (f, *posterior.vjp(f, -1.0, saved))
        assert {a.dtype for tree in trees for _, _, a in fs.leaves(tree) if a is not None} == {np.dtype(np.float32)}
        return by_name(("mean", "var"), (f.mean, f.var), plain(np.float32, *p), plain(np.float64, *p))

    assert_within_budget(draw, problems=9)


@each_posterior
def test_variances_below_rounding_are_raised_and_counted(rng, cls):
    M = 4
    Kuu = np.eye(M)
    tiny = 1e-12 * np.eye(M)
    blocks = fs.Blocks(Kuu, np.eye(M)[:, :3].copy(), np.array([1.0, 1.0, 2.0]))  # the first two are inducing inputs
    f, _, saved = cls(np.zeros(M), tiny).forward(blocks, 0.0)
    assert saved[0].clamped == 2
    np.testing.assert_array_equal(f.var, [np.finfo(float).eps, np.finfo(float).eps, 1.0])


@each_posterior
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("step", [1.0, 0.3])
def test_natural_step_by_definition(rng, cls, P, step):
    """theta_new = theta + step * dBound/d(expectation parameters), with gradients taken from the reverse rule."""
    M, N = 5, 9
    blocks, mean, tril = problem(rng, M, N, P)
    posterior = cls(mean, holey(tril))
    f, _, saved = posterior.forward(blocks, JITTER)
    f_bar = fs.Marginals(rng.standard_normal(f.mean.shape), -rng.random(f.var.shape))
    work = posterior.start(blocks.Kuu, JITTER, np.inf)
    for cols in (slice(0, 4), slice(4, N)):
        _, part = posterior.project(work, blocks.Kuf[:, cols], blocks.kff[cols])
        posterior.pull(work, part, fs.tree_map(lambda x, c=cols: x[..., c], f_bar), ("posterior",))
    stepped = posterior.natural_step(work, step)
    bar, _ = posterior.vjp(f_bar, -1.0, saved)
    for p in np.ndindex(mean.shape[:-1]):
        W, m = tril[p], mean[p]
        S = W @ W.T
        # W_bar = tril(2 S_bar W): solve for the symmetric S_bar
        rows = [(i, j) for i in range(M) for j in range(i + 1)]
        basis = [np.eye(M)[[i]].T @ np.eye(M)[[j]] for i, j in rows]
        basis = [b + b.T if i != j else b for b, (i, j) in zip(basis, rows, strict=True)]
        system = np.array([[np.tril(2 * b @ W)[r] for b in basis] for r in rows])
        S_bar = sum(c * b for c, b in zip(np.linalg.solve(system, [bar.scale_tril[p][r] for r in rows]), basis, strict=True))
        precision = np.linalg.inv(S) - 2 * step * S_bar
        theta = np.linalg.solve(S, m) + step * (bar.mean[p] - 2 * S_bar @ m)
        np.testing.assert_allclose(stepped.scale_tril[p] @ stepped.scale_tril[p].T, np.linalg.inv(precision), atol=1e-9)
        np.testing.assert_allclose(stepped.mean[p], np.linalg.solve(precision, theta), atol=1e-9)


@each_posterior
def test_sizes_are_checked(rng, cls):
    for mean, tril in [((3,), (4, 4)), ((4,), (4, 3)), ((2, 4), (4, 4)), ((4, 4), (4, 4)), ((), (4, 4))]:
        with pytest.raises(ValueError, match="`posterior` has mean"):
            cls(np.zeros(mean), np.zeros(tril)).check_size(4)
    assert cls(np.zeros((2, 4)), np.zeros((2, 4, 4))).check_size(4) == (2,)


@pytest.mark.parametrize("inverse_up_to", [0, 256])
@pytest.mark.parametrize("P", [None, 2])
def test_three_forms_agree(rng, monkeypatch, P, inverse_up_to):
    M, N = 12, 40
    monkeypatch.setattr(whitening, "INVERSE_UP_TO", inverse_up_to)
    blocks, mean, tril = problem(rng, M, N, P)
    f_bar = fs.Marginals(rng.standard_normal((P or 1, N)), rng.standard_normal((P or 1, N)))
    L = np.linalg.cholesky(blocks.Kuu)
    results = []
    for form, columns in [(whitening.Whitening, N), (whitening.Whitening, 10**6), (whitening.LongWhitening, 10**6)]:
        work = form(L, mean, holey(tril), columns)
        first, second = slice(0, 25), slice(25, N)  # in two parts
        values, Kuf_bar = [], []
        for part in (first, second):
            *moments, saved = work.project(np.ascontiguousarray(blocks.Kuf[:, part]), blocks.kff[part])
            values += moments
            bar = fs.Marginals(np.ascontiguousarray(f_bar.mean[:, part]), np.ascontiguousarray(f_bar.var[:, part]))
            Kuf_bar.append(work.pull(saved, bar, True, True))
        mean_bar, tril_bar, _ = work.finish(-1.0, True, True)
        results.append([*values, *Kuf_bar, mean_bar, tril_bar, work.Kuu_bar()])
    assert whitening.whitening(L, mean, tril, 50 * M, ("blocks",)).__class__ is whitening.LongWhitening
    assert whitening.whitening(L, mean, tril, 50 * M, ("posterior",)).__class__ is whitening.Whitening
    for others in zip(*results, strict=True):
        for other in others[1:]:
            np.testing.assert_allclose(other, others[0], rtol=1e-9, atol=1e-9)
