"""Rows that are weighted sums of points, against loops over all pairs of points."""

import numpy as np
import pytest
from oracles import covariances, weighted
from support.covariance_problems import cast
from support.numerics import assert_adjoint, exactly, symmetric

import fastsvgp as fs
from fastsvgp.records import leaves, replace_at
from fastsvgp.testing import assert_gradient

N, M, P, D = 6, 5, 3, 2
PARTS = {
    "rbf": lambda: fs.RBF(1.3, np.array([0.7, 1.1])),
    "matern52": lambda: fs.Matern52(0.8, 0.9),
    "sum": lambda: fs.Matern32(0.7, 1.2) * fs.RBF(1.1, 2.0) + fs.Linear(0.3).on(1),
}
everything = pytest.mark.parametrize("name", PARTS)


def problem(rng, name, dtype=np.float64):
    """``(covariance, Z, other, X, others)``; each second row lacks its last point."""
    covariance = fs.covariances.Weighted(PARTS[name](), points=P)
    X, Y = (rng.standard_normal((n, P, D + 1)) for n in (N, N - 2))
    X[::2, -1, -1] = 0
    arrays = rng.standard_normal((M, D)), rng.standard_normal((M - 1, D))
    arrays += tuple(a.reshape(len(a), -1) for a in (X, Y))
    return cast(covariance, dtype), *(a.astype(dtype) for a in arrays)


def diagonal(covariance, X):
    return weighted.Kff(covariance, X, X).diagonal()


def of_part(covariance, Z, other):
    return covariances.matrix(covariance.part, Z, other)


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks(rng, name, dtype, tune):
    tune(window_chunk_numbers=4 * P * P)
    covariance, Z, V, X, Y = problem(rng, name, dtype)
    covariance.check_dim(covariance.num_columns(Z))
    assert covariance.num_columns(Z) == X.shape[1] and covariance.num_inducing(Z) == (M,)
    exact = cast(covariance, np.float64)
    u, v, x, y = (a.astype(np.float64) for a in (Z, V, X, Y))
    for found, truth in (
        (covariance.Kuu(Z), of_part(exact, u, u)),
        (covariance.Kuu(Z, V), of_part(exact, u, v)),
        (covariance.Kuf(Z, X), weighted.Kuf(exact, u, x)),
        (covariance.kff(X), diagonal(exact, x)),
        (covariance.Kff(X), weighted.Kff(exact, x, x)),
        (covariance.Kff(X, Y), weighted.Kff(exact, x, y)),
    ):
        assert found.dtype == dtype
        size = np.abs(truth).max() + 1
        np.testing.assert_allclose(found, truth, rtol=0, atol=200 * np.finfo(dtype).eps * size)
    np.testing.assert_array_equal(covariance.Kff(X), covariance.Kff(X).T)


@everything
@pytest.mark.parametrize("numbers", [4 * P * P, 1 << 20])
def test_each_block_reversed(rng, name, numbers, tune):
    """Check every field and input by differences of the definition, in chunks and at once."""
    tune(window_chunk_numbers=numbers)
    covariance, Z, V, X, Y = problem(rng, name)
    paths = [path for path, _, _ in leaves(covariance)]
    fields = [value for _, _, value in leaves(covariance)]

    def check(K_bar, rule, of, *arguments, names):
        K = () if rule == covariance.kff_vjp else (None,)
        bars = rule(K_bar, *K, *arguments, need=("covariance", *names))
        found = [bar for _, _, bar in leaves(bars[0])]

        def f(*values):
            moved = covariance
            for path, value in zip(paths, values, strict=False):
                moved = replace_at(moved, path, value)
            return of(moved, *values[len(paths) :])

        every = (*found, *(bar for bar in bars[1:] if bar is not None))
        assert_adjoint(f, exactly(*fields, *arguments), every, K_bar, rng, h=1e-4)
        for name, bar in zip(("covariance", *names), bars, strict=False):
            alone = rule(K_bar, *K, *arguments, need=(name,))
            assert sum(one is not None for one in alone) == 1
            if name != "covariance":
                one = next(one for one in alone if one is not None)
                np.testing.assert_allclose(one, bar, rtol=1e-10, atol=1e-12)

    check(
        symmetric(rng, M), covariance.Kuu_vjp, lambda k, u: of_part(k, u, u), Z, names=["inducing"]
    )
    check(
        rng.standard_normal((M, M - 1)),
        covariance.Kuu_vjp, of_part, Z, V, names=["inducing", "other"],
    )  # fmt: skip
    K_bar = rng.standard_normal((M, N))
    check(K_bar, covariance.Kuf_vjp, weighted.Kuf, Z, X, names=["inducing", "X"])
    check(rng.standard_normal(N), covariance.kff_vjp, diagonal, X, names=["X"])
    K_bar = symmetric(rng, N)
    check(K_bar, covariance.Kff_vjp, lambda k, x: weighted.Kff(k, x, x), X, names=["X"])
    K_bar = rng.standard_normal((N, N - 2))
    check(K_bar, covariance.Kff_vjp, weighted.Kff, X, Y, names=["X", "other"])


