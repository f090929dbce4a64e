"""SOLVE-GP's posteriors: by definition, and against equal posteriors of one set."""

import numpy as np
import pytest
from oracles import gp, orthogonal
from support import definitions
from support.budgets import assert_within_budget, by_name
from support.derivatives import assert_gradient
from support.gp_problems import lower_factor
from support.numerics import nine_point
from support.posterior_problems import JITTER, bars_of, through

import fastsvgp as fs
from fastsvgp.kernels.cpu import triangular
from fastsvgp.posteriors import orthogonal_pass as ours
from fastsvgp.posteriors.orthogonal import OrthogonalSets

KINDS = [fs.WhitenedOrthogonal, fs.Orthogonal, fs.Decoupled, fs.DecoupledWeights]
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
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
each_shape = pytest.mark.parametrize("M, M2, N, P", SHAPES)


def problem(rng, kind, M, M2, N, P=None):
    """A posterior with NaN where values must not be read, and blocks of a joint covariance."""
    size, batch = M + M2 + N, () if P is None else (P,)
    A = rng.standard_normal((size, size + 3)) / np.sqrt(size)
    K = A @ A.T + 0.2 * np.eye(size)
    fields = []
    for m in (M, M2):
        tril = lower_factor(rng, *batch, m, off=0.3 / np.sqrt(m))
        fields += [rng.standard_normal((*batch, m)), tril + np.triu(np.full((m, m), np.nan), 1)]
    u = M + M2
    blocks = fs.Blocks(
        K[:u, :u].copy(), K[:u, u:].copy(), K[u:, u:].diagonal().copy(), K[u:, u:].copy()
    )
    return kind(*fields[: len(kind._record_fields)]), blocks


def cleaned(q):
    """Without the NaN."""
    return fs.replace(
        q, **{path: np.tril(value) for path, kind, value in fs.leaves(q) if kind == "tril"}
    )


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
    f_bar, kl_bar = fs.Marginals(*rng.standard_normal((2, *shape))), -0.7
    back = through(q, blocks, f_bar, kl_bar)
    np.testing.assert_array_equal(back.Kuu, back.Kuu.T)
    for path, field, bar in fs.leaves(back.posterior):
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
    assert_gradient(lambda b: value(clean, b), blocks, fs.Blocks(back.Kuu, back.Kuf, kff_bar), rng)


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
            fs.leaves(posterior_bar), fs.leaves(whole.posterior), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10, err_msg=path)
    for name, _, exact in fs.leaves(whole.posterior):
        some = through(q, blocks, need=(f"posterior.{name}",))
        assert some.Kuf is None and some.Kuu is None
        for path, _, bar in fs.leaves(some.posterior):
            assert (bar is None) == (path != name)
        np.testing.assert_allclose(getattr(some.posterior, name), exact, rtol=1e-11, atol=1e-12)
    for need, blocks_of in ((("blocks",), ("Kuf", "Kuu")), (("blocks.Kuf",), ("Kuf",))):
        some = through(q, blocks, need=need)
        assert all(bar is None for _, _, bar in fs.leaves(some.posterior))
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
    "kind", [fs.WhitenedOrthogonal, fs.Orthogonal], ids=lambda kind: kind.__name__
)
def test_both_forms_agree(rng, kind, need):
    """The long form, in chunks too, equals the batch form.

    It is used for long batches whose blocks are needed.
    """
    q, blocks = problem(rng, kind, 12, 7, 60)
    results = []
    for columns, form, runs in (
        (60, ours.LongStackedPass, (slice(0, 60),)),
        (0, ours.StackedPass, (slice(0, 60),)),
        (60, ours.LongStackedPass, (slice(0, 25), slice(25, 25), slice(25, 60))),
    ):
        work, f, Kuf_bars = q.start(blocks.Kuu, JITTER, columns, need), [], []
        assert type(work) is form
        for run in runs:
            one, rows = work.project(np.ascontiguousarray(blocks.Kuf[:, run]), blocks.kff[run])
            f += [one.mean, one.var]
            Kuf_bars.append(work.pull(rows, bars_of(one)))
        kl, bars = work.kl(), work.finish(-0.7)
        found = [np.concatenate(f[::2]), np.concatenate(f[1::2]), np.hstack(Kuf_bars), kl, bars.Kuu]
        results.append([*found, *(bar for _, _, bar in fs.leaves(bars.posterior))])
    for others in zip(*results, strict=True):
        for other in others[1:]:
            assert (other is None) == (others[0] is None)
            if other is not None:
                np.testing.assert_allclose(other, others[0], rtol=1e-9, atol=1e-10)
    assert type(q.start(blocks.Kuu, JITTER, 1000, ("posterior",))) is ours.StackedPass
    assert (
        type(problem(rng, kind, 5, 3, 1, 2)[0].start(blocks.Kuu[:8, :8], JITTER, 1000, need))
        is ours.StackedPass
    )


