"""Precisions in closed form, relevance vectors, and pruned models."""

import numpy as np
import pytest
from support.weight_problems import basis_of, dense, weights

import fastsvgp as fs

JITTER = 1e-2


def model_of(rng, m, k, likelihood=None, name="relevance"):
    return fs.QSGP(
        basis_of(rng, name, m), weights(rng, m, k), likelihood or fs.Gaussian(variance=0.2)
    )


def single(tree):
    return fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], tree)


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_the_optimal_precision_is_where_its_gradient_is_zero(rng, k):
    X, Y = rng.standard_normal((13, 2)), (rng.standard_normal(13) > 0) * 1.0
    for likelihood in (fs.Gaussian(variance=0.2), fs.likelihoods.BernoulliLogit()):
        model = model_of(rng, 8, k, likelihood)
        best = fs.qsgp.optimal_precision(model)
        C = dense(model.posterior)
        np.testing.assert_allclose(
            best.basis.precision, 1 / (model.posterior.mean**2 + np.diag(C @ C.T)), rtol=1e-12
        )
        value, grad = fs.qsgp.bound_and_grad(best, X, Y, wrt="basis.precision")
        assert np.abs(grad.basis.precision * best.basis.precision).max() < 1e-12
        for factor in (0.9, 1.1):
            assert (
                fs.qsgp.bound(
                    fs.records.replace_at(best, "basis.precision", factor * best.basis.precision),
                    X,
                    Y,
                )
                < value
            )
        small = fs.qsgp.optimal_precision(single(model))
        assert small.basis.precision.dtype == np.float32
        np.testing.assert_allclose(small.basis.precision, best.basis.precision, rtol=1e-5)


@pytest.mark.parametrize("k", [0, 3])
def test_no_update_lowers_the_bound(rng, k):
    """Updates of mean, diagonal, precisions in turn; precisions of irrelevant functions grow."""
    X = rng.uniform(-4, 4, (40, 1))
    Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(40)
    model = fs.QSGP(
        fs.qsgp.RelevanceBasis(fs.RBF(1.0, 1.0), X, np.ones(40)),
        weights(rng, 40, k),
        fs.Gaussian(variance=0.01),
    )
    bounds = [fs.qsgp.bound(model, X, Y)]
    for _ in range(10):
        for turn in (
            lambda model: fs.qsgp.optimal_weights(model, X, Y, iterations=20)[0],
            lambda model: fs.qsgp.optimal_diagonal(model, X),
            fs.qsgp.optimal_precision,
        ):
            model = turn(model)
            bounds.append(fs.qsgp.bound(model, X, Y))
    steps = np.diff(bounds)
    assert steps.min() > -1e-9 * abs(bounds[-1]) and steps[3:6].sum() > 0
    if k == 0:  # dense columns that stay hold the precisions down
        assert 0 < len(fs.qsgp.relevance_vectors(model, 1e3)) < 30


def test_relevance_vectors(rng):
    model = model_of(rng, 5, 2)
    model = fs.records.replace_at(model, "basis.precision", np.array([1.0, 1e4, 2e5, 9999.0, 3.0]))
    found = fs.qsgp.relevance_vectors(model)
    assert found.dtype.kind == "i"
    np.testing.assert_array_equal(found, [0, 3, 4])
    np.testing.assert_array_equal(fs.qsgp.relevance_vectors(model, threshold=2.0), [0])
    np.testing.assert_array_equal(fs.qsgp.relevance_vectors(single(model), 1e5), [0, 1, 3, 4])
    assert fs.qsgp.relevance_vectors(model, 0.5).shape == (0,)
    for threshold in (0.0, -1.0):
        with pytest.raises(ValueError, match="`threshold` must be positive"):
            fs.qsgp.relevance_vectors(model, threshold)
    with pytest.raises(TypeError, match="`threshold` must be a number"):
        fs.qsgp.relevance_vectors(model, "1e4")


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_pruned_models_have_the_marginal_of_q(rng, k):
    """For any functions removed beyond the first k rows."""
    model, Xs = model_of(rng, 8, k), rng.standard_normal((6, 2))
    C = dense(model.posterior)
    rows = np.array([*range(k), *range(k + 1, 8, 2)]) if k < 8 else np.arange(8)
    pruned = fs.qsgp.prune(model, rows[::-1])
    kept = dense(pruned.posterior)
    np.testing.assert_allclose(kept @ kept.T, (C @ C.T)[np.ix_(rows, rows)], rtol=1e-13)
    for name in ("inducing", "precision"):
        np.testing.assert_array_equal(getattr(pruned.basis, name), getattr(model.basis, name)[rows])
    np.testing.assert_array_equal(pruned.posterior.mean, model.posterior.mean[rows])
    phi = model.basis.features(Xs)[:, rows]
    mean, cov = fs.predict_f(pruned, Xs, full_cov=True)
    np.testing.assert_allclose(mean, phi @ model.posterior.mean[rows], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(
        cov, phi @ (C @ C.T)[np.ix_(rows, rows)] @ phi.T, rtol=1e-9, atol=1e-12
    )


def relative_entropy(A, B):
    """KL[N(0, A) || N(0, B)]."""
    return 0.5 * (
        np.trace(np.linalg.solve(B, A)) - len(A) + np.linalg.slogdet(B)[1] - np.linalg.slogdet(A)[1]
    )


@pytest.mark.parametrize(
    "rows",
    [[1, 2, 4, 5, 7], [0, 2, 3, 6, 7, 8], [3, 4, 5, 6, 7, 8], [1], [0, 1], [2, 5], [1, 6, 8]],
)
def test_pruning_first_rows_gives_the_nearest_chevron(rng, rows):
    """k = 3: variances and covariances with the first three remain; no factor is closer."""
    model = model_of(rng, 9, 3)
    rows, C = np.array(rows), dense(model.posterior)
    exact, q = (C @ C.T)[np.ix_(rows, rows)], fs.qsgp.prune(model, rows).posterior
    h = min(3, len(rows))
    assert q.columns.shape == (len(rows), h) and q.diagonal.shape == (len(rows) - h,)
    assert not np.triu(q.columns[:h], 1).any() and (q.columns.diagonal() > 0).all()
    found = dense(q) @ dense(q).T
    np.testing.assert_allclose(np.diag(found), np.diag(exact), rtol=1e-12)
    np.testing.assert_allclose(found[:, :h], exact[:, :h], rtol=1e-10, atol=1e-13)
    np.testing.assert_array_equal(q.mean, model.posterior.mean[rows])
    least = relative_entropy(exact, found)
    if len(rows) <= 3:
        assert least < 1e-12
    vector, unravel = fs.ravel(q)
    for at in range(len(rows), len(vector)):  # beyond the mean
        for step in (-1e-3, 1e-3):
            moved = vector.copy()
            moved[at] += step
            other = dense(unravel(moved))
            assert relative_entropy(exact, other @ other.T) > least
    small = fs.qsgp.prune(single(model), rows).posterior
    for a, b in ((small.columns, q.columns), (small.diagonal, q.diagonal)):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_pruned_models_own_their_arrays_and_accept_masks(rng):
    model = model_of(rng, 6, 2)
    before = fs.records.tree_map(np.copy, model)
    mask = np.array([True, True, False, True, False, True])
    one, other = fs.qsgp.prune(model, mask), fs.qsgp.prune(model, [5, 3, 1, 0])
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(one), fs.records.leaves(other), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)
    whole = fs.qsgp.prune(model, np.ones(6, bool))
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(whole), fs.records.leaves(model), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)
    for array in (
        one.basis.inducing,
        one.basis.precision,
        one.posterior.mean,
        one.posterior.columns,
        one.posterior.diagonal,
    ):
        array[...] = 7
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(model), fs.records.leaves(before), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)


