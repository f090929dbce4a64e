"""The paper's estimators, which sample columns of C too: by formula and by enumeration."""

import itertools

import numpy as np
import pytest
from support.sampled_problems import (
    FIRST,
    JITTER,
    SECOND,
    UNITS,
    as_dense,
    assert_gradient_at,
    assert_unbiased,
    each_of,
    every_sample,
    fields,
    log_det,
    problem,
)
from support.weight_problems import BASES, dense, weights

import fastsvgp as fs

NOT_GAUSSIAN = [fs.likelihoods.BernoulliLogit(), fs.likelihoods.Laplace(scale=0.4)]
LIKELIHOODS = [fs.Gaussian(variance=0.2), *NOT_GAUSSIAN]
each_likelihood = each_of(LIKELIHOODS)


def every_column(scheme, m):
    """Two columns of m, or one from each of two blocks."""
    if scheme == "with":
        return [
            (np.array(r), None) for r in itertools.product(range(m), repeat=2 if m == UNITS else 1)
        ]
    if scheme == "without":
        return [(np.array(r), None) for r in itertools.combinations(range(m), 2)]
    half = m // 2
    return [
        (np.array(r), np.array([half, m - half]))
        for r in itertools.product(range(half), range(half, m))
    ]


def every_triple(scheme, m):
    """All triples, equally likely: two units in i, one in j, or as many as the scheme has."""
    of_j = every_sample(scheme, 2 if scheme == "stratified" else 1)
    for (i, w_i), (j, w_j), (r, w_r) in itertools.product(
        every_sample(scheme), of_j, every_column(scheme, m)
    ):
        yield fs.qsgp.BasisSample(i, j, r, w_i, w_j, w_r)


def everything(model):
    return fs.qsgp.BasisSample(
        np.arange(UNITS), np.arange(UNITS), np.arange(len(model.posterior.mean))
    )


AWKWARD = fs.qsgp.BasisSample(
    np.array([2, 0, 2]),
    np.array([1, 2]),
    np.array([1, 0, 2, 1]),
    np.array([0.7, 1.4, 0.9]),
    1.3,
    np.array([0.6, 1.1, 0.8, 1.7]),
)


def lists(basis, sample):
    """(functions, multiplicity) of i, j and columns, with repeats."""
    width = 2 if isinstance(basis, fs.qsgp.RandomFourier) else 1
    for units, w in ((sample.i, sample.weight_i), (sample.j, sample.weight_j)):
        yield basis.functions(units), np.repeat(np.broadcast_to(w, units.shape), width)
    yield sample.columns, sample.weight_columns


def by_the_paper(model, X, Y, sample, num_data, jitter=JITTER):
    """L_mu, L_Sigma, L_const of Theorems 1, 2 and Proposition 2; the data term of Theorem 3."""
    (i, w), (j, v), (r, u) = lists(model.basis, sample)
    phi, C, mu, m = (
        model.basis.features(X),
        dense(model.posterior),
        model.posterior.mean,
        len(model.posterior.mean),
    )
    S = np.eye(m)
    if isinstance(model.basis, fs.qsgp.RelevanceBasis):
        S = np.diag(model.basis.precision)
    elif isinstance(model.basis, fs.qsgp.InducingBasis):
        S = model.basis.covariance.matrix(model.basis.inducing) + jitter * np.eye(m)
    scale, diagonal = num_data / len(Y), not model.basis.dense_precision
    block = S[np.ix_(j, i)]
    prior = (v * mu[j]) @ block @ (w * mu[i]) - m
    for column, times in zip(r, u, strict=True):
        c = C[:, column]
        prior += times * ((v * c[j]) @ block @ (w * c[i]) - 2 * np.log(c[column]))
    if diagonal:
        prior -= (w * np.log(np.diag(S)[i])).sum()
    if isinstance(model.likelihood, fs.Gaussian):
        noise = float(model.likelihood.variance)
        p_i, p_j = phi[:, i] @ (w * mu[i]), phi[:, j] @ (v * mu[j])
        data = num_data * np.log(2 * np.pi * noise) + scale / noise * (
            Y @ Y - 2 * Y @ p_i + p_i @ p_j
        )
        for column, times in zip(r, u, strict=True):
            data += (
                scale
                / noise
                * times
                * (phi[:, i] @ (w * C[i, column]))
                @ (phi[:, j] @ (v * C[j, column]))
            )
        return -0.5 * (data + prior)
    seen = np.zeros((len(Y), m))
    for column, times in zip(r, u, strict=True):
        seen[:, column] += times * (phi[:, j] @ (v * C[j, column]))
    moments = fs.records.Marginals(
        phi[:, i] @ (w * mu[i]), np.maximum((seen**2).sum(axis=1), 1e-300)
    )
    return scale * model.likelihood.expected_log_prob(Y, moments, None)[0] - 0.5 * prior