@pytest.mark.parametrize("P", [None, 3])
@each_kind
def test_orthogonal_equals_one_set_with_the_same_q(rng, kind, P):
    """Whitened: one set is the stack, its factor block-diagonal; unwhitened: moments of f(Z, O)."""
    q, blocks = problem(rng, kind, 4, 6, 25, P)
    A = blocks.Kuu + JITTER * np.eye(10)
    if kind is fs.WhitenedOrthogonal:
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
    if kind is fs.WhitenedOrthogonal:
        np.testing.assert_allclose(two.Kuf, same.Kuf, atol=1e-9)
        np.testing.assert_allclose(two.Kuu, same.Kuu, atol=1e-9)
        np.testing.assert_allclose(two.posterior.mean_v, same.posterior.mean[..., 4:], atol=1e-10)
        np.testing.assert_allclose(
            two.posterior.scale_tril_v, same.posterior.scale_tril[..., 4:, 4:], atol=1e-10
        )


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_one_natural_step_of_size_one_is_the_optimum(rng, kind, P):
    """Under Gaussian noise and all data the gradient vanishes, and a smaller step goes uphill."""
    batch = () if P is None else (P,)
    X, Y = rng.uniform(-2, 2, (40, 2)), rng.standard_normal((40, *batch))
    q, _ = problem(rng, kind, 4, 3, 1, P)
    pair = fs.InducingPair(rng.uniform(-2, 2, (4, 2)), rng.uniform(-2, 2, (3, 2)))
    model = fs.SVGP(fs.Matern32(1.1, np.array([0.9, 1.3])), pair, q, fs.Gaussian(0.2))
    stepped, info = fs.natural_step(model, X, Y, step_size=1.0, jitter=JITTER)
    assert not info.backed_off
    value, grad = fs.elbo_and_grad(stepped, X, Y, jitter=JITTER)
    for path in q.natural_fields:
        np.testing.assert_allclose(getattr(grad.posterior, path), 0, atol=1e-8, err_msg=path)
    for path in {path for path, _, _ in fs.leaves(q)} - set(q.natural_fields):
        np.testing.assert_array_equal(getattr(stepped.posterior, path), getattr(q, path))
    smaller, _ = fs.natural_step(model, X, Y, step_size=0.3, jitter=JITTER)
    assert info.value < fs.elbo(smaller, X, Y, jitter=JITTER) < value


@each_kind
def test_float32_is_as_accurate_as_numpy(rng, kind):
    def plain(dtype, q, b):
        A, M = b.Kuu + dtype(JITTER) * np.eye(len(b.Kuu), dtype=dtype), len(q.mean_u)
        L = np.linalg.cholesky(A)
        Lam = np.linalg.solve(L, b.Kuf)
        mean, var = 0, b.kff
        m_v = L[M:, M:].T @ q.weights_v if kind is fs.DecoupledWeights else q.mean_v
        for at, m, W in (
            (slice(0, M), q.mean_u, q.scale_tril_u),
            (slice(M, None), m_v, getattr(q, "scale_tril_v", None)),
        ):
            if kind in (fs.Orthogonal, fs.Decoupled):
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
        q32, b32 = (fs.tree_map(lambda a: a.astype(np.float32), tree) for tree in (q, b))
        back = through(q32, b32, lambda f: f)
        leaves = [
            back.Kuu,
            back.Kuf,
            back.f.mean,
            back.f.var,
            *(a for _, _, a in fs.leaves(back.posterior)),
        ]
        assert {a.dtype for a in leaves} == {np.dtype(np.float32)}
        return by_name(
            ("mean", "var"),
            (back.f.mean, back.f.var),
            plain(np.float32, q32, b32),
            plain(np.float64, q, b),
        )

    assert_within_budget(draw, problems=9)


