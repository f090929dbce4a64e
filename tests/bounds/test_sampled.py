"""Sampled bounds, averaged over all possible samples, and the theory."""

import itertools

import numpy as np
import pytest
from support.numerics import nine_point
from support.weight_problems import BASES, basis_of, dense, weights

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.weight_space.bases.samples import num_units

UNITS = 3
JITTER = 1e-6  # the default of float64
FIRST, SECOND = np.array([0, 1]), np.array([2, 0])


def problem(rng, name, k, likelihood, N=7):
    m = UNITS * (2 if name == "fourier" else 1)
    model = fs.QSGP(basis_of(rng, name, m), weights(rng, m, k), likelihood)
    X, f = rng.standard_normal((N, 2)), 2 * rng.standard_normal(N)
    return model, X, (f > 0) * 1.0 if isinstance(likelihood, (fs.BernoulliLogit, fs.Poisson)) else f


def every_sample(scheme, size=2):
    """Return ``(units, weights)`` of all draws, which are equally likely."""
    if scheme == "with":
        return [(np.array(i), None) for i in itertools.product(range(UNITS), repeat=size)]
    if scheme == "without":
        return [(np.array(i), None) for i in itertools.combinations(range(UNITS), size)]
    return [(np.array([0, i]), np.array([1.0, 2.0])) for i in (1, 2)]


def pairs(scheme):
    both = itertools.product(every_sample(scheme), repeat=2)
    return [fs.BasisSample(i, j, None, weight_i, weight_j) for (i, weight_i), (j, weight_j) in both]


def as_dense(grad, model):
    """Return the same gradient with all rows."""
    shapes = {path: np.shape(value) for path, _, value in fs.leaves(model)}
    q = grad.posterior
    if q is not None:
        parts = {n: getattr(q, n) for n in ("mean", "columns", "diagonal")}
        q = fs.ChevronWeights(
            **{n: a and a.dense(shapes[f"posterior.{n}"][0]) for n, a in parts.items()}
        )
    basis = grad.basis
    if basis is not None:
        rows = {n: getattr(basis, n) for n in basis.per_function if getattr(basis, n) is not None}
        basis = fs.replace(
            basis, **{n: a.dense(len(model.posterior.mean)) for n, a in rows.items()}
        )
    return fs.QSGP(basis, q, grad.likelihood)


def fields(model):
    return (
        ("posterior", "likelihood")
        if isinstance(model.basis, fs.InducingBasis) and model.basis.dense_precision
        else None
    )


def log_det(model, jitter=JITTER):
    """Return half of log|S|, which a dense S leaves out."""
    if not model.basis.dense_precision:
        return 0.0
    return (
        0.5
        * np.linalg.slogdet(model.basis.precision_times(np.eye(len(model.posterior.mean)), jitter))[
            1
        ]
    )


def assert_unbiased(found, model, X, Y, wrt, jitter=JITTER):
    """Compare the mean over all samples with the exact bound, in value and gradients."""
    value, grad = fs.weight_bound_and_grad(model, X, Y, num_data=20, jitter=jitter, wrt=wrt)
    np.testing.assert_allclose(
        np.mean([v for v, _, _ in found]), value - log_det(model, jitter), rtol=1e-9
    )
    dense_ones = [
        [a for _, _, a in fs.leaves(as_dense(g, model)) if a is not None] for _, g, _ in found
    ]
    expected = [(path, a) for path, _, a in fs.leaves(grad) if a is not None]
    for (path, truth), *ours in zip(expected, *dense_ones, strict=True):
        np.testing.assert_allclose(np.mean(ours, axis=0), truth, rtol=1e-8, atol=1e-8, err_msg=path)