@each_likelihood
@pytest.mark.parametrize("k", [0, 2, 3])
@pytest.mark.parametrize("name", BASES)
def test_values_are_those_of_the_papers_formulas(rng, name, k, likelihood):
    """With units and columns drawn twice, and given weights."""
    model, X, Y = problem(rng, name, k, likelihood)
    value, _, info = fs.qsgp.sampled_bound_and_grad(model, X, Y, AWKWARD, num_data=20, wrt=())
    np.testing.assert_allclose(value, by_the_paper(model, X, Y, AWKWARD, 20), rtol=1e-10)
    both = (
        -0.5 * sum(info.terms)
        if isinstance(likelihood, fs.Gaussian)
        else info.terms[0] - info.terms[1]
    )
    np.testing.assert_allclose(both, value, rtol=1e-12)


@each_likelihood
@pytest.mark.parametrize("jitter", [0.0, 0.5])
def test_jitter_of_a_dense_precision(rng, jitter, likelihood):
    """Seen where i and j coincide, in the formulas and in the gradient."""
    model, X, Y = problem(rng, "inducing", 2, likelihood)
    value, grad, _ = fs.qsgp.sampled_bound_and_grad(
        model, X, Y, AWKWARD, num_data=20, wrt=fields(model), jitter=jitter
    )
    np.testing.assert_allclose(value, by_the_paper(model, X, Y, AWKWARD, 20, jitter), rtol=1e-10)
    assert_gradient_at(AWKWARD, model, X, Y, grad, rng, jitter=jitter)


@pytest.mark.parametrize("scheme", ["with", "without", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_gaussian_value_and_gradients_are_unbiased(rng, name, k, scheme):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    wrt = fields(model)
    samples = every_triple(scheme, len(model.posterior.mean))
    found = [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt)
        for sample in samples
    ]
    assert_unbiased(found, model, X, Y, wrt)
    phi, C = model.basis.features(X), dense(model.posterior)
    np.testing.assert_allclose(
        np.mean([info.mean for *_, info in found], axis=0), phi @ model.posterior.mean, atol=1e-10
    )
    np.testing.assert_allclose(
        np.mean([info.var for *_, info in found], axis=0), ((phi @ C) ** 2).sum(1), atol=1e-10
    )


@each_likelihood
@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("name", BASES)
def test_gradients_are_those_of_the_value(rng, name, k, likelihood):
    """At one sample, in all fields."""
    model, X, Y = problem(rng, name, k, likelihood)
    grad = fs.qsgp.sampled_bound_and_grad(model, X, Y, AWKWARD, num_data=20, wrt=fields(model))[1]
    assert_gradient_at(AWKWARD, model, X, Y, grad, rng)


@each_of(NOT_GAUSSIAN)
@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_theorem_3_bounds_from_below(rng, name, k, scheme, likelihood):
    model, X, Y = problem(rng, name, k, likelihood)
    exact = fs.qsgp.bound(model, X, Y, num_data=20) - log_det(model)
    samples = every_triple(scheme, len(model.posterior.mean))
    assert (
        np.mean(
            [
                fs.qsgp.sampled_bound_and_grad(model, X, Y, s, num_data=20, wrt=())[0]
                for s in samples
            ]
        )
        < exact
    )


@each_likelihood
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_everything_once_is_the_exact_bound(rng, name, k, likelihood):
    model, X, Y = problem(rng, name, k, likelihood)
    wrt = fields(model)
    value, grad, _ = fs.qsgp.sampled_bound_and_grad(
        model, X, Y, everything(model), num_data=20, wrt=wrt
    )
    exact, whole = fs.qsgp.bound_and_grad(model, X, Y, num_data=20, wrt=wrt)
    np.testing.assert_allclose(value, exact - log_det(model), rtol=1e-9)
    pairs = zip(fs.records.leaves(as_dense(grad, model)), fs.records.leaves(whole), strict=True)
    for (path, _, ours), (_, _, truth) in pairs:
        if truth is not None and path != "posterior.columns":
            np.testing.assert_allclose(ours, truth, rtol=1e-8, atol=1e-8, err_msg=path)
        elif truth is not None:
            np.testing.assert_allclose(np.tril(ours), np.tril(truth), rtol=1e-8, atol=1e-8)


def test_ten_thousand_functions_within_5_sigma(rng):
    m, k = 10_000, 3
    model = fs.QSGP(
        fs.qsgp.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=1),
        weights(rng, m, k),
        fs.Gaussian(variance=0.5),
    )
    model = fs.records.replace_at(model, "posterior.mean", 0.01 * model.posterior.mean)
    model = fs.records.replace_at(
        model, "posterior.columns", np.tril(0.01 * model.posterior.columns) + np.eye(m, k)
    )
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    exact = fs.qsgp.bound(model, X, Y, num_data=100)
    for scheme in ("with", "stratified"):
        samples = [
            fs.qsgp.draw_basis_sample(model.basis, 1000, rng=rng, scheme=scheme, columns=5000)
            for _ in range(60)
        ]
        values = [
            fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=100, wrt=())[0]
            for sample in samples
        ]
        assert abs(np.mean(values) - exact) < 5 * np.std(values) / np.sqrt(60)