@fs.record
class ThreeSets(OrthogonalSets):
    """The algebra takes any number of sets: here three."""

    names = ("u", "v", "w")
    num_sets = 3

    mean_u: np.ndarray = fs.leaf()
    scale_tril_u: np.ndarray = fs.leaf("tril")
    mean_v: np.ndarray = fs.leaf()
    scale_tril_v: np.ndarray = fs.leaf("tril")
    mean_w: np.ndarray = fs.leaf()
    scale_tril_w: np.ndarray = fs.leaf("tril")


def test_the_algebra_takes_any_number_of_sets(rng):
    sizes, (_, blocks) = (4, 3, 2), problem(rng, fs.WhitenedOrthogonal, 5, 4, 25)
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


@each_kind
def test_sizes_are_checked(rng, kind):
    q, _ = problem(rng, kind, 4, 3, 1, 2)
    assert q.check_size(4, 3) == (2,)
    of_v = q.fields_of("v")[0]
    for wrong, message in (
        (
            {of_v: np.zeros((2, 4))},
            rf"{of_v} \(2, 4\), but that set has 3 inducing inputs: use \(3,\), or \(P, 3\) with",
        ),
        (
            {of_v: np.zeros(3)},
            rf"{of_v} \(3,\), but that set has 3 .*with P outputs in every field",
        ),
        ({"scale_tril_u": np.zeros((2, 4, 3))}, r"scale_tril_u \(2, 4, 3\), but that set has 4"),
    ):
        wrong = fs.replace(q, **wrong)
        with pytest.raises(ValueError, match=message):
            wrong.check_size(4, 3)
    pair = fs.InducingPair(rng.standard_normal((4, 2)), rng.standard_normal((3, 2)))
    model = fs.SVGP(fs.RBF(), pair, q, fs.Gaussian(0.1))
    X, Y = rng.standard_normal((5, 2)), rng.standard_normal((5, 2))
    assert np.isfinite(fs.elbo(model, X, Y))
    with pytest.raises(
        TypeError,
        match=f"`inducing` is an array, one set .*, and a {kind.__name__} posterior takes 2",
    ):
        fs.elbo(fs.replace(model, inducing=pair.Z), X, Y)


# --- models -------------------------------------------------------------------------------------


def model_of(rng, kind, P=None, likelihood=None, covariance=None):
    """``(model, X, Y)``."""
    q, _ = problem(rng, kind, 5, 3, 1, P)
    q = cleaned(q)
    pair = fs.InducingPair(rng.uniform(-2, 2, (5, 2)), rng.uniform(-2, 2, (3, 2)))
    covariance = covariance or fs.Matern32(1.3, np.array([0.8, 1.2]))
    X, Y = rng.uniform(-2, 2, (17, 2)), rng.standard_normal((17,) if P is None else (17, P))
    return (
        fs.SVGP(covariance, pair, q, likelihood or fs.StudentT(0.4, df=4.0), fs.ConstantMean(0.3)),
        X,
        Y,
    )


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_gradients_of_the_whole_model(rng, kind, P):
    model, X, Y = model_of(rng, kind, P)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, num_data=60, jitter=JITTER, inputs=True)

    def definition(m):
        stack = fs.replace(m, inducing=np.concatenate([m.inducing.Z, m.inducing.O]))
        return definitions.elbo(stack, X, Y, 60 / 17, JITTER)

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-10)
    assert_gradient(definition, model, grad, rng)
    d = rng.standard_normal(X.shape)
    slope = nine_point(lambda s: fs.elbo(model, X + s * d, Y, num_data=60, jitter=JITTER))
    assert slope == pytest.approx(
        np.vdot(X_bar, d), rel=1e-8, abs=1e-8 * np.linalg.norm(X_bar) * np.linalg.norm(d)
    )