def assert_gradient_at(sample, model, X, Y, grad, rng, **options):
    """Compare with differences along a random direction, field by field."""
    vector, unravel = fs.ravel(model, unconstrained=False, fixed="basis" if fields(model) else ())
    bar = unravel.pullback(vector, as_dense(grad, model))

    def value(s):
        return fs.sampled_bound_and_grad(
            unravel(vector + s * d), X, Y, sample, num_data=20, wrt=(), **options
        )[0]

    for path, at in unravel.slices.items():
        d = np.zeros_like(vector)
        d[at] = rng.standard_normal(at.stop - at.start)
        allowed = 1e-7 * max(1.0, abs(value(0.0)), np.linalg.norm(bar[at]) * np.linalg.norm(d))
        assert abs(nine_point(value, 1e-4) - bar @ d) <= allowed, path


@pytest.mark.parametrize("scheme", ["with", "without", "stratified"])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("name", BASES)
def test_gaussian_value_and_gradients_are_unbiased(rng, name, k, scheme):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    samples, wrt = pairs(scheme), fields(model)
    found = [
        fs.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt) for sample in samples
    ]
    assert_unbiased(found, model, X, Y, wrt)
    phi, C = model.basis.features(X), dense(model.posterior)
    np.testing.assert_allclose(
        np.mean([info.mean for *_, info in found], axis=0), phi @ model.posterior.mean, atol=1e-10
    )
    np.testing.assert_allclose(
        np.mean([info.var for *_, info in found], axis=0), ((phi @ C) ** 2).sum(1), atol=1e-10
    )
    for v, _, info in found:
        np.testing.assert_allclose(-0.5 * sum(info.terms), v, rtol=1e-12)
    mu, S, c = (
        model.posterior.mean,
        model.basis.precision_times(np.eye(len(C)), JITTER),
        20 / len(X) / 0.2,
    )
    of_mean = c * np.sum((phi @ mu) ** 2 - 2 * Y * (phi @ mu)) + mu @ S @ mu
    of_rest = c * np.sum((phi @ C) ** 2) + np.sum(C * (S @ C)) - 2 * np.log(C.diagonal()).sum()
    log_S = 0.0 if model.basis.dense_precision else np.linalg.slogdet(S)[1]
    known = 20 * np.log(2 * np.pi * 0.2) + c * np.sum(Y**2) - len(C) - log_S
    np.testing.assert_allclose(
        np.mean([info.terms for *_, info in found], axis=0), (of_mean, of_rest, known), rtol=1e-9
    )


@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_kriged_estimates_are_unbiased(rng, name, k, scheme):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    control = fs.kriged_control(model, rng.standard_normal((4, 2)), jitter=1e-2)
    samples, wrt = pairs(scheme), fields(model)
    found = [
        fs.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt, control=control)
        for sample in samples
    ]
    plain = [
        fs.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt) for sample in samples
    ]
    assert max(abs(a[0] - b[0]) for a, b in zip(found, plain, strict=True)) > 1e-3
    assert_unbiased(found, model, X, Y, wrt)
    np.testing.assert_allclose(
        np.mean([info.mean for *_, info in found], axis=0),
        model.basis.features(X) @ model.posterior.mean,
        atol=1e-9,
    )


@pytest.mark.parametrize("likelihood, k, wrt, control, sweeps", [
    (fs.Gaussian(variance=0.2), 0, "posterior", False, 3),
    (fs.Gaussian(variance=0.2), 2, None, False, 3),
    (fs.Gaussian(variance=0.2), 2, None, True, 5),
    (fs.Gaussian(variance=0.2), 0, "likelihood", False, 2),
    (fs.BernoulliLogit(), 0, None, False, 4),
])  # fmt: skip
def test_how_often_features_are_made(rng, likelihood, k, wrt, control, sweeps, monkeypatch):
    """A control adds two, at its points, without a backward pass."""
    model, X, Y = problem(rng, "fourier", k, likelihood)
    control, count = fs.kriged_control(model, X[:4]) if control else None, []
    once = kernels.fourier_sweep
    monkeypatch.setattr(
        kernels, "fourier_sweep", lambda *a, **kw: count.append(len(a[0])) or once(*a, **kw)
    )
    fs.sampled_bound_and_grad(model, X, Y, fs.BasisSample(FIRST, SECOND), wrt=wrt, control=control)
    assert len(count) == sweeps


