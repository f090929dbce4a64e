"""Contract of every posterior, over one table: definitions, reverse rules, chunks and passes."""

import numpy as np
import pytest
from oracles import gp
from support import definitions
from support.budgets import assert_within_budget, by_name
from support.looped import looped
from support.posterior_problems import (
    ALL,
    EVERY,
    JITTER,
    ROWS,
    back_and_forth,
    bars_of,
    joint_blocks,
    one_sided_bars_of,
    problem,
    through,
)
from support.reverse_rule import assert_reverse_rule, symmetric_behind

import fastsvgp as fs
from fastsvgp.posteriors.base import PriorFactor

SHAPES = [
    (1, 1, None),
    (5, 3, None),
    (3, 40, None),
    (4, 7, 2),
    (4, 20, 2),
    (17, 5, 3),
    (2, 3, 1),
    (3, 50, 2),
    (5, 0, None),
    (4, 0, 2),
    (70, 66, None),
    (66, 150, 2),
    (66, 300, None),
]

each_posterior = pytest.mark.parametrize("name", ROWS)
every_posterior = pytest.mark.parametrize("name", EVERY)  # those of two sets of inducing inputs too
each_shape = looped("M, N, P", SHAPES)
# of a batch: where an algebra has several forms, each is taken
each_length = looped("N", [5, 20, 60])
one_or_two = looped("P", [None, 2])


def fields_of(posterior):
    return [field for field, kind in posterior._record_fields if kind != "static"]


def assert_close(a, b, tolerance=1e-10, name=""):
    assert (a is None) == (b is None), name
    if a is not None:
        np.testing.assert_allclose(
            a, b, rtol=0, atol=tolerance * max(1, np.abs(b).max(initial=0)), err_msg=name
        )


def assert_same_pass(ours, theirs, but=()):
    """Compare two results of ``through``, or one by chunks."""
    for name in set(ours._fields) - {"f", "posterior"} - set(but):
        assert_close(getattr(ours, name), getattr(theirs, name), name=name)
    for mine, other in ((ours.f, theirs.f), (ours.posterior, theirs.posterior)):
        for (path, _, a), (_, _, b) in zip(
            fs.records.leaves(mine), fs.records.leaves(other), strict=True
        ):
            assert_close(a, b, name=path)


# --- values and gradients -----------------------------------------------------------------------


@each_shape
@each_posterior
def test_marginals_joint_and_kl_by_definition(rng, name, M, N, P):
    q, blocks, random = problem(rng, name, M, N, P)
    A, batch = blocks.Kuu + JITTER * np.eye(M), () if P is None else (P,)
    mean, var, kl = definitions.moments(q, fs.replace(blocks, Kuu=A), **random)
    work = q.start(blocks.Kuu, JITTER, N, **random)
    f, _ = work.project(blocks.Kuf, blocks.kff)
    np.testing.assert_allclose(f.mean, mean.reshape(*batch, N), atol=1e-10)
    np.testing.assert_allclose(f.var, var.reshape(*batch, N), atol=1e-10)
    np.testing.assert_allclose(work.kl(), kl, rtol=1e-10, atol=1e-10)
    joint = q.start(blocks.Kuu, JITTER).joint(blocks.Kuf, blocks.Kff)
    assert (
        joint.mean.shape == (*batch, N) and joint.cov.shape == (*batch, N, N) and work.clamped == 0
    )
    np.testing.assert_allclose(joint.cov, joint.cov.swapaxes(-1, -2), rtol=0, atol=1e-14)
    ours = zip(
        joint.mean.reshape(P or 1, N),
        joint.cov.reshape(P or 1, N, N),
        *definitions.q_of_u(q, A),
        strict=True,
    )
    least = 0.0
    # the marginals are those of one q(u), and the KL term is its own, or above it
    for mean, cov, m, S in ours:
        for a, b in zip((mean, cov), gp.joint(A, blocks.Kuf, blocks.Kff, m, S), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-10)
        least += gp.kl_gaussians(m, S, np.zeros(M), A)
    assert random or kl >= least - 1e-9 * max(1, abs(least))


@each_shape
@each_posterior
def test_reverse_rule_of_every_field_and_block(rng, name, M, N, P):
    q, blocks, random = problem(rng, name, M, N, P)
    assert_reverse_rule(rng, q, blocks, JITTER, **random)


