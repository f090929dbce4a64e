"""Passes of SOLVE-GP's posteriors: by definition, and against equal posteriors of one set."""

import numpy as np
import pytest
from oracles import gp, orthogonal
from support import definitions
from support.budgets import assert_within_budget, by_name
from support.derivatives import assert_gradient
from support.gp_problems import lower_factor
from support.orthogonal_problems import cleaned, each_kind, problem
from support.posterior_problems import JITTER, bars_of, through

import fastsvgp as fs
from fastsvgp.kernels.cpu import triangular
from fastsvgp.posteriors import whitening
from fastsvgp.posteriors.orthogonal import OrthogonalSets

SHAPES = [
    (1, 1, 1, None),
    (5, 3, 4, None),
    (3, 5, 40, None),
    (1, 4, 7, 2),
    (4, 1, 20, 2),
    (66, 17, 150, None),
    (3, 2, 0, None),
    (2, 3, 1, 1),
    (40, 65, 30, 2),
    (20, 33, 300, None),
    (17, 1, 65, None),
]
each_shape = pytest.mark.parametrize("M, M2, N, P", SHAPES)


def outputs(q, blocks):
    return definitions.orthogonal_outputs(
        q, blocks.Kuu + JITTER * np.eye(len(blocks.Kuu)), type(q).__name__
    )


@each_shape
@each_kind
def test_marginals_joint_and_kl_by_definition(rng, kind, M, M2, N, P):
    q, blocks = problem(rng, kind, M, M2, N, P)
    A = blocks.Kuu + JITTER * np.eye(M + M2)
    work = q.start(blocks.Kuu, JITTER)
    f, _ = work.project(blocks.Kuf, blocks.kff)
    mean, cov = work.joint(blocks.Kuf, blocks.Kff)
    assert f.mean.shape == (*q.mean_u.shape[:-1], N) and work.clamped == 0
    kl = 0.0
    for p, moments in enumerate(outputs(q, blocks)):
        truth = orthogonal.joint(A, blocks.Kuf, blocks.Kff, *moments)
        # the same q, of f(Z, O)
        of_stack = gp.joint(A, blocks.Kuf, blocks.Kff, *orthogonal.stacked(A, *moments))
        kl += orthogonal.kl(A, *moments)
        for got, want, same in zip(
            (np.atleast_2d(mean)[p], cov if P is None else cov[p]), truth, of_stack, strict=True
        ):
            np.testing.assert_allclose(got, want, atol=1e-10)
            np.testing.assert_allclose(got, same, atol=1e-9)
        np.testing.assert_allclose(np.atleast_2d(f.mean)[p], truth[0], atol=1e-10)
        np.testing.assert_allclose(np.atleast_2d(f.var)[p], truth[1].diagonal(), atol=1e-10)
    np.testing.assert_allclose(work.kl(), kl, rtol=1e-10, atol=1e-10)


@each_shape
@each_kind
def test_reverse_rule_of_every_field(rng, kind, M, M2, N, P):
    q, blocks = problem(rng, kind, M, M2, N, P)
    shape = (*q.mean_u.shape[:-1], N)
    f_bar, kl_bar = fs.records.Marginals(*rng.standard_normal((2, *shape))), -0.7
    back = through(q, blocks, f_bar, kl_bar)
    np.testing.assert_array_equal(back.Kuu, back.Kuu.T)
    for path, field, bar in fs.records.leaves(back.posterior):
        assert field != "tril" or not np.triu(bar, 1).any(), path

    def value(q, b):
        b = fs.replace(b, Kuu=b.Kuu + JITTER * np.eye(len(b.Kuu)))
        mean, var, kl = definitions.moments(q, b)
        return (
            (f_bar.mean * mean.reshape(shape)).sum()
            + (f_bar.var * var.reshape(shape)).sum()
            + kl_bar * kl
        )

    clean = cleaned(q)
    blocks, kff_bar = fs.replace(blocks, Kff=None), np.atleast_2d(f_bar.var).sum(axis=0)
    assert_gradient(lambda q: value(q, blocks), clean, back.posterior, rng)
    assert_gradient(
        lambda b: value(clean, b), blocks, fs.records.Blocks(back.Kuu, back.Kuf, kff_bar), rng
    )


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_chunks_add_up_and_only_needed_parts_are_computed(rng, monkeypatch, kind, P):
    q, blocks = problem(rng, kind, 5, 3, 30, P)
    whole = through(q, blocks)
    for inverse_up_to in (0, 256):
        monkeypatch.setattr(triangular, "INVERSE_UP_TO", inverse_up_to)
        work = q.start(blocks.Kuu, JITTER, 30, ("posterior", "blocks"))
        Kuf_bars = []
        for cols in (slice(0, 7), slice(7, 7), slice(7, 30)):
            f, rows = work.project(np.ascontiguousarray(blocks.Kuf[:, cols]), blocks.kff[cols])
            Kuf_bars.append(work.pull(rows, bars_of(f)))
        posterior_bar, Kuu_bar = work.finish(-0.7)
        np.testing.assert_allclose(np.hstack(Kuf_bars), whole.Kuf, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(Kuu_bar, whole.Kuu, rtol=1e-9, atol=1e-10)
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(posterior_bar), fs.records.leaves(whole.posterior), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10, err_msg=path)
    for name, _, exact in fs.records.leaves(whole.posterior):
        some = through(q, blocks, need=(f"posterior.{name}",))
        assert some.Kuf is None and some.Kuu is None
        for path, _, bar in fs.records.leaves(some.posterior):
            assert (bar is None) == (path != name)
        np.testing.assert_allclose(getattr(some.posterior, name), exact, rtol=1e-11, atol=1e-12)
    for need, blocks_of in ((("blocks",), ("Kuf", "Kuu")), (("blocks.Kuf",), ("Kuf",))):
        some = through(q, blocks, need=need)
        assert all(bar is None for _, _, bar in fs.records.leaves(some.posterior))
        for block in ("Kuf", "Kuu"):
            assert (getattr(some, block) is None) == (block not in blocks_of)
            if block in blocks_of:
                np.testing.assert_allclose(
                    getattr(some, block), getattr(whole, block), rtol=1e-10, atol=1e-11
                )