def test_kriging_shrinks_the_variance_of_smooth_functions(rng):
    """Of value and gradient, by a large factor, at a mean near its optimum."""
    m, X = 2000, rng.uniform(-2, 2, (60, 1))
    Y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    start = fs.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(
        fs.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=2),
        start,
        fs.Gaussian(variance=0.01),
    )
    model, _ = fs.optimal_weights(model, X, Y)
    control, found = fs.kriged_control(model, np.linspace(-2, 2, 20)[:, None]), {}
    for name, one in (("kriged", control), ("plain", None)):
        draws = []
        for seed in range(40):
            sample = fs.draw_basis_sample(model.basis, 50, rng=seed)
            value, grad, _ = fs.sampled_bound_and_grad(
                model, X, Y, sample, control=one, wrt="posterior.mean"
            )
            draws.append((value, grad.posterior.mean.dense(m)))
        found[name] = np.var([v for v, _ in draws]), np.var([g for _, g in draws], axis=0).sum()
    assert (
        found["kriged"][0] < 0.05 * found["plain"][0]
        and found["kriged"][1] < 0.2 * found["plain"][1]
    )


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_an_advanced_control_equals_a_new_one(rng, name, k):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    m, points = len(model.posterior.mean), rng.standard_normal((4, 2))
    control = fs.kriged_control(model, points)
    rows = np.unique([0, 2, m - 1])
    in_mean = fs.SparseRows(rows, rng.standard_normal(len(rows)))
    in_columns = fs.SparseRows(rows[1:], rng.standard_normal((len(rows) - 1, k)))
    change = fs.ChevronWeights(in_mean, in_columns, None)
    q = model.posterior
    columns = np.nan_to_num(q.columns) + change.columns.dense(m)
    moved = fs.replace(
        model, posterior=fs.replace(q, mean=q.mean + change.mean.dense(m), columns=columns)
    )
    advanced, anew = fs.advance_control(moved, control, change), fs.kriged_control(moved, points)
    np.testing.assert_allclose(advanced.values, anew.values, rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal(advanced.factor, control.factor)
    still = fs.advance_control(moved, control, fs.ChevronWeights(None, None, None))
    np.testing.assert_array_equal(still.values, control.values)
    with pytest.raises(ValueError, match="`change.mean` must have rows that increase"):
        fs.advance_control(
            moved,
            control,
            fs.ChevronWeights(fs.SparseRows(np.array([2, 1]), np.ones(2)), None, None),
        )
    with pytest.raises(ValueError, match="names functions beyond"):
        fs.advance_control(
            moved, control, fs.ChevronWeights(fs.SparseRows(np.array([m]), np.ones(1)), None, None)
        )
    with pytest.raises(TypeError, match="`change.mean` must be a fastsvgp.SparseRows or None"):
        fs.advance_control(moved, control, fs.ChevronWeights(np.ones(m), None, None))


def test_bad_controls(rng):
    model, X, Y = problem(rng, "fourier", 2, fs.Gaussian(variance=0.2))
    control, sample = fs.kriged_control(model, X[:3]), fs.BasisSample(FIRST, SECOND)
    other = fs.replace_at(model, "basis.seed", 5)
    with pytest.raises(
        ValueError,
        match=(
            "`control` is one of RandomFourier of 6 functions, seed 3, and the model has .* seed 5"
        ),
    ):
        fs.sampled_bound_and_grad(other, X, Y, sample, control=control)
    fewer, *_ = problem(rng, "fourier", 0, fs.Gaussian(variance=0.2))
    with pytest.raises(
        ValueError, match="`control` was made with 2 dense columns, and the posterior has 0"
    ):
        fs.sampled_bound_and_grad(fewer, X, Y, sample, control=control)
    with pytest.raises(TypeError, match="`control` must be made by"):
        fs.sampled_bound_and_grad(model, X, Y, sample, control=X)
    with pytest.raises(TypeError, match="`control` must be made by"):
        fs.advance_control(model, X, model.posterior)
    single = fs.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    with pytest.raises(
        TypeError, match="`control.points` is float64, and the model and data are float32"
    ):
        fs.sampled_bound_and_grad(
            single, X.astype(np.float32), Y.astype(np.float32), sample, control=control
        )
    with pytest.raises(ValueError, match="`points`"):
        fs.kriged_control(model, X[:, 0])
    with pytest.raises(
        fs.NotPositiveDefinite, match=r"`points\[1\]` and `points\[0\]` are the same inputs"
    ):
        fs.kriged_control(model, np.repeat(X[:2], 3, axis=0), jitter=0.0)
    single_control = fs.kriged_control(single, X[:3].astype(np.float32))
    value, _, info = fs.sampled_bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), sample, control=single_control
    )
    np.testing.assert_allclose(
        value, fs.sampled_bound_and_grad(model, X, Y, sample, control=control)[0], rtol=1e-2
    )
    assert info.mean.dtype == np.float32