def variances(model, X, Y, samples):
    """Of value and gradient in the posterior, entry by entry, over equally likely samples."""
    found = []
    for sample in samples:
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, num_data=20, wrt="posterior"
        )
        q = as_dense(grad, model).posterior
        found.append(np.concatenate([[value], q.mean, q.columns.ravel(), q.diagonal]))
    return np.var(found, axis=0)


@pytest.mark.parametrize("scheme", ["with", "without", "stratified"])
@pytest.mark.parametrize("name", BASES)
def test_all_columns_vary_less_than_some(rng, name, scheme):
    """They are the mean over the drawn columns: no entry of a gradient can vary more."""
    model, X, Y = problem(rng, name, 1, fs.Gaussian(variance=0.2))
    m = len(model.posterior.mean)
    some = list(every_triple(scheme, m))
    once = {(*s.i, -1, *s.j): s._replace(columns=np.arange(m), weight_columns=None) for s in some}
    drawn, exact = variances(model, X, Y, some), variances(model, X, Y, once.values())
    assert (exact <= drawn * (1 + 1e-9) + 1e-9).all() and exact[0] < drawn[0]


@pytest.mark.parametrize("name", BASES)
def test_the_reduced_estimators_vary_less(name):
    """One problem each; the claim about counted coincidences is not proved."""
    model, X, Y = problem(np.random.default_rng(1), name, 1, fs.Gaussian(variance=0.2))
    draws = (
        every_sample("without"),
        every_sample("without"),
        every_column("without", len(model.posterior.mean)),
    )
    some = [fs.qsgp.BasisSample(i, j, r) for (i, _), (j, _), (r, _) in itertools.product(*draws)]
    paper, reduced = (
        variances(model, X, Y, some),
        variances(model, X, Y, [s._replace(columns=None) for s in some]),
    )
    assert reduced[0] < 0.5 * paper[0] and reduced[1:].sum() < 0.5 * paper[1:].sum()


def test_entries_that_are_not_drawn_are_not_read(rng):
    # units 0 and 1: functions 0 to 3
    model, X, Y = problem(rng, "fourier", 3, fs.Gaussian(variance=0.2))
    q = fs.records.tree_map(np.copy, model.posterior)
    q.mean[4:], q.columns[4:], q.columns[:, 1], q.diagonal[2] = np.nan, np.nan, np.nan, np.nan
    model = fs.replace(model, posterior=q)
    sample = fs.qsgp.BasisSample(np.array([0, 1]), np.array([1, 0]), np.array([0, 2, 4]))
    value, grad, info = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample)
    assert np.isfinite(value) and np.isfinite(info.var).all()
    assert (
        list(grad.posterior.columns.rows) == [0, 1, 2, 3]
        and np.isfinite(grad.posterior.columns.values).all()
    )
    assert (
        list(grad.posterior.diagonal.rows) == [0, 1]
        and not grad.posterior.columns.values[:, 1].any()
    )
    with pytest.raises(ValueError, match="`diagonal of posterior.columns` contains nan"):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample._replace(columns=np.array([1])))
    with pytest.raises(ValueError, match="`posterior.diagonal` contains nan"):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample._replace(columns=np.array([5])))