@pytest.mark.parametrize("P", [None, 3])
@each_kind
def test_the_joint_model_is_the_same(rng, kind, P):
    model, X, Y = model_of(rng, kind, P)
    joint = fs.to_joint(model, jitter=JITTER)
    assert type(joint.posterior) is (fs.Marginal if kind.unwhitens else fs.Whitened)
    assert fs.elbo(joint, X, Y, jitter=JITTER) == pytest.approx(
        fs.elbo(model, X, Y, jitter=JITTER), rel=1e-10
    )
    for full_cov in (False, True):
        for a, b in zip(
            *(fs.predict_f(m, X, full_cov=full_cov, jitter=JITTER) for m in (joint, model)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, atol=1e-9)
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    _, same = fs.elbo_and_grad(joint, X, Y, jitter=JITTER)
    if kind is fs.WhitenedOrthogonal:
        np.testing.assert_allclose(
            np.vstack([grad.inducing.Z, grad.inducing.O]), same.inducing, rtol=1e-8, atol=1e-8
        )
        np.testing.assert_allclose(
            grad.covariance.lengthscales, same.covariance.lengthscales, rtol=1e-8
        )
    with pytest.raises(
        TypeError,
        match="to_joint: a (Whitened|Marginal) posterior has one set of inducing inputs already",
    ):
        fs.to_joint(joint)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize(
    "kind",
    [*KINDS, fs.Whitened, fs.Marginal, fs.AbsorbedDualSites, fs.DualSites],
    ids=lambda kind: kind.__name__,
)
def test_a_start_at_the_prior(rng, kind, outputs):
    model, X, Y = model_of(rng, fs.Orthogonal, outputs)
    inducing = model.inducing if issubclass(kind, OrthogonalSets) else model.inducing.Z
    q = fs.at_prior(kind, model.covariance, inducing, outputs=outputs, jitter=JITTER)
    assert type(q) is kind
    model = fs.replace(model, inducing=inducing, posterior=q, mean=None)
    kl, grad = fs.kl_term_and_grad(model, jitter=JITTER)
    assert abs(kl) < 1e-12
    for path, _, bar in fs.leaves(grad.posterior):
        np.testing.assert_allclose(bar, 0, atol=1e-10, err_msg=path)
    mean, cov = fs.predict_f(model, X, full_cov=True, jitter=JITTER)
    np.testing.assert_array_equal(mean, 0)
    K = model.covariance.Kff(X)
    # the jitter of Kuu
    np.testing.assert_allclose(cov, K if outputs is None else np.stack([K] * outputs), atol=1e-2)


def test_at_prior_refuses_invalid_arguments(rng):
    model, _, _ = model_of(rng, fs.Orthogonal)
    with pytest.raises(
        TypeError,
        match="at_prior: `kind` must be Whitened, .* or DecoupledWeights, got LikelihoodForm",
    ):
        fs.at_prior(fs.LikelihoodForm, model.covariance, model.inducing)
    with pytest.raises(TypeError, match="at_prior: `kind` must be .*, got Orthogonal"):
        fs.at_prior(model.posterior, model.covariance, model.inducing)
    with pytest.raises(
        TypeError,
        match=(
            "`inducing` is a record InducingPair of 2 sets .*, and a Whitened posterior takes one"
        ),
    ):
        fs.at_prior(fs.Whitened, model.covariance, model.inducing)
    with pytest.raises(
        TypeError, match="`inducing` is an array, one set .*, and a Orthogonal posterior takes 2"
    ):
        fs.at_prior(fs.Orthogonal, model.covariance, model.inducing.Z)
    with pytest.raises(ValueError, match="`outputs` must be a whole number of at least 1"):
        fs.at_prior(fs.Orthogonal, model.covariance, model.inducing, outputs=0)
    with pytest.raises(TypeError, match="`covariance` of the model must be a record"):
        fs.at_prior(fs.Orthogonal, fs.RBF, model.inducing)
    twice = fs.InducingPair(model.inducing.Z, model.inducing.Z[:2])
    with pytest.raises(fs.NotPositiveDefinite):
        fs.at_prior(fs.Orthogonal, model.covariance, twice, jitter=0.0)


@each_kind
def test_files_flat_vectors_and_training(rng, tmp_path, kind):
    model, X, Y = model_of(rng, kind, likelihood=fs.Gaussian(0.3))
    fs.save(tmp_path / "m.npz", model)
    again = fs.load(tmp_path / "m.npz")
    assert type(again.inducing) is fs.InducingPair and fs.elbo(again, X, Y) == fs.elbo(model, X, Y)
    _, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    value = lambda moved: fs.elbo(moved, X, Y, jitter=JITTER)  # noqa: E731
    fs.testing.assert_gradient(value, model, grad, rng=rng)
    optimiser = fs.adam(0.01, step_sizes={"inducing.O": 1e-3})
    fields = fs.by_field(fs.adam(0.01), {"inducing.O": fs.sgd(1e-5)})
    for settings in ({"optimiser": optimiser}, {"optimiser": fields}, {"natural_step_size": 0.5}):
        trained, info = fs.fit(model, X, Y, steps=30, rng=0, **settings)
        assert info.values[-1] > info.values[0]
        for name in ("Z", "O"):
            assert not np.array_equal(
                getattr(trained.inducing, name), getattr(model.inducing, name)
            )


@each_kind
def test_duplicated_inducing_inputs_are_named(rng, kind):
    model, X, Y = model_of(rng, kind)
    pair = model.inducing
    O = pair.O.copy()  # noqa: E741
    O[2] = pair.Z[4]
    cases = [
        (
            fs.InducingPair(pair.Z, O),
            (
                r"^`inducing.O\[2\]` and `inducing.Z\[4\]` are the same inputs: move .* not"
                r" positive def"
            ),
        ),
        (
            fs.InducingPair(pair.Z, pair.O[[0, 1, 0]]),
            r"`inducing.O\[2\]` and `inducing.O\[0\]` are the same inputs",
        ),
    ]
    if kind is fs.DecoupledWeights:  # factorises Kuu alone
        assert all(
            np.isfinite(fs.elbo(fs.replace(model, inducing=wrong), X, Y, jitter=0.0))
            for wrong, _ in cases
        )
        twice = fs.InducingPair(pair.Z[[0, 1, 2, 3, 1]], pair.O)
        cases = [
            (
                twice,
                (
                    r"^`inducing.Z\[4\]` and `inducing.Z\[1\]` are the same inputs: move .* not"
                    r" positive def"
                ),
            )
        ]
    for wrong, message in cases:
        for call in (fs.elbo, fs.elbo_and_grad, fs.natural_step):
            with pytest.raises(fs.NotPositiveDefinite, match=message):
                call(fs.replace(model, inducing=wrong), X, Y, jitter=0.0)
        # with the default jitter it is its definition
        assert np.isfinite(fs.elbo(fs.replace(model, inducing=wrong), X, Y))
    one = fs.replace(
        model,
        inducing=pair.Z[[0, 1, 2, 1]],
        posterior=fs.at_prior(fs.Whitened, model.covariance, pair.Z[:4]),
    )
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`inducing\[3\]` and `inducing\[1\]` are the same inputs"
    ):
        fs.elbo(one, X, Y, jitter=0.0)
    apart = fs.replace(one, inducing=pair.Z[:4], covariance=fs.Linear())  # of rank two
    with pytest.raises(fs.NotPositiveDefinite, match="^the 4 x 4 matrix is not positive definite"):
        fs.elbo(apart, X, Y, jitter=0.0)