LIKELIHOODS = [fs.Gaussian(variance=0.2), fs.BernoulliLogit(), fs.Laplace(scale=0.4), fs.Poisson()]
each_likelihood = pytest.mark.parametrize(
    "likelihood", LIKELIHOODS, ids=lambda likelihood: type(likelihood).__name__
)


@each_likelihood
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_gradients_are_those_of_the_value(rng, name, k, likelihood):
    """One sample, all fields jointly and separately; a unit drawn twice, given weights."""
    model, X, Y = problem(rng, name, k, likelihood)
    sample = fs.BasisSample(
        np.array([2, 0, 2]), np.array([1, 2]), None, np.array([0.7, 1.4, 0.9]), 1.3
    )
    wrt, tangent = (
        fields(model),
        (None if isinstance(likelihood, fs.Gaussian) else rng.uniform(0.5, 1.5, len(Y))),
    )
    grad = fs.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt, tangent=tangent)[1]
    assert_gradient_at(sample, model, X, Y, grad, rng, tangent=tangent)
    whole = {path: bar for path, _, bar in fs.leaves(as_dense(grad, model)) if bar is not None}
    for path, bar in whole.items():
        some = fs.sampled_bound_and_grad(
            model, X, Y, sample, num_data=20, wrt=path, tangent=tangent
        )[1]
        held = {p: a for p, _, a in fs.leaves(as_dense(some, model)) if a is not None}
        assert set(held) == {path}
        np.testing.assert_allclose(held[path], bar)


@each_likelihood
@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_other_likelihoods_are_bounded_from_below(rng, name, k, scheme, likelihood):
    if isinstance(likelihood, fs.Gaussian):
        return
    model, X, Y = problem(rng, name, k, likelihood)
    exact = fs.weight_bound(model, X, Y, num_data=20) - log_det(model)
    phi, C = model.basis.features(X), dense(model.posterior)
    sd = np.sqrt(((phi @ C) ** 2).sum(1))
    for tangent in (None, sd, 0.3, 3 * sd):
        values = [
            fs.sampled_bound_and_grad(model, X, Y, s, num_data=20, wrt=(), tangent=tangent)[0]
            for s in pairs(scheme)
        ]
        assert np.mean(values) < exact
    everything = fs.BasisSample(np.arange(UNITS), np.arange(UNITS))
    np.testing.assert_allclose(
        fs.sampled_bound_and_grad(model, X, Y, everything, num_data=20, wrt=(), tangent=sd)[0],
        exact,
        rtol=1e-9,
    )
    assert (
        fs.sampled_bound_and_grad(model, X, Y, everything, num_data=20, wrt=(), tangent=2 * sd)[0]
        < exact
    )
    if k == 0 and not model.basis.dense_precision:
        alone = [fs.BasisSample(i, weight_i=w) for i, w in every_sample(scheme)]
        assert (
            np.mean(
                [
                    fs.sampled_bound_and_grad(model, X, Y, s, num_data=20, wrt=(), tangent=sd)[0]
                    for s in alone
                ]
            )
            < exact
        )


