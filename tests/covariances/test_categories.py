"""Covariances of codes: their entries, gradients, and what they ask of inputs."""

import numpy as np
import pytest
from support.gp_problems import lower_factor
from support.numerics import symmetric

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

C, M, N = 4, 7, 40


def coregion(rng):
    return fs.covariances.Coregion(rng.standard_normal((C, 2)), rng.uniform(0.2, 1.0, C))


COVARIANCES = {
    "coregion": lambda rng: coregion(rng).on(1),
    "categorical": lambda rng: fs.covariances.Categorical(1.3, rng.uniform(0.5, 2.0, 2)).on(1, 2),
    "categorical shared": lambda rng: fs.covariances.Categorical(1.3, 0.7).on(2, 1),
    "outputs": lambda rng: coregion(rng).on(1) * fs.RBF(0.8, 1.1).on(0) + fs.Linear(0.3).on(0),
    "both": lambda rng: (
        (fs.covariances.Categorical(0.7).on(2) + coregion(rng).on(1)) * fs.Matern32().on(0)
    ),
}
every = pytest.mark.parametrize("name", COVARIANCES)


def rows(rng, N):
    """A column of numbers, one of C codes and one of three."""
    return np.column_stack(
        [rng.uniform(-2, 2, N), rng.integers(0, C, N), rng.integers(0, 3, N)]
    ).astype(float)


def model(rng, covariance, Z):
    posterior = fs.Whitened(rng.standard_normal(len(Z)), lower_factor(rng, len(Z)))
    return fs.SVGP(covariance, Z, posterior, fs.Gaussian(0.1))


def test_entries(rng):
    X, Z = rows(rng, N), rows(rng, M)
    outputs = coregion(rng)
    B = outputs.weights @ outputs.weights.T + np.diag(outputs.own)
    i, j = (A[:, 1].astype(int) for A in (X, Z))
    np.testing.assert_allclose(outputs.on(1).matrix(X, Z), B[np.ix_(i, j)], rtol=1e-14)
    ours = fs.covariances.Categorical(1.3, np.array([0.5, 2.0])).on(1, 2)
    differ = X[:, None, 1:] != Z[None, :, 1:]
    expected = 1.3 * np.exp(-(differ / [0.5, 2.0]).sum(-1))
    np.testing.assert_allclose(ours.matrix(X, Z), expected, rtol=1e-14)


@every
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_matrix_and_diag(rng, name, dtype):
    covariance = fs.records.tree_map(
        lambda leaf: np.asarray(leaf, dtype)[()], COVARIANCES[name](rng)
    )
    X = rows(rng, N).astype(dtype)
    K = covariance.matrix(X)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_allclose(np.diag(K), covariance.diag(X), rtol=8 * np.finfo(dtype).eps)
    assert K.dtype == covariance.diag(X).dtype == dtype
    bar, X_bar, _ = covariance.matrix_vjp(symmetric(rng, N, dtype), K, X)
    other, _ = covariance.diag_vjp(np.ones(N, dtype), X)
    leaves = [value for tree in (bar, other) for _, _, value in fs.records.leaves(tree)]
    assert {value.dtype for value in (*leaves, X_bar)} == {np.dtype(dtype)}
    assert not X_bar[:, 1:].any()  # the gradient in codes


@every
def test_gradients_of_a_bound(rng, name):
    Z, X = rows(rng, M), rows(rng, N)
    whole = model(rng, COVARIANCES[name](rng), Z)
    Y = rng.standard_normal(N)
    _, grad, X_bar = fs.elbo_and_grad(whole, X, Y, inputs=True, jitter=1e-2)
    assert_gradient(
        lambda moved: fs.elbo(moved, X, Y, jitter=1e-2), whole, grad, wrt=("covariance",)
    )
    for numbers, bar, value in (
        (
            Z[:, 0],
            grad.inducing,
            lambda Z: fs.elbo(fs.replace(whole, inducing=Z), X, Y, jitter=1e-2),
        ),
        (X[:, 0], X_bar, lambda X: fs.elbo(whole, X, Y, jitter=1e-2)),
    ):
        codes = Z[:, 1:] if len(numbers) == M else X[:, 1:]
        assert not bar[:, 1:].any()

        def of_numbers(moved, codes=codes, value=value):
            return value(np.column_stack([moved, codes]))

        if bar.any():
            assert_gradient(of_numbers, numbers, bar[:, 0])
        else:
            assert of_numbers(numbers + 1) == of_numbers(numbers)


@every
def test_single_fields(rng, name):
    covariance, X, Z = COVARIANCES[name](rng), rows(rng, N), rows(rng, M)
    K_bar = rng.standard_normal((N, M))
    whole, *_ = covariance.matrix_vjp(K_bar, None, X, Z)
    for path, _, value in fs.records.leaves(whole):
        bar, *inputs = covariance.matrix_vjp(K_bar, None, X, Z, (f"covariance.{path}",))
        found = {p: v for p, _, v in fs.records.leaves(bar) if v is not None}
        np.testing.assert_allclose(found[path], value, rtol=1e-12)
        assert inputs == [None, None]
    assert covariance.matrix_vjp(K_bar, None, X, Z, ("X2",))[:2] == (None, None)