@pytest.mark.parametrize("P", [None, 2])
@each_kind
def test_prior_on_v_gives_the_posterior_on_the_first_set(rng, kind, P):
    """``SVGP`` on Z with the same q(u): the bound and all predictions."""
    model, X, Y = model_of(rng, kind, P)
    prior = fs.at_prior(kind, model.covariance, model.inducing, outputs=P, jitter=JITTER)
    fields = {"mean_u": model.posterior.mean_u, "scale_tril_u": model.posterior.scale_tril_u}
    model = fs.replace(model, posterior=fs.replace(prior, **fields))
    one = (fs.Marginal if kind.unwhitens else fs.Whitened)(*fields.values())
    on_Z = fs.replace(model, inducing=model.inducing.Z, posterior=one)
    assert fs.elbo(model, X, Y, jitter=JITTER) == pytest.approx(
        fs.elbo(on_Z, X, Y, jitter=JITTER), rel=1e-10
    )
    for full_cov in (False, True):
        for a, b in zip(
            *(fs.predict_f(m, X, full_cov=full_cov, jitter=JITTER) for m in (model, on_Z)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@each_kind
def test_shards_make_the_whole_and_chunks_the_predictions(rng, kind):
    model, X, Y = model_of(rng, kind, 2)
    value, grad = fs.data_term_and_grad(model, X, Y, jitter=JITTER)
    shards = [
        fs.data_term_and_grad(model, X[at], Y[at], jitter=JITTER)
        for at in (slice(0, 6), slice(6, 7), slice(7, 17))
    ]
    assert sum(part for part, _ in shards) == pytest.approx(value, rel=1e-12)
    total = fs.tree_map(lambda *bars: sum(bars), *(bars for _, bars in shards))
    for (path, _, a), (_, _, b) in zip(fs.leaves(total), fs.leaves(grad), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=path)
    for a, b in zip(
        fs.predict_y(model, X, chunk_size=4, jitter=JITTER),
        fs.predict_y(model, X, jitter=JITTER),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