@pytest.mark.parametrize("name", BASES)
def test_everything_is_the_exact_bound(rng, name):
    model, X, Y = problem(rng, name, 2, fs.Gaussian(variance=0.2))
    everything = fs.BasisSample(np.arange(UNITS), np.arange(UNITS))
    value, _, _ = fs.sampled_bound_and_grad(model, X, Y, everything, wrt=())
    np.testing.assert_allclose(value, fs.weight_bound(model, X, Y) - log_det(model), rtol=1e-10)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("jitter", [0.0, 1e-2, 0.5])
def test_one_jitter_for_the_sampled_bound_and_the_whole_one(rng, jitter, k, control):
    """S = K_zz + jitter I: on average over samples, exactly at all functions, in gradients."""
    model, X, Y = problem(rng, "inducing", k, fs.Gaussian(variance=0.2))
    wrt, control = fields(model), fs.kriged_control(model, X[:4]) if control else None
    options = {"num_data": 20, "jitter": jitter, "control": control}
    for scheme in ("with", "stratified"):
        found = [
            fs.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt, **options)
            for sample in pairs(scheme)
        ]
        assert_unbiased(found, model, X, Y, wrt, jitter)
    everything = fs.BasisSample(np.arange(UNITS), np.arange(UNITS))
    assert_unbiased(
        [fs.sampled_bound_and_grad(model, X, Y, everything, wrt=wrt, **options)],
        model,
        X,
        Y,
        wrt,
        jitter,
    )
    if control is None:
        sample = fs.BasisSample(
            np.array([2, 0, 2]), np.array([1, 2]), None, np.array([0.7, 1.4, 0.9]), 1.3
        )
        grad = fs.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt, **options)[1]
        assert_gradient_at(sample, model, X, Y, grad, rng, jitter=jitter)


def test_sampled_steps_end_at_the_optimum_of_the_same_jitter(rng):
    """Only with this jitter is the gradient in the mean and the diagonal zero."""
    model, X, Y = problem(rng, "inducing", 0, fs.Gaussian(variance=0.2))
    best, _ = fs.optimal_weights(model, X, Y, tolerance=1e-14, jitter=0.5)
    everything = fs.BasisSample(np.arange(UNITS), np.arange(UNITS))
    for jitter, least, most in ((0.5, 0.0, 1e-8), (None, 1e-3, np.inf)):
        grad = fs.sampled_bound_and_grad(best, X, Y, everything, wrt="posterior", jitter=jitter)[
            1
        ].posterior
        for bar in (grad.mean.values, grad.diagonal.values):
            assert least <= np.abs(bar).max() <= most


@pytest.mark.parametrize(
    "jitter, error", [(-1e-6, ValueError), (np.nan, ValueError), ("much", TypeError)]
)
def test_a_jitter_of_none_is_the_default(rng, jitter, error):
    model, X, Y = problem(rng, "inducing", 0, fs.Gaussian(variance=0.2))
    with pytest.raises(error, match="`jitter`"):
        fs.sampled_bound_and_grad(
            model, X, Y, fs.BasisSample(FIRST, SECOND), wrt="posterior", jitter=jitter
        )


def test_a_value_needs_no_backward_pass(rng, monkeypatch):
    model, X, Y = problem(rng, "fourier", 1, fs.Gaussian(variance=0.2))
    sample = fs.BasisSample(FIRST, SECOND)
    value, whole, _ = fs.sampled_bound_and_grad(model, X, Y, sample)

    def refused(*_):
        raise AssertionError("nobody asked for it")

    monkeypatch.setattr(fs.RandomFourier, "products_vjp", refused)
    for wrt in ((), "likelihood"):
        found, grad, _ = fs.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt)
        assert found == value and grad.posterior is grad.basis is None
    assert grad.likelihood.variance == whole.likelihood.variance
    with pytest.raises(AssertionError, match="nobody asked"):
        fs.sampled_bound_and_grad(model, X, Y, sample, wrt="posterior")