@looped("bars", [bars_of, one_sided_bars_of])
@one_or_two
@each_length
@every_posterior
def test_chunks_of_rows_add_up_in_any_order(rng, name, N, P, bars):
    q, blocks, random = problem(rng, name, 6, N, P)
    whole = through(q, blocks, bars, **random)
    work, f_bar = q.start(blocks.Kuu, JITTER, N, ALL, **random), bars(whole.f)
    runs = [slice(0, 3), slice(3, 3), slice(3, N)]
    parts = [work.project(blocks.Kuf[:, run], blocks.kff[run]) for run in runs]
    f = fs.records.Marginals(
        *(
            np.concatenate([getattr(part.f, name) for part in parts], axis=-1)
            for name in ("mean", "var")
        )
    )
    pulled = [work.pull(part.rows, fs.records.tree_map(lambda x, run=run: x[..., run], f_bar))
              for part, run in reversed(list(zip(parts, runs, strict=True)))]  # fmt: skip
    kl = work.kl()
    assert_same_pass(
        type(whole)(f, kl, *work.finish(-0.7), np.hstack(pulled[::-1]), work.clamped), whole
    )


@each_length
@every_posterior
def test_kl_can_be_computed_at_any_time_or_never(rng, name, N):
    q, blocks, random = problem(rng, name, 6, N, 2)
    whole = through(q, blocks, **random)
    for when in ("never", "first", "last"):
        work = q.start(blocks.Kuu, JITTER, N, ALL, **random)
        kl = work.kl() if when == "first" else whole.kl
        f, rows = work.project(blocks.Kuf, blocks.kff)
        Kuf_bar = work.pull(rows, bars_of(f))
        kl = work.kl() if when == "last" else kl
        assert_same_pass(type(whole)(f, kl, *work.finish(-0.7), Kuf_bar, work.clamped), whole)


@looped("kl_bar", [-1.0, 0.0])
@each_length
@every_posterior
def test_only_what_is_needed_is_computed_and_equals_the_whole(rng, name, N, kl_bar):
    q, blocks, random = problem(rng, name, 6, N, 2)
    whole, fields = through(q, blocks, kl_bar=kl_bar, **random), fields_of(q)
    for need in (
        *((f"posterior.{field}",) for field in fields),
        ("posterior",),
        ("blocks",),
        ("blocks", f"posterior.{fields[0]}"),
        (f"posterior.{fields[0]}", f"posterior.{fields[-1]}"),
    ):
        some = through(q, blocks, kl_bar=kl_bar, need=need, **random)
        assert_same_pass(some, whole, but=("Kuu", "Kuf")) if need == ("posterior",) else None
        for field in fields:
            included = "posterior" in need or f"posterior.{field}" in need
            assert_close(
                getattr(some.posterior, field),
                getattr(whole.posterior, field) if included else None,
                name=field,
            )
        assert_close(some.Kuu, whole.Kuu if "blocks" in need else None, name=f"Kuu for {need}")
        assert_close(some.Kuf, whole.Kuf if "blocks" in need else None, name=f"Kuf for {need}")
    forward = q.start(blocks.Kuu, JITTER, N, **random)
    assert_close(forward.project(blocks.Kuf, blocks.kff).f.var, whole.f.var)
    assert_close(forward.kl(), whole.kl)


@every_posterior
def test_arguments_are_left_as_they_are_and_results_are_new(rng, name):
    q, blocks, random = problem(rng, name, 6, 20, 2)
    f_bar = fs.records.Marginals(*rng.standard_normal((2, 2, 20)))
    given = [
        *fs.records.leaves(q),
        *fs.records.leaves(blocks),
        *fs.records.leaves(f_bar),
        *(("probes", "", a) for a in random.values()),
    ]
    before = [a.copy() for _, _, a in given]
    first = through(q, blocks, f_bar, **random)
    q.start(blocks.Kuu, JITTER).joint(blocks.Kuf, blocks.Kff)
    for (path, _, a), b in zip(given, before, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=path)
    results = [
        *fs.records.leaves(first.f),
        *fs.records.leaves(first.posterior),
        ("Kuu", "", first.Kuu),
        ("Kuf", "", first.Kuf),
    ]
    for path, _, result in results:
        assert not any(np.shares_memory(result, a) for _, _, a in given), path


# --- float32, floors, sizes ---------------------------------------------------------------------


