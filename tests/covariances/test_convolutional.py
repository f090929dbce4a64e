"""Compare convolutional covariances with loops over all pairs of patches, alone and in models."""

import tracemalloc

import numpy as np
import pytest
from oracles import covariances, patches
from support import definitions, posterior_problems as problems
from support.derivatives import assert_gradient
from support.numerics import assert_adjoint, exactly

import fastsvgp as fs
from fastsvgp.kernels.cpu.common import scratch
from fastsvgp.records import leaves, replace_at, tree_map

N, M, D = 3, 5, 12  # images, inducing patches, numbers of a patch
# 3 x 2 windows; the last column is in none
SHAPE = dict(image_shape=(7, 5, 2), patch_shape=(3, 2), stride=2)
P, COLUMNS = 6, 70

PATCH = {
    "rbf": lambda rng: fs.RBF(1.2, 3.0),
    "matern52": lambda rng: fs.Matern52(0.7, rng.uniform(2, 4, D)),
    "sum": lambda rng: fs.Matern32(0.7, rng.uniform(2, 4, D)) + fs.Linear(0.1) * fs.RBF(1.1, 3.0),
}
TABLE = {
    f"{name}{', places' * bool(location)}": (make, location)
    for name, make in PATCH.items()
    for location in (None, lambda rng: fs.Matern52(1.3, rng.uniform(1, 3, 2)) + fs.Constant(0.2))
}
everything = pytest.mark.parametrize("name", TABLE)


def problem(rng, name, scalar=False, dtype=np.float64):
    """``(covariance, Z, other, X, others)``."""
    make, location = TABLE[name]
    weights = 0.4 if scalar else rng.standard_normal(P)
    covariance = fs.Convolutional(make(rng), weights, location and location(rng), **SHAPE)
    sets = [rng.standard_normal((m, D)) for m in (M, M - 1)]
    if location:
        sets = [np.hstack([Z, rng.uniform(0, 6, (len(Z), 2))]) for Z in sets]
    arrays = *sets, rng.standard_normal((N, COLUMNS)), rng.standard_normal((N - 1, COLUMNS))
    return tree_map(lambda a: np.asarray(a, dtype)[()], covariance), *(
        a.astype(dtype) for a in arrays
    )


def symmetric(rng, n):
    A = rng.standard_normal((n, n))
    return A + A.T


def diagonal(covariance, X):
    return patches.Kff(covariance, X, X).diagonal()


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_blocks(rng, name, dtype):
    covariance, Z, V, X, Y = problem(rng, name, dtype=dtype)
    covariance.check_dim(covariance.num_columns(Z))
    assert covariance.num_columns(Z) == COLUMNS and covariance.num_inducing(Z) == (M,)
    exact, u, v, x, y = (
        exactly(a)[0] if isinstance(a, np.ndarray) else a for a in (covariance, Z, V, X, Y)
    )
    size = np.abs(diagonal(covariance, X)).max() + 1
    for found, truth in (
        (covariance.Kuu(Z), patches.Kuu(exact, u, u)),
        (covariance.Kuu(Z, V), patches.Kuu(exact, u, v)),
        (covariance.Kuf(Z, X), patches.Kuf(exact, u, x)),
        (covariance.kff(X), diagonal(exact, x)),
        (covariance.Kff(X), patches.Kff(exact, x, x)),
        (covariance.Kff(X, Y), patches.Kff(exact, x, y)),
    ):
        assert found.dtype == dtype
        np.testing.assert_allclose(found, truth, rtol=0, atol=200 * np.finfo(dtype).eps * size)
    K = np.block(
        [[covariance.Kuu(Z), covariance.Kuf(Z, X)], [covariance.Kuf(Z, X).T, covariance.Kff(X)]]
    ).astype(float)
    assert np.linalg.eigvalsh(K).min() > -100 * np.finfo(dtype).eps * np.abs(K).max()
    np.testing.assert_array_equal(covariance.Kff(X), covariance.Kff(X).T)