def test_ten_thousand_functions_within_5_sigma(rng):
    m, k = 10_000, 3
    model = fs.QSGP(
        fs.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=1),
        weights(rng, m, k),
        fs.Gaussian(variance=0.5),
    )
    model = fs.replace_at(model, "posterior.mean", 0.01 * model.posterior.mean)
    model = fs.replace_at(
        model, "posterior.columns", np.tril(0.01 * model.posterior.columns) + np.eye(m, k)
    )
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    for scheme in ("with", "stratified", "without"):
        values = []
        for _ in range(60):
            sample = fs.draw_basis_sample(model.basis, 200, rng=rng, scheme=scheme)
            values.append(fs.sampled_bound_and_grad(model, X, Y, sample, num_data=100, wrt=())[0])
        exact = fs.weight_bound(model, X, Y, num_data=100)
        assert abs(np.mean(values) - exact) < 5 * np.std(values) / np.sqrt(60)


def test_entries_that_are_not_sampled_are_not_read(rng):
    model, X, Y = problem(rng, "relevance", 1, fs.Gaussian(variance=0.2))
    unseen = np.array([False, False, True])
    for path in ("posterior.mean", "posterior.columns", "basis.precision", "basis.inducing"):
        array = dict((p, a) for p, _, a in fs.leaves(model))[path].copy()
        array[unseen] = np.nan
        model = fs.replace_at(model, path, array)
    model = fs.replace_at(model, "posterior.diagonal", np.array([0.5, np.nan]))
    value, grad, info = fs.sampled_bound_and_grad(
        model, X, Y, fs.BasisSample(np.array([0, 1]), np.array([1, 0]))
    )
    assert np.isfinite(value) and np.isfinite(info.mean).all()
    assert (
        list(grad.posterior.mean.rows) == [0, 1] and np.isfinite(grad.posterior.mean.values).all()
    )
    with pytest.raises(ValueError, match=r"`posterior.mean` contains nan at index 2"):
        fs.sampled_bound_and_grad(model, X, Y, fs.BasisSample(np.array([2, 1]), np.array([1, 0])))


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", ["fourier", "relevance"])
def test_float32(rng, name, k):
    model, X, Y = problem(rng, name, k, fs.BernoulliLogit())
    single = fs.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    sample = fs.BasisSample(np.array([2, 0]), np.array([1, 2]))
    value, grad, _ = fs.sampled_bound_and_grad(model, X, Y, sample)
    found, other, info = fs.sampled_bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), sample
    )
    np.testing.assert_allclose(found, value, rtol=1e-4)
    assert info.var.dtype == np.float32
    for (path, _, a), (_, _, b) in zip(
        fs.leaves(as_dense(other, model)), fs.leaves(as_dense(grad, model)), strict=True
    ):
        assert a is None or np.asarray(a).dtype == np.float32, path
        if a is not None:
            np.testing.assert_allclose(
                a, b, atol=1e-3 * max(1, np.abs(b).max(initial=0)), err_msg=path
            )