@pytest.mark.parametrize(
    "need", [("posterior", "blocks"), ("blocks.Kuf",), ("blocks", "posterior.mean_v")], ids="+".join
)
@pytest.mark.parametrize(
    "kind",
    [fs.posteriors.WhitenedOrthogonal, fs.posteriors.Orthogonal],
    ids=lambda kind: kind.__name__,
)
@pytest.mark.parametrize("P", [None, 2])
def test_all_forms_agree(rng, kind, need, P):
    """The Gram form, and the long form, in chunks too, equal the batch form.

    They are used for long batches, the long form if blocks are needed.
    """
    q, blocks = problem(rng, kind, 12, 7, 60, P)
    results, size = [], 19 * (P or 1)
    for columns, form, runs in (
        (0, whitening.BatchWhitenedPass, (slice(0, 60),)),
        (4 * size - 1, whitening.GramWhitenedPass, (slice(0, 60),)),
        (4 * size, whitening.LongWhitenedPass, (slice(0, 60),)),
        (4 * size, whitening.LongWhitenedPass, (slice(0, 25), slice(25, 25), slice(25, 60))),
    ):
        work, f, Kuf_bars = q.start(blocks.Kuu, JITTER, columns, need), [], []
        assert type(work) is form
        for run in runs:
            one, rows = work.project(np.ascontiguousarray(blocks.Kuf[:, run]), blocks.kff[run])
            f += [one.mean, one.var]
            Kuf_bars.append(work.pull(rows, bars_of(one)))
        kl, bars = work.kl(), work.finish(-0.7)
        found = [
            np.concatenate(f[::2], axis=-1),
            np.concatenate(f[1::2], axis=-1),
            np.hstack(Kuf_bars),
            kl,
            bars.Kuu,
        ]
        results.append([*found, *(bar for _, _, bar in fs.records.leaves(bars.posterior))])
    for others in zip(*results, strict=True):
        for other in others[1:]:
            assert (other is None) == (others[0] is None)
            if other is not None:
                np.testing.assert_allclose(other, others[0], rtol=1e-9, atol=1e-10)
    work = q.start(blocks.Kuu, JITTER, 1000, ("posterior",))
    assert type(work) is whitening.GramWhitenedPass