def test_columns_of_codes():
    outputs = fs.covariances.Coregion(np.ones((3, 1)), np.ones(3))
    assert fs.RBF().code_columns(4) == {}
    assert outputs.code_columns(1) == {0: 3}
    assert fs.covariances.Categorical().code_columns(2) == {0: None, 1: None}
    both = outputs.on(2) * fs.covariances.Categorical().on(2, 0) + fs.covariances.Coregion(
        np.ones((2, 1)), np.ones(2)
    ).on(2)
    assert both.code_columns(4) == {2: 2, 0: None}
    assert fs.covariances.ChangePoints((fs.RBF(), outputs.on(1)), [0.0]).code_columns(2) == {1: 3}


@pytest.mark.parametrize("wrong, shown", [(0.5, "0.5"), (-1.0, "-1"), (4.0, "4")])
def test_other_numbers_are_refused(rng, wrong, shown):
    X, Z, Y = rows(rng, N), rows(rng, M), np.zeros(N)
    start = model(rng, COVARIANCES["outputs"](rng), Z)
    message = (
        rf"contains {shown} in a column of codes at index \(3, 1\); these must be whole numbers"
        " 0 ... 3: "
    )
    X[3, 1] = wrong
    kinds = [start, fs.SGPR(start.covariance, Z, 0.1)]
    for kind, function in zip(kinds, (fs.elbo, fs.collapsed_bound), strict=True):
        with pytest.raises(ValueError, match=f"`X` {message}"):
            function(kind, X, Y)
        Z = start.inducing.copy()
        Z[3, 1] = wrong
        with pytest.raises(ValueError, match=f"`inducing` {message}.*kmeans"):
            function(fs.replace(kind, inducing=Z), rows(rng, N), Y)
    with pytest.raises(ValueError, match=f"`Xs?` {message}"):
        fs.predict_f(start, X)
    weights = fs.qsgp.ChevronWeights(np.zeros(M), np.ones((M, 1)), np.ones(M - 1))
    basis = fs.qsgp.InducingBasis(start.covariance, start.inducing)
    with pytest.raises(ValueError, match=f"`X` {message}"):
        fs.qsgp.bound(fs.QSGP(basis, weights, start.likelihood), X, Y)
    basis = fs.qsgp.InducingBasis(start.covariance, Z)
    with pytest.raises(ValueError, match=f"`basis.inducing` {message}"):
        fs.qsgp.bound(fs.QSGP(basis, weights, start.likelihood), rows(rng, N), Y)
    deep = fs.DeepGP(
        (fs.layers.Layer(*[getattr(start, n) for n in ("covariance", "inducing", "posterior")]),),
        start.likelihood,
    )
    with pytest.raises(ValueError, match=f"`X` {message}"):
        fs.elbo(deep, X, Y)


@pytest.mark.parametrize(
    "covariance, message",
    [
        (
            fs.covariances.Coregion(np.ones((3, 2)), np.ones(2)),
            r"`weights` must have shape \(C, R\) and `own`",
        ),
        (
            fs.covariances.Coregion(np.ones(3), np.ones(3)),
            r"`weights` must have shape \(C, R\) and `own`",
        ),
        (
            fs.covariances.Coregion(np.ones((3, 2)), np.ones(3)),
            r"D = 2 columns; name the column: Coregion",
        ),
        (fs.covariances.Categorical(1.0, np.ones(3)), "Categorical: `lengthscales` has shape"),
    ],
)
def test_shapes_are_checked(covariance, message):
    with pytest.raises(ValueError, match=message):
        covariance.check_dim(2)


def test_kmeans_chooses_rows_of_codes(rng):
    X = rows(rng, 200)
    covariance = COVARIANCES["outputs"](rng)
    for M in (20, (12, 8)):
        Z = fs.inducing.kmeans(X, M, rng=0, covariance=covariance)
        Z = Z if M == 20 else np.concatenate([Z.Z, Z.O])
        assert all((X == z).all(1).any() for z in Z) and len(np.unique(Z, axis=0)) == 20
    np.testing.assert_array_equal(
        fs.inducing.kmeans(X, 20, rng=0, covariance=fs.RBF()), fs.inducing.kmeans(X, 20, rng=0)
    )


def test_codes_stay_in_training(rng):
    X = rows(rng, 100)
    Z = fs.inducing.kmeans(X, M, rng=0, covariance=COVARIANCES["both"](rng))
    start = model(rng, COVARIANCES["both"](rng), Z)
    done = fs.fit(start, X, rng.standard_normal(100), steps=5, batch_size=20, rng=0)[0]
    np.testing.assert_array_equal(done.inducing[:, 1:], Z[:, 1:])
    assert (done.inducing[:, 0] != Z[:, 0]).any()


def test_several_functions_start_at_rows_of_codes(rng):
    X = np.column_stack([rng.uniform(0, 1, 100), rng.integers(0, 3, 100)])

    def covariance(variance, lengthscales):
        return fs.RBF(variance, lengthscales[:1]).on(0) * fs.covariances.Categorical().on(1)

    multi = fs.layers.multi_gp(
        X, rng.standard_normal((100, 2)), 2, M=9, covariance=covariance, rng=0
    )
    assert set(multi.inducing[:, 1]) <= {0.0, 1.0, 2.0}
    assert all((X == z).all(1).any() for z in multi.inducing)


def test_kmeans_refuses_what_is_no_covariance(rng):
    with pytest.raises(TypeError, match="`covariance` must be a record such as .*, got int"):
        fs.inducing.kmeans(rows(rng, 20), 3, covariance=3)