@everything
@pytest.mark.parametrize("scalar", [True, False])
def test_each_block_reversed(rng, name, scalar, tune):
    """Check every field and input by differences of the definition, in chunks and singly."""
    tune(window_chunk_numbers=3 * D, window_range=4)
    covariance, Z, V, X, Y = problem(rng, name, scalar)
    paths = [path for path, _, value in leaves(covariance) if value is not None]
    fields = [value for _, _, value in leaves(covariance) if value is not None]

    def check(K_bar, rule, of, *arguments, names):
        bars = rule(K_bar, *([] if rule == covariance.kff_vjp else [None]), *arguments)
        found = dict((path, bar) for path, _, bar in leaves(bars[0]))

        def f(*values):
            moved = covariance
            for path, value in zip(paths, values, strict=False):
                moved = replace_at(moved, path, value)
            return of(moved, *values[len(paths) :])

        inputs = [bar for bar in bars[1:] if bar is not None]
        assert_adjoint(
            f,
            exactly(*fields, *arguments),
            (*(found[path] for path in paths), *inputs),
            K_bar,
            rng,
            h=1e-4,
        )
        if len(arguments) == 1 and len(names) == 2:
            arguments = (*arguments, None)
        for i, one in enumerate(names):
            alone = rule(
                K_bar, *([] if rule == covariance.kff_vjp else [None]), *arguments, need=(one,)
            )
            assert [bar is None for bar in alone] == [j != i + 1 for j in range(len(bars))] or bars[
                i + 1
            ] is None
            if bars[i + 1] is not None:
                np.testing.assert_allclose(alone[i + 1], bars[i + 1], rtol=1e-9, atol=1e-11)
        for path in paths:
            alone = rule(
                K_bar,
                *([] if rule == covariance.kff_vjp else [None]),
                *arguments,
                need=(f"covariance.{path}",),
            )
            assert all(bar is None for bar in alone[1:])
            got = {p: bar for p, _, bar in leaves(alone[0]) if bar is not None}
            np.testing.assert_allclose(got.pop(path), found[path], rtol=1e-9, atol=1e-11)
            assert not got

    check(
        symmetric(rng, M),
        covariance.Kuu_vjp,
        lambda k, u: patches.Kuu(k, u, u),
        Z,
        names=("inducing", "other"),
    )
    check(
        rng.standard_normal((M, M - 1)),
        covariance.Kuu_vjp,
        patches.Kuu,
        Z,
        V,
        names=("inducing", "other"),
    )
    check(
        rng.standard_normal((M, N)), covariance.Kuf_vjp, patches.Kuf, Z, X, names=("inducing", "X")
    )
    check(rng.standard_normal(N), covariance.kff_vjp, diagonal, X, names=("X",))
    check(
        symmetric(rng, N),
        covariance.Kff_vjp,
        lambda k, x: patches.Kff(k, x, x),
        X,
        names=("X", "other"),
    )
    check(
        rng.standard_normal((N, N - 1)), covariance.Kff_vjp, patches.Kff, X, Y, names=("X", "other")
    )


@everything
def test_no_images_and_two_sets(rng, name):
    covariance, Z, _, X, _ = problem(rng, name)
    none = covariance.blocks(Z, X[:0])
    bars = covariance.blocks_vjp(none, none, Z, X[:0], ("covariance", "inducing", "X"))
    assert none.Kuf.shape == (M, 0) and none.kff.shape == (0,) and bars[2].shape == (0, COLUMNS)
    assert all(
        np.shape(bar) == np.shape(a)
        for (_, _, bar), (_, _, a) in zip(leaves(bars[0]), leaves(covariance), strict=True)
    )
    pair = fs.InducingPair(Z[:2], Z[2:])
    assert covariance.num_inducing(pair) == (2, M - 2) and covariance.num_columns(pair) == COLUMNS
    blocks = covariance.blocks(Z, X)
    np.testing.assert_array_equal(covariance.Kuf(pair, X), blocks.Kuf)
    of_pair = covariance.blocks_vjp(blocks, blocks, pair, X)[1]
    of_stack = covariance.blocks_vjp(blocks, blocks, Z, X)[1]
    np.testing.assert_allclose(np.vstack([of_pair.Z, of_pair.O]), of_stack, rtol=1e-12)