def test_removed_functions_do_not_change_the_bound(rng):
    """The bound is unchanged without functions of nearly infinite precision."""
    X, Y = rng.standard_normal((13, 2)), rng.standard_normal(13)
    model = model_of(rng, 8, 2)
    gone = np.array([2, 5, 6])
    precision, mean = model.basis.precision.copy(), model.posterior.mean.copy()
    precision[gone], mean[gone] = 1e14, 0
    columns = np.tril(model.posterior.columns)
    columns[gone] = 0
    diagonal = model.posterior.diagonal.copy()
    diagonal[gone - 2] = 1e-7
    model = fs.replace(model, basis=fs.replace(model.basis, precision=precision))
    model = fs.replace(model, posterior=fs.qsgp.ChevronWeights(mean, columns, diagonal))
    pruned = fs.qsgp.prune(model, fs.qsgp.relevance_vectors(model))
    np.testing.assert_allclose(fs.qsgp.bound(pruned, X, Y), fs.qsgp.bound(model, X, Y), rtol=1e-10)
    mean, var = fs.predict_f(model, X)  # the removed functions have variances of 1e-14
    np.testing.assert_allclose(fs.predict_f(pruned, X), (mean, var), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("keep, error, said", [
    ([], ValueError, "`keep` names no function"),
    (np.zeros(5, bool), ValueError, "`keep` names no function"),
    (np.ones(4, bool), ValueError,
     r"`keep` is a mask of shape \(4,\), but there are 5 functions: use \(5,\)"),
    ([0, 5], ValueError, "`keep` must hold row numbers, 0 to 4, "),
    ([-1, 2], ValueError, "`keep` must hold row numbers"),
    ([1, 3, 1], ValueError, "`keep` has row 1 more than once"),
    ([1.0, 2.0], ValueError, "`keep` must hold row numbers"),
    ([[0, 1]], ValueError, "`keep` must hold row numbers"),
    (2, ValueError, "`keep` must hold row numbers"),
    (None, TypeError, "`keep` must hold real numbers"),
])  # fmt: skip
def test_bad_rows(rng, keep, error, said):
    with pytest.raises(error, match=said):
        fs.qsgp.prune(model_of(rng, 5, 2), keep)


@pytest.mark.parametrize(
    "name, arguments", [("optimal_precision", ()), ("relevance_vectors", ()), ("prune", ([0, 1],))]
)
def test_bad_models(rng, name, arguments):
    function, model = getattr(fs.qsgp, name), model_of(rng, 8, 2)
    for other in ("fourier", "inducing"):
        basis = basis_of(rng, other, 8)
        said = (
            f"{name}: `basis` of the model must be a fastsvgp.qsgp.RelevanceBasis.*got"
            f" {type(basis).__name__}"
        )
        with pytest.raises(TypeError, match=said):
            function(fs.replace(model, basis=basis), *arguments)
    for path, value, said in (
        ("basis.precision", np.ones(7), r"`basis.precision` must have shape \(8,\)"),
        ("basis.precision", -np.ones(8), "`basis.precision` must be positive"),
        ("basis.precision", None, "`basis.precision` is None"),
        ("basis.inducing", np.zeros(8), "`basis.inducing` must be an array"),
        ("posterior.mean", np.full(8, np.nan), "`posterior.mean` contains nan"),
        ("posterior.diagonal", np.ones(8), "there are 8 basis functions"),
    ):
        with pytest.raises((TypeError, ValueError), match=said):
            function(fs.records.replace_at(model, path, value), *arguments)
    with pytest.raises(TypeError, match=f"{name}: `model` must be a fastsvgp.QSGP, got RBF"):
        function(fs.RBF(), *arguments)