@pytest.mark.parametrize("name", BASES)
def test_draws(rng, name):
    """The mean count of each unit is its multiplicity."""
    basis = basis_of(rng, name, 14)
    units = num_units(basis)
    assert units == (7 if name == "fourier" else 14)
    for scheme in ("stratified", "without", "with"):
        counts = np.zeros(units)
        for seed in range(400):
            sample = fs.draw_basis_sample(basis, 4, rng=seed, scheme=scheme, pair=seed % 2 == 0)
            assert (sample.j is None) == (seed % 2 == 1) and len(sample.i) == 4
            weight = np.full(4, units / 4) if sample.weight_i is None else sample.weight_i
            np.add.at(counts, sample.i, weight)
            if scheme != "with":
                assert (np.diff(sample.i) > 0).all()
            if scheme == "stratified":
                assert weight.sum() == units
        assert np.abs(counts / 400 - 1).max() < 5 * np.sqrt(units / 4 / 400)
    same = [fs.draw_basis_sample(basis, 4, rng=5) for _ in range(2)]
    np.testing.assert_array_equal(same[0].i, same[1].i)
    assert list(fs.draw_basis_sample(basis, units, scheme="stratified").i) == list(range(units))


def test_draws_from_a_seed_and_a_step(rng):
    """A stratified sample is a pure function of both: one unit per block, for i and j."""
    basis = basis_of(rng, "fourier", 4000)
    first, again, later, other = (
        fs.draw_basis_sample(basis, 300, rng=pair) for pair in ((7, 5), (7, 5), (7, 6), (8, 5))
    )
    edges = np.arange(301) * 2000 // 300
    for part in (first.i, first.j):
        assert (part >= edges[:-1]).all() and (part < edges[1:]).all()
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.weight_j, np.diff(edges))
    for different in (first.j, later.i, other.i):
        assert 0.05 < np.mean(first.i == different) < 0.3
    for scheme in ("without", "with"):
        one, two = (fs.draw_basis_sample(basis, 9, rng=(7, 5), scheme=scheme) for _ in range(2))
        np.testing.assert_array_equal(one.j, two.j)


def test_bad_draws(rng):
    basis = basis_of(rng, "fourier", 6)
    for call, error, said in (
        *(
            (
                lambda pair=pair: fs.draw_basis_sample(basis, 2, rng=pair),
                ValueError,
                r"`rng` as a pair must be \(seed, step\)",
            )
            for pair in ((1,), (1, 2, 3), (-1, 2), (1, 2**64), (1.0, 2), (True, 2))
        ),
        (
            lambda: fs.draw_basis_sample(basis, 4),
            ValueError,
            "`size` is 4, but the basis has 3 units",
        ),
        (lambda: fs.draw_basis_sample(basis, 0), ValueError, "`size`"),
        (
            lambda: fs.draw_basis_sample(basis, 2, scheme="some"),
            ValueError,
            "`scheme` must be one of 'stratified'",
        ),
        (
            lambda: fs.draw_basis_sample(fs.RBF(), 2),
            TypeError,
            "`basis` must be a fastsvgp.RandomFourier",
        ),
        (
            lambda: fs.draw_basis_sample(fs.RandomFourier, 2),
            TypeError,
            "`basis` must be .*, got RandomFourier, a class",
        ),
        (lambda: fs.draw_basis_sample(basis, 2, pair=1), TypeError, "`pair`"),
    ):
        with pytest.raises(error, match=said):
            call()


@pytest.mark.parametrize("sample, options, error, said", [
    (fs.BasisSample(np.array([0, 3]), SECOND), {}, ValueError,
     "`sample.i` names 3, but the basis has 3 units"),
    (fs.BasisSample(FIRST, np.array([-1])), {}, ValueError, "`sample.j` names -1"),
    (fs.BasisSample(np.array([0.0]), SECOND), {}, TypeError,
     "`sample.i` must hold one or more whole numbers"),
    (fs.BasisSample(np.array([], int), SECOND), {}, TypeError,
     "`sample.i` must hold one or more whole numbers"),
    (fs.BasisSample(FIRST, SECOND, weight_i=np.array([1.0, 0.0])), {}, ValueError,
     "`sample.weight_i` must be positive, got 0$"),
    (fs.BasisSample(FIRST, SECOND, weight_j=np.ones((1, 2))), {}, ValueError,
     r"`sample.weight_j` must be a number or have"),
    (fs.BasisSample(FIRST, SECOND, weight_i=1.0, weight_j=np.nan), {}, ValueError,
     "`sample.weight_j`"),
    (fs.BasisSample(FIRST), {}, ValueError, "`sample` has no j, needed for Gaussian noise"),
    (FIRST, {}, TypeError, "`sample` must be a fastsvgp.BasisSample"),
    (fs.BasisSample(FIRST, SECOND), {"wrt": "basis.nothing"}, ValueError, "`wrt` names"),
    (fs.BasisSample(FIRST, SECOND), {"num_data": 2}, ValueError, "`num_data` is 2"),
])  # fmt: skip
def test_bad_samples(rng, sample, options, error, said):
    model, X, Y = problem(rng, "fourier", 2, fs.Gaussian(variance=0.2))
    with pytest.raises(error, match=said):
        fs.sampled_bound_and_grad(model, X, Y, sample, **options)