@looped("M, N", [(6, 4), (6, 60), (70, 90)])
@each_posterior
def test_float32_is_as_accurate_as_numpy(rng, name, M, N):
    """Plain NumPy in float32 sets the budget, by the definition or the plain recipe."""

    def plain(dtype, q, blocks, f_bar):
        q, b, f_bar = (
            fs.records.tree_map(lambda a: a.astype(dtype), tree) for tree in (q, blocks, f_bar)
        )
        A = b.Kuu + dtype(JITTER) * np.eye(M, dtype=dtype)
        return ROWS[name].plain(
            A, b.Kuf, b.kff, fs.records.tree_map(lambda a: np.nan_to_num(a), q), f_bar
        )

    def draw():
        q, blocks, random = problem(rng, name, M, N)
        f_bar = fs.records.Marginals(rng.standard_normal(N), -rng.random(N))
        single, narrow, bar = (
            fs.records.tree_map(lambda a: a.astype(np.float32), tree) for tree in (q, blocks, f_bar)
        )
        back = through(
            single, narrow, bar, -1.0, **{key: a.astype(np.float32) for key, a in random.items()}
        )
        fast = {"mean": back.f.mean, "var": back.f.var, "bar.Kuu": back.Kuu, "bar.Kuf": back.Kuf}
        fast |= {f"bar.posterior.{path}": bar for path, _, bar in fs.records.leaves(back.posterior)}
        assert {a.dtype for a in fast.values()} == {np.dtype(np.float32)}
        double = through(
            *(
                fs.records.tree_map(lambda a: a.astype(float), tree)
                for tree in (single, narrow, bar)
            ),
            -1.0,
            **random,
        )
        assert abs(back.kl - double.kl) <= 1e-5 * (M + abs(double.kl))  # M terms that cancel
        rough, truth = plain(np.float32, q, blocks, f_bar), plain(np.float64, q, blocks, f_bar)
        return by_name(
            truth, [fast[key] for key in truth], [rough[key] for key in truth], truth.values()
        )

    assert_within_budget(draw, problems=9)


@every_posterior
def test_variances_below_rounding_are_raised_and_counted(name, rng):
    M, eps = 4, np.finfo(float).eps
    q, random = EVERY[name].certain(M), EVERY[name].random(rng, M)
    # the first two are inducing inputs
    blocks = fs.records.Blocks(np.eye(M), np.eye(M)[:, :3].copy(), np.array([1.0, 1.0, 2.0]))
    work = q.start(blocks.Kuu, 0.0, 3, **random)
    np.testing.assert_array_equal(work.project(blocks.Kuf, blocks.kff).f.var, [eps, eps, 1.0])
    assert work.clamped == 2
    work.project(blocks.Kuf[:, :1], blocks.kff[:1])
    assert work.clamped == 3
    joint = q.start(blocks.Kuu, 0.0)
    np.testing.assert_array_equal(
        joint.joint(blocks.Kuf, np.diag(blocks.kff)).cov, np.diag([eps, eps, 1.0])
    )
    assert joint.clamped == 2


@each_posterior
def test_sizes_are_checked(rng, name):
    M = 4
    for P in (None, 1, 3):
        batch = () if P is None else (P,)
        q = ROWS[name].make(rng, np.eye(M), batch)
        assert q.check_size(M) == batch
        for size in (1, M - 1, M + 1):
            with pytest.raises(
                ValueError,
                match="`posterior` has mean .* but there are|`posterior` has .* but there are",
            ):
                q.check_size(size)
        for field in fields_of(q):
            value = getattr(q, field)
            for wrong in (
                value[..., 1:],
                np.stack([np.stack([value] * 2)] * 2),
                np.zeros(()),
                value[:0],
            ):
                with pytest.raises(ValueError, match="`posterior` has "):
                    fs.replace(q, **{field: wrong}).check_size(M)


# --- passes side by side ------------------------------------------------------------------------


@one_or_two
@each_length
@every_posterior
def test_passes_that_share_a_prior_are_separate_passes(rng, name, N, P):
    """Interleaved, with other parameters and other rows."""
    one, blocks, random = problem(rng, name, 6, N, P)
    A, prior = blocks.Kuu + JITTER * np.eye(6), PriorFactor(blocks.Kuu, JITTER)
    two = EVERY[name].make(rng, A, () if P is None else (P,))
    first, second = (q.start_from(prior, N, ALL, **random) for q in (one, two))
    (f, rows), (g, others) = (work.project(blocks.Kuf, blocks.kff) for work in (first, second))
    kls = first.kl(), second.kl()
    Kuf_bars = first.pull(rows, bars_of(f)), second.pull(others, bars_of(g))
    ends = first.finish(-0.7), second.finish(-0.7)
    for q, got, kl, Kuf_bar, end, work in zip(
        (one, two), (f, g), kls, Kuf_bars, ends, (first, second), strict=True
    ):
        separate = through(q, blocks, **random)
        assert_same_pass(type(separate)(got, kl, *end, Kuf_bar, work.clamped), separate)
    third = one.start_from(prior, N, ALL, **random)  # the prior has been left as it was
    assert_same_pass(back_and_forth(third, blocks), through(one, blocks, **random))