@pytest.mark.parametrize("P", [None, 3])
@each_kind
def test_orthogonal_equals_one_set_with_the_same_q(rng, kind, P):
    """Whitened: one set is the stack, its factor block-diagonal; unwhitened: moments of f(Z, O)."""
    q, blocks = problem(rng, kind, 4, 6, 25, P)
    A = blocks.Kuu + JITTER * np.eye(10)
    if kind is fs.posteriors.WhitenedOrthogonal:
        tril = np.zeros((*q.mean_u.shape[:-1], 10, 10))
        tril[..., :4, :4], tril[..., 4:, 4:] = np.tril(q.scale_tril_u), np.tril(q.scale_tril_v)
        one = fs.Whitened(np.concatenate([q.mean_u, q.mean_v], axis=-1), tril)
    else:
        means, covs = zip(
            *(orthogonal.stacked(A, *moments) for moments in outputs(q, blocks)), strict=True
        )
        batch = q.mean_u.shape[:-1]
        one = fs.Marginal(
            np.stack(means).reshape(*batch, 10),
            np.linalg.cholesky(np.stack(covs)).reshape(*batch, 10, 10),
        )
    two, same = through(q, blocks), through(one, blocks)
    np.testing.assert_allclose(two.f.mean, same.f.mean, atol=1e-10)
    np.testing.assert_allclose(two.f.var, same.f.var, atol=1e-10)
    np.testing.assert_allclose(two.kl, same.kl, rtol=1e-10)
    if kind is fs.posteriors.WhitenedOrthogonal:
        np.testing.assert_allclose(two.Kuf, same.Kuf, atol=1e-9)
        np.testing.assert_allclose(two.Kuu, same.Kuu, atol=1e-9)
        np.testing.assert_allclose(two.posterior.mean_v, same.posterior.mean[..., 4:], atol=1e-10)
        np.testing.assert_allclose(
            two.posterior.scale_tril_v, same.posterior.scale_tril[..., 4:, 4:], atol=1e-10
        )


@each_kind
def test_float32_is_as_accurate_as_numpy(rng, kind):
    def plain(dtype, q, b):
        A, M = b.Kuu + dtype(JITTER) * np.eye(len(b.Kuu), dtype=dtype), len(q.mean_u)
        L = np.linalg.cholesky(A)
        Lam = np.linalg.solve(L, b.Kuf)
        mean, var = 0, b.kff
        m_v = L[M:, M:].T @ q.weights_v if kind is fs.posteriors.DecoupledWeights else q.mean_v
        for at, m, W in (
            (slice(0, M), q.mean_u, q.scale_tril_u),
            (slice(M, None), m_v, getattr(q, "scale_tril_v", None)),
        ):
            if kind in (fs.posteriors.Orthogonal, fs.posteriors.Decoupled):
                m, W = (
                    np.linalg.solve(L[at, at], m),
                    (None if W is None else np.linalg.solve(L[at, at], np.tril(W))),
                )
            mean = mean + m @ Lam[at]
            if W is not None:
                var = var - (Lam[at] ** 2).sum(0) + ((np.tril(W).T @ Lam[at]) ** 2).sum(0)
        return mean, var

    def draw():
        q, b = problem(rng, kind, 20, 13, 50)
        q32, b32 = (fs.records.tree_map(lambda a: a.astype(np.float32), tree) for tree in (q, b))
        back = through(q32, b32, lambda f: f)
        leaves = [
            back.Kuu,
            back.Kuf,
            back.f.mean,
            back.f.var,
            *(a for _, _, a in fs.records.leaves(back.posterior)),
        ]
        assert {a.dtype for a in leaves} == {np.dtype(np.float32)}
        return by_name(
            ("mean", "var"),
            (back.f.mean, back.f.var),
            plain(np.float32, q32, b32),
            plain(np.float64, q, b),
        )

    assert_within_budget(draw, problems=9)


@fs.records.record
class ThreeSets(OrthogonalSets):
    """The algebra takes any number of sets: here three."""

    names = ("u", "v", "w")
    num_sets = 3

    mean_u: np.ndarray = fs.records.leaf()
    scale_tril_u: np.ndarray = fs.records.leaf("tril")
    mean_v: np.ndarray = fs.records.leaf()
    scale_tril_v: np.ndarray = fs.records.leaf("tril")
    mean_w: np.ndarray = fs.records.leaf()
    scale_tril_w: np.ndarray = fs.records.leaf("tril")


def test_the_algebra_takes_any_number_of_sets(rng):
    sizes, (_, blocks) = (4, 3, 2), problem(rng, fs.posteriors.WhitenedOrthogonal, 5, 4, 25)
    parts = [(rng.standard_normal(m), lower_factor(rng, m, off=0.2)) for m in sizes]
    q, tril, edge = ThreeSets(*(field for part in parts for field in part)), np.zeros((9, 9)), 0
    for m, (_, W) in zip(sizes, parts, strict=True):
        tril[edge : edge + m, edge : edge + m] = np.tril(W)
        edge += m
    assert q.check_size(*sizes) == () and q.set_sizes(9) == sizes
    two, same = (
        through(q, blocks),
        through(fs.Whitened(np.concatenate([m for m, _ in parts]), tril), blocks),
    )
    np.testing.assert_allclose(two.Kuu, same.Kuu, atol=1e-10)
    np.testing.assert_allclose(two.Kuf, same.Kuf, atol=1e-10)
    np.testing.assert_allclose(
        two.posterior.scale_tril_w, same.posterior.scale_tril[7:, 7:], atol=1e-11
    )