def test_gradients_of_a_bound(rng):
    covariance, Z, _, X, _ = problem(rng, "sum")
    q = fs.Whitened(rng.standard_normal(M), np.eye(M))
    model, Y = fs.SVGP(covariance, Z, q, fs.Gaussian(0.2)), rng.standard_normal(N)
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y), model, grad)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y), X, X_bar)


def test_sums_of_the_exact_process(rng):
    """With all points as inducing inputs the collapsed bound is the evidence of the sums."""
    covariance, _, _, X, _ = problem(rng, "rbf")
    Y, noise = rng.standard_normal(N), 0.3
    points = X.reshape(-1, D + 1)[:, :-1].copy()
    K = weighted.Kff(covariance, X, X) + noise * np.eye(N)
    evidence = -0.5 * (Y @ np.linalg.solve(K, Y) + np.linalg.slogdet(K)[1] + N * np.log(2 * np.pi))
    bound = fs.collapsed_bound(fs.SGPR(covariance, points, noise), X, Y, jitter=1e-10)
    np.testing.assert_allclose(bound, evidence, atol=1e-6)


def test_paths_are_sums_of_paths_of_the_part(rng):
    """A path at a row is the weighted sum of a path of g at its points, and so is its slope."""
    covariance, Z, _, X, _ = problem(rng, "matern52")
    q = fs.Whitened(rng.standard_normal(M), 0.3 * np.eye(M))
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.2))
    whole = fs.sample_paths(model, 4, rng=0)
    part = fs.sample_paths(fs.replace(model, covariance=covariance.part), 4, rng=0)
    rows = X.reshape(N, P, D + 1)
    g = part(rows[..., :-1].reshape(-1, D)).reshape(4, N, P)
    np.testing.assert_allclose(whole(X), (g * rows[..., -1]).sum(-1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("own", [False, True])
def test_features_reversed(rng, own):
    covariance, _, _, X, _ = problem(rng, "rbf")
    features = covariance.features(8, np.arange(2, dtype=np.uint64) if own else 3, X.shape[1])
    w = rng.standard_normal((2, 1, features.size))
    X = np.stack([X, X + 0.3]) if own else X
    out_bar = rng.standard_normal((2, 1, N))
    bar = features.multiply_vjp(out_bar, X, w)
    assert_gradient(lambda moved: float((out_bar * features.multiply(moved, w)).sum()), X, bar)


def test_preferences_are_learnt(rng):
    """q and Z of a model of pairs predict the utility g under ``covariance.part``."""
    A, B = rng.uniform(-2, 2, (2, 300, 1))
    utility = lambda x: np.sin(2 * x[:, 0])  # noqa: E731
    Y = (utility(A) + 0.2 * rng.standard_normal(300) > utility(B)).astype(float)
    covariance = fs.covariances.Weighted(fs.RBF(2.0, 0.7), points=2)
    Z = np.linspace(-2, 2, 12)[:, None]
    q = fs.Whitened(np.zeros(12), np.eye(12))
    model, X = fs.SVGP(covariance, Z, q, fs.BernoulliProbit()), fs.covariances.pairs(A, B)
    for _ in range(15):
        model, _ = fs.natural_step(model, X, Y, step_size=0.5)
    at = np.linspace(-2, 2, 50)[:, None]
    g = fs.predict_f(fs.replace(model, covariance=model.covariance.part), at)[0]
    assert np.corrcoef(g, utility(at))[0, 1] > 0.95
    swapped = fs.predict_f(model, fs.covariances.pairs(B, A))[0]
    np.testing.assert_allclose(swapped, -fs.predict_f(model, X)[0], atol=1e-8)


@pytest.mark.parametrize(
    "covariance, D, message",
    [
        (fs.covariances.Weighted(fs.RBF(), points=0), 4, "`points of Weighted` must be a whole"),
        (fs.covariances.Weighted(fs.RBF(), points=3), 4, "4 columns, but rows of 3 points"),
        (fs.covariances.Weighted(fs.RBF(), points=4), 4, "4 columns, but rows of 4 points"),
        (fs.covariances.Weighted(1.0, points=2), 4, "`part` must be a covariance"),
        (
            fs.covariances.Weighted(fs.RBF(1.0, np.ones(3)), points=2),
            4,
            r"Weighted.part: RBF: `lengthscales` has shape \(3,\)",
        ),
        (
            fs.covariances.Weighted(fs.covariances.Weighted(fs.RBF(), points=2), points=2),
            10,
            "inducing variables of its own",
        ),
        (fs.covariances.Weighted(fs.covariances.Categorical(), points=2), 4, "reads codes"),
    ],
)
def test_bad_fields(covariance, D, message):
    with pytest.raises((TypeError, ValueError), match=message):
        covariance.check_dim(D)


def test_bad_rows(rng):
    covariance, Z, _, X, _ = problem(rng, "rbf")
    model = fs.SGPR(covariance, Z, 0.1)
    with pytest.raises(ValueError, match="`X` has 8 columns.*9"):
        fs.collapsed_bound(model, X[:, :-1], np.zeros(N))
    with pytest.raises(ValueError, match=r"pairs: `A` has shape \(6, 9\) and `B` \(5, 2\)"):
        fs.covariances.pairs(X, Z)