@pytest.mark.parametrize(
    "value, said",
    [(np.nan, "contains nan at"), (0.0, "must be positive, got 0"), (-1.0, "must be")],
)
def test_pivots_are_checked_for_any_sample(rng, value, said):
    model, X, Y = problem(rng, "inducing", 2, fs.Gaussian(variance=0.2))
    model.posterior.columns[1, 1] = value
    with pytest.raises(ValueError, match=f"`diagonal of posterior.columns` {said}"):
        fs.sampled_bound_and_grad(
            model, X, Y, fs.BasisSample(np.array([2]), np.array([2])), wrt="posterior"
        )


def test_bad_models(rng):
    sample = fs.BasisSample(FIRST, SECOND)
    model, X, Y = problem(rng, "inducing", 1, fs.BernoulliLogit())
    for wrt in (None, "basis", "basis.covariance.variance"):
        with pytest.raises(
            ValueError, match=r"log\|S\| of an InducingBasis has no gradient from a sample"
        ):
            fs.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt)
    with pytest.raises(ValueError, match="`sample` has no j, needed for dense columns"):
        fs.sampled_bound_and_grad(model, X, Y, fs.BasisSample(FIRST), wrt="posterior")
    for tangent, said in ((0.0, "positive"), (np.ones(3), "one for each row"), (np.nan, "nan")):
        with pytest.raises(ValueError, match=f"`tangent`.*{said}"):
            fs.sampled_bound_and_grad(model, X, Y, sample, wrt="posterior", tangent=tangent)
    with pytest.raises(TypeError, match="a StudentT likelihood is not log-concave"):
        fs.sampled_bound_and_grad(
            fs.replace(model, likelihood=fs.StudentT(0.3, df=4.0)), X, Y, sample, wrt="posterior"
        )
    for path, value in (
        ("basis.covariance.variance", -1.0),
        ("basis.covariance.lengthscales", np.array([1.0, 0.0])),
    ):
        with pytest.raises(ValueError, match=f"`{path}` must be positive"):
            fs.sampled_bound_and_grad(
                fs.replace_at(model, path, value), X, Y, sample, wrt="posterior"
            )
    single = fs.replace_at(model, "posterior.mean", model.posterior.mean.astype(np.float32))
    with pytest.raises(TypeError, match="`posterior.mean` is float32"):
        fs.sampled_bound_and_grad(single, X, Y, sample, wrt="posterior")
    for value, said in ((-1.0, "positive"), (np.nan, "nan")):
        relevance, *_ = problem(rng, "relevance", 1, fs.BernoulliLogit())
        relevance = fs.replace_at(relevance, "basis.precision", np.array([1.0, value, 1.0]))
        with pytest.raises(ValueError, match=f"`basis.precision`.*{said}"):
            fs.sampled_bound_and_grad(relevance, X, Y, sample)
    diagonal = fs.replace_at(model, "posterior.diagonal", -model.posterior.diagonal)
    with pytest.raises(ValueError, match="`posterior.diagonal` must be positive"):
        fs.sampled_bound_and_grad(diagonal, X, Y, sample, wrt="posterior")