@pytest.mark.parametrize(
    "patch", [fs.RBF(1.2, 3.0), fs.Matern12(0.8, 2.0), fs.RBF(1.1, 2.0) * fs.Linear(0.3)], ids=str
)
def test_patch_of_image_size_gives_the_patch_covariance(rng, patch):
    covariance = fs.Convolutional(patch, 1.0, image_shape=(3, 4), patch_shape=(3, 4))
    Z, X = rng.standard_normal((M, D)), rng.standard_normal((N, D))
    ours, plain = covariance.blocks(Z, X, full_cov=True), patch.blocks(Z, X, full_cov=True)
    for (_, _, a), (_, _, b) in zip(leaves(ours), leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    bar = tree_map(lambda a: np.sin(5 * a), plain)
    ours, plain = (
        k.blocks_vjp(bar, b, Z, X, ("covariance", "inducing", "X"))
        for k, b in ((covariance, ours), (patch, plain))
    )
    for (_, _, a), (_, _, b) in zip(
        leaves(ours[0].patch_covariance), leaves(plain[0]), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    for a, b in zip(ours[1:], plain[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


# --- in models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("posterior", problems.ROWS)
def test_bound_and_gradient(rng, posterior):
    covariance, Z, _, X, _ = problem(rng, "rbf, places")
    model = fs.SVGP(covariance, Z, None, fs.Gaussian(0.3))
    model, more = problems.in_model(rng, posterior, model)
    Y = rng.standard_normal(N)
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, Y, num_data=7.0, jitter=problems.JITTER, inputs=True, **more
    )
    np.testing.assert_allclose(
        value,
        float(definitions.elbo(model, X, Y, 7.0 / N, problems.JITTER, **more).real),
        rtol=1e-9,
    )
    assert_gradient(
        lambda m: definitions.elbo(m, X, Y, 7.0 / N, problems.JITTER, **more),
        model,
        grad,
        rng,
        1e-8,
    )

    def of_X(x):
        return definitions.elbo(model, x.reshape(X.shape), Y, 7.0 / N, problems.JITTER, **more)

    direction = rng.standard_normal(X.shape)
    slope = (of_X(X + 1e-30j * direction)).imag / 1e-30
    np.testing.assert_allclose(
        (X_bar * direction).sum(), slope, rtol=1e-8, atol=1e-8 * np.linalg.norm(X_bar)
    )


@pytest.mark.parametrize("posterior", problems.PAIRS)
def test_bound_of_two_sets(rng, posterior):
    covariance, Z, _, X, _ = problem(rng, "sum")
    q, pair, Y = (
        problems.PAIRS[posterior].make(rng, np.eye(M)),
        fs.InducingPair(Z[:4], Z[4:]),
        rng.standard_normal(N),
    )
    model = fs.SVGP(covariance, pair, q, fs.Gaussian(0.3))
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=problems.JITTER)

    def definition(m):
        return definitions.elbo(
            fs.replace(m, inducing=np.concatenate([m.inducing.Z, m.inducing.O])),
            X,
            Y,
            1,
            problems.JITTER,
        )

    np.testing.assert_allclose(value, float(definition(model).real), rtol=1e-9)
    assert_gradient(definition, model, grad, rng, 1e-8)


def test_predictions_files_and_training(rng, tmp_path):
    covariance, Z, _, X, _ = problem(rng, "matern52, places")
    model = fs.SVGP(
        covariance,
        Z,
        fs.Whitened(rng.standard_normal(M), np.eye(M)),
        fs.Gaussian(0.1),
        fs.ConstantMean(0.5),
    )
    mean, cov = fs.predict_f(model, X, full_cov=True)
    each, var = fs.predict_f(model, X)
    np.testing.assert_allclose(mean, each, rtol=1e-12)
    np.testing.assert_allclose(np.diag(cov), var, rtol=1e-9)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(fs.predict_f(loaded, X)[0], each)
    fitted, _ = fs.fit(model, X, rng.standard_normal(N), steps=3, optimiser=fs.adam(0.05))
    assert (fitted.covariance.weights != model.covariance.weights).all()


@pytest.mark.parametrize("name", ["rbf", "sum", "rbf, places"])
def test_memory_does_not_grow_with_the_patches(rng, name):
    """Memory is 2^21 numbers besides X and blocks; N P M is nearly twice that, and P P more."""
    _, location = TABLE[name]
    windows = 39 * 39
    place = location and fs.Matern52(1.3, 2.0)
    covariance = fs.Convolutional(
        fs.RBF(1.2, 3.0) if name != "sum" else fs.RBF(1.2, 3.0) + fs.Linear(),
        1.0,
        place,
        image_shape=(40, 41),
        patch_shape=(2, 3),
    )
    Z, X = rng.standard_normal((260, 8 if place else 6)), rng.standard_normal((10, 40 * 41))
    assert 260 * 10 * windows > 1.8 * 2**21 and windows**2 > 2**21

    def step():
        blocks = covariance.blocks(Z, X)
        covariance.blocks_vjp(blocks, blocks, Z, X)

    step()
    scratch.clear()
    tracemalloc.start()
    try:
        step()
        peak = tracemalloc.get_traced_memory()[1] / 8
    finally:
        tracemalloc.stop()
    assert peak < 2**21 + 4 * (260 * 260 + 260 * 10)


# --- initial values and errors ------------------------------------------------------------------


def test_inducing_patches_are_distinct(rng):
    X = rng.standard_normal((30, 7, 5, 2))
    X[:, :5] = 0.0  # black patches are one patch
    X, names = X.reshape(30, -1), ("rbf", "rbf, places")
    for covariance in (problem(rng, name)[0] for name in names):
        columns = D if covariance.location_covariance is None else D + 2
        Z = fs.patch_inducing(X, 12, covariance, rng=0)
        assert Z.shape == (12, columns) and len(np.unique(Z, axis=0)) == 12
        np.testing.assert_array_equal(Z, fs.patch_inducing(X, 12, covariance, rng=0))
        pair = fs.patch_inducing(X.astype(np.float32), (7, 5), covariance, rng=0)
        assert (
            pair.Z.shape == (7, columns)
            and pair.O.shape == (5, columns)
            and pair.O.dtype == np.float32
        )
        if columns > D:
            places = Z[:, D:]  # means of scaled ones, so that rounding shows
            assert (
                places.min() > -1e-12
                and (places <= np.array([4, 2]) + 1e-12).all()
                and np.ptp(places, axis=0).min() > 0
            )
    assert (np.abs(fs.patch_inducing(X, 12, problem(rng, "rbf")[0], rng=0)).max(1) == 0).sum() <= 1
    with pytest.raises(ValueError, match="400 inducing patches .* only 1 distinct"):
        fs.patch_inducing(np.zeros((30, COLUMNS)), 400, covariance=problem(rng, "rbf")[0])
    with pytest.raises(TypeError, match="`covariance` must be a fastsvgp.Convolutional, got RBF"):
        fs.patch_inducing(X, 12, fs.RBF())


def test_extracted_patches(rng):
    X = rng.standard_normal((N, COLUMNS))
    found = fs.extract_patches(X, SHAPE["image_shape"], SHAPE["patch_shape"], SHAPE["stride"])
    np.testing.assert_array_equal(found, patches.gather(X, (7, 5, 2, 3, 2, 2)))
    assert fs.extract_patches(np.arange(12).reshape(1, 12), (3, 4), [2, 2]).shape == (1, 6, 4)


def bad(**changes):
    return dict(dict(patch_covariance=fs.RBF(1.0, 3.0), weights=0.5, **SHAPE), **changes)


@pytest.mark.parametrize(
    "changes, kind, message",
    [
        (
            dict(image_shape=(7, 6, 2)),
            ValueError,
            r"`X` has 70 columns where an image \(7, 6, 2\) has 84",
        ),
        (
            dict(image_shape=7),
            ValueError,
            r"`image_shape` must be \(H, W\) or \(H, W, C\), whole numbers, got 7",
        ),
        (
            dict(image_shape=(7, 5, 0)),
            ValueError,
            "`image_shape` must be a whole number of at least 1, got 0",
        ),
        (
            dict(patch_shape=(8, 2)),
            ValueError,
            r"`patch_shape` \(8, 2\) is larger than `image_shape` \(7, 5, 2\)",
        ),
        (
            dict(patch_shape=(3, 3)),
            ValueError,
            "`inducing` has 12 columns, but a patch of Convolutional has 3 x 3 x 2 = 18",
        ),
        (
            dict(location_covariance=fs.RBF()),
            ValueError,
            "`inducing` has 12 columns, .* = 12 numbers and 2 for its location",
        ),
        (dict(stride=0), ValueError, "`stride` must be a whole number of at least 1, got 0"),
        (
            dict(weights=np.ones(5)),
            ValueError,
            r"`weights` has shape \(5,\), but there are 6 patches",
        ),
        (
            dict(patch_covariance=fs.RBF(1.0, np.ones(3))),
            ValueError,
            r"patch_covariance: RBF: `lengthscales` has shape \(3,\)",
        ),
        (
            dict(patch_covariance=2.0),
            TypeError,
            "Convolutional.patch_covariance: `patch_covariance` must be",
        ),
    ],
    ids=str,
)
def test_bad_models_are_named(rng, changes, kind, message):
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(
        fs.Convolutional(**bad(**changes)), rng.standard_normal((M, D)), q, fs.Gaussian(0.1)
    )
    with pytest.raises(kind, match=message):
        fs.elbo(model, rng.standard_normal((N, COLUMNS)), np.zeros(N))


def test_mismatched_shapes_are_refused(rng):
    covariance, Z, _, X, _ = problem(rng, "rbf")
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.1))
    for composed in (covariance + fs.RBF(), fs.RBF() * covariance):
        with pytest.raises(
            TypeError, match="a Convolutional has inducing variables of its own .* use it alone"
        ):
            fs.elbo(fs.replace(model, covariance=composed), X, np.zeros(N))
    nested = fs.Convolutional(covariance, 1.0, **SHAPE)
    with pytest.raises(
        TypeError,
        match="Convolutional.patch_covariance: a Convolutional has inducing variables of its own",
    ):
        fs.elbo(fs.replace(model, covariance=nested), X, np.zeros(N))
    twice = Z.copy()
    twice[3] = twice[1]
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`inducing\[3\]` and `inducing\[1\]` are the same inputs"
    ):
        fs.elbo(fs.replace(model, inducing=twice), X, np.zeros(N), jitter=0.0)
    with pytest.raises(ValueError, match="`Xs` has 69 columns where an image"):
        fs.predict_f(model, X[:, 1:])
    with pytest.raises(
        TypeError, match="inducing inputs are patches, not rows of X; use fastsvgp.patch_inducing"
    ):
        fs.greedy_variance_inducing(X, 2, covariance)
    with pytest.raises(ValueError, match="`X` has 69 columns, but an image of `image_shape`"):
        fs.extract_patches(X[:, 1:], (7, 5, 2), (3, 2))


def test_oracle_matches_one_image_written_out(rng):
    """Write out the loops of the oracle for one image of two patches."""
    covariance = fs.Convolutional(
        fs.RBF(1.3, 2.0), np.array([0.5, 2.0]), image_shape=(1, 3), patch_shape=(1, 2)
    )
    x, z = rng.standard_normal((1, 3)), rng.standard_normal((1, 2))

    def k(a, b):
        return covariances.stationary("rbf", a[None], b[None], 1.3, 2.0)[0, 0]

    a, b = x[0, :2], x[0, 1:]
    np.testing.assert_allclose(
        covariance.Kuf(z, x), [[0.5 * k(z[0], a) + 2 * k(z[0], b)]], rtol=1e-13
    )
    np.testing.assert_allclose(
        covariance.kff(x), [0.25 * k(a, a) + 2 * k(a, b) + 4 * k(b, b)], rtol=1e-13
    )