@each_of(LIKELIHOODS[:2])
@pytest.mark.parametrize("name", BASES)
def test_float32(rng, name, likelihood):
    model, X, Y = problem(rng, name, 2, likelihood)
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    value, grad, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, AWKWARD, wrt=fields(model))
    found, other, info = fs.qsgp.sampled_bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), AWKWARD, wrt=fields(model)
    )
    np.testing.assert_allclose(found, value, rtol=1e-4)
    assert info.var.dtype == np.float32
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(as_dense(other, model)),
        fs.records.leaves(as_dense(grad, model)),
        strict=True,
    ):
        assert a is None or np.asarray(a).dtype == np.float32, path
        if a is not None:
            np.testing.assert_allclose(
                a, b, atol=1e-3 * max(1, np.abs(b).max(initial=0)), err_msg=path
            )


@pytest.mark.parametrize("scheme", ["with", "without", "stratified"])
def test_draws_of_columns(rng, scheme):
    """Each of m columns is drawn with its frequency; i and j equal those drawn without columns."""
    model, *_ = problem(rng, "fourier", 0, fs.Gaussian(0.2))
    counts = np.zeros(6)
    for seed in range(300):
        sample = fs.qsgp.draw_basis_sample(model.basis, 2, rng=seed, scheme=scheme, columns=4)
        np.add.at(
            counts,
            sample.columns,
            6 / 4 if sample.weight_columns is None else sample.weight_columns,
        )
        same = fs.qsgp.draw_basis_sample(model.basis, 2, rng=seed, scheme=scheme)
        assert same.columns is same.weight_columns is None and len(sample.columns) == 4
        np.testing.assert_array_equal(same.j, sample.j)
    assert np.abs(counts / 300 - 1).max() < 5 * np.sqrt(6 / 4 / 300)


def test_bad_draws_and_bad_samples(rng):
    model, X, Y = problem(rng, "fourier", 2, fs.Gaussian(variance=0.2))
    for options, said in (
        ({"columns": 7}, "`columns` is 7, but C has 6"),
        ({"columns": 0}, "`columns`"),
        ({"columns": 2, "pair": False}, "`columns` are for estimators that need j"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.qsgp.draw_basis_sample(model.basis, 2, **options)
    sample, logit = (
        fs.qsgp.BasisSample(FIRST, SECOND, np.array([0, 5])),
        fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit()),
    )
    for one, bad, options, error, said in (
        (model, {"columns": np.array([6])}, {}, ValueError,
         "`sample.columns` names 6, but C has 6 columns, from 0"),
        (model, {"columns": np.array([0.0])}, {}, TypeError,
         "`sample.columns` must hold one or more whole numbers"),
        (model, {"weight_columns": -1.0}, {}, ValueError,
         "`sample.weight_columns` must be positive"),
        (model, {"j": None}, {}, ValueError, "`sample` has no j, needed for Gaussian noise"),
        (fs.replace(logit, posterior=problem(rng, "fourier", 0, fs.Gaussian(0.2))[0].posterior),
         {"j": None}, {}, ValueError,
         "`sample` has no j, needed for columns"),
        (logit, {}, {"tangent": 1.0}, ValueError,
         "`tangent` is for the reduced estimators, and `sample` has columns"),
        (model, {}, {"control": fs.qsgp.kriging_control_variate(model, X[:3])}, ValueError,
         "`control` is for the reduced estimators"),
    ):  # fmt: skip
        with pytest.raises(error, match=said):
            fs.qsgp.sampled_bound_and_grad(one, X, (Y > 0) * 1.0, sample._replace(**bad), **options)
    negative = fs.records.replace_at(model, "posterior.columns", -model.posterior.columns)
    with pytest.raises(ValueError, match="`diagonal of posterior.columns` must be positive"):
        fs.qsgp.sampled_bound_and_grad(negative, X, Y, sample)