KEEP_ROWS = [
    name
    for name in ROWS
    if hasattr(
        EVERY[name].make(np.random.default_rng(0), np.eye(2)).start(np.eye(2), 0.0), "project_rows"
    )
]


@looped("bars", [bars_of, one_sided_bars_of])
@looped("need", [ALL, ("posterior",), ("blocks",)])
@one_or_two
@each_length
@pytest.mark.parametrize("name", KEEP_ROWS)
def test_kept_rows_serve_other_passes(rng, name, N, P, need, bars):
    one, blocks, random = problem(rng, name, 6, N, P)
    A, prior = blocks.Kuu + JITTER * np.eye(6), PriorFactor(blocks.Kuu, JITTER)
    kept = one.start_from(prior, N, need, **random).rows(blocks.Kuf, blocks.kff)
    copies = [array.copy() for array in kept]
    passes = []
    for _ in range(3):
        q = ROWS[name].make(rng, A, () if P is None else (P,))
        work = q.start_from(prior, N, need, **random)
        passes.append((q, work, *work.project_rows(kept)))
    for q, work, f, rows in passes:  # interleaved: what a pass makes of the rows is its own
        kl, Kuf_bar = work.kl(), work.pull(rows, bars(f))
        separate = through(q, blocks, bars, need=need, **random)
        assert_same_pass(type(separate)(f, kl, *work.finish(-0.7), Kuf_bar, work.clamped), separate)
        for before, after in zip(copies, kept, strict=True):
            np.testing.assert_array_equal(after, before)


# --- natural steps ------------------------------------------------------------------------------


NATURAL = [
    name for name in ROWS if ROWS[name].make(np.random.default_rng(0), np.eye(2)).natural_fields
]
# those whose fields are a mean and a factor
MOMENTS = [name for name in NATURAL if "sites" not in name]


@looped("step", [1.0, 0.3])
@one_or_two
@pytest.mark.parametrize("name", MOMENTS)
def test_natural_step_by_definition(rng, name, P, step):
    """theta_new = theta + step * dBound/d(expectation parameters), by the reverse rule."""
    M, N = 5, 9
    q, blocks, random = problem(rng, name, M, N, P)
    shape = (*q.mean.shape[:-1], N)
    f_bar = fs.records.Marginals(rng.standard_normal(shape), -rng.random(shape))
    work = q.start(blocks.Kuu, JITTER, N, ("natural_step",), **random)
    for run in (slice(0, 4), slice(4, N)):
        rows = work.project(blocks.Kuf[:, run], blocks.kff[run]).rows
        assert work.pull(rows, fs.records.tree_map(lambda x, run=run: x[..., run], f_bar)) is None
    work.natural_step(0.1)  # the sums stay
    stepped = work.natural_step(step)
    bar = through(q, blocks, f_bar, -1.0, need=("posterior",), **random).posterior
    for field in set(fields_of(q)) - set(q.natural_fields):
        np.testing.assert_array_equal(getattr(stepped, field), getattr(q, field))
    for p in np.ndindex(shape[:-1]):
        W, m = np.tril(q.scale_tril[p]), q.mean[p]
        S, S_bar = W @ W.T, symmetric_behind(bar.scale_tril[p], W)
        precision = np.linalg.inv(S) - 2 * step * S_bar
        theta = np.linalg.solve(S, m) + step * (bar.mean[p] - 2 * S_bar @ m)
        V = np.tril(stepped.scale_tril[p])
        np.testing.assert_allclose(V @ V.T, np.linalg.inv(precision), atol=1e-9)
        np.testing.assert_allclose(stepped.mean[p], np.linalg.solve(precision, theta), atol=1e-9)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in NATURAL])
def test_posteriors_without_natural_steps_say_why(rng, name):
    q = ROWS[name].make(rng, np.eye(4))
    model = fs.SVGP(fs.RBF(), rng.standard_normal((4, 2)), q, fs.Gaussian(0.1))
    message = (
        f"natural_step: a {type(q).__name__} posterior cannot take natural-gradient steps, because"
        " it would .*adam"
    )
    with pytest.raises(TypeError, match=message):
        fs.natural_step(model, rng.standard_normal((3, 2)), np.zeros(3))
    with pytest.raises(NotImplementedError):
        q.start(joint_blocks(rng, 4, 0).Kuu, JITTER).natural_step(0.1)
