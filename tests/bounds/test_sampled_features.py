"""Sampled bounds of user-supplied features: against our bases, and by differences."""

import numpy as np
import pytest
from support.numerics import nine_point
from support.sampled_problems import each_of, problem
from support.weight_problems import BASES

import fastsvgp as fs

LIKELIHOODS = [fs.Gaussian(variance=0.2), fs.likelihoods.BernoulliLogit()]
each_likelihood = each_of(LIKELIHOODS)
UNITS = fs.qsgp.BasisSample(
    np.array([2, 0, 2]), np.array([1, 2]), None, np.array([0.7, 1.4, 0.9]), 1.3
)
each_sample = pytest.mark.parametrize(
    "columns", [None, np.array([1, 0, 2, 1])], ids=["reduced", "paper"]
)


def own_features(model, X, sample):
    """Return ``(Phi_i, Phi_j, precision, the sample by functions)`` of one of our bases."""
    basis, width = model.basis, 2 if isinstance(model.basis, fs.qsgp.RandomFourier) else 1
    i, j = (None if units is None else basis.functions(units) for units in (sample.i, sample.j))
    each = {"weight_i": np.repeat(sample.weight_i, width), "weight_j": sample.weight_j}
    phi = basis.features(X)
    precision = np.ones(len(model.posterior.mean))
    if width == 1:
        precision = (
            basis.covariance.matrix(basis.inducing) if basis.dense_precision else basis.precision
        )
    return phi[:, i], None if j is None else phi[:, j], precision, sample._replace(i=i, j=j, **each)


@each_sample
@each_likelihood
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_features_of_our_bases_give_what_they_give(rng, name, k, likelihood, columns):
    model, X, Y = problem(rng, name, k, likelihood)
    sample = UNITS._replace(columns=columns)
    t = (
        None
        if columns is not None or likelihood is LIKELIHOODS[0]
        else rng.uniform(0.5, 1.5, len(Y))
    )
    Phi_i, Phi_j, s, named = own_features(model, X, sample)
    value, bars, info = fs.qsgp.sampled_bound_and_grad_from_features(
        Phi_i, Phi_j, model.posterior, likelihood, Y, named, precision=s, num_data=20, tangent=t
    )
    wrt = ("posterior", "likelihood", *(("basis.precision",) if name == "relevance" else ()))
    expected, grad, truth = fs.qsgp.sampled_bound_and_grad(
        model, X, Y, sample, num_data=20, jitter=0.0, tangent=t, wrt=wrt
    )
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    for one, other in ((info.mean, truth.mean), (info.var, truth.var), (info.terms, truth.terms)):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
    Phi_i_bar, Phi_j_bar, precision_bar, posterior_bar, likelihood_bar = bars
    assert Phi_i_bar.shape == Phi_i.shape and Phi_j_bar.shape == Phi_j.shape
    rows = [
        (getattr(posterior_bar, field), getattr(grad.posterior, field))
        for field in ("mean", "columns", "diagonal")
    ]
    if name == "relevance":
        rows.append((precision_bar, grad.basis.precision))
    for one, other in rows:
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_allclose(one.values, other.values, rtol=1e-9, atol=1e-10)
    assert (precision_bar is None) == (s.ndim == 2)
    if likelihood is LIKELIHOODS[0]:
        np.testing.assert_allclose(likelihood_bar.variance, grad.likelihood.variance, rtol=1e-10)


@each_sample
@each_likelihood
@pytest.mark.parametrize("dense", [False, True])
def test_bars_by_differences(rng, dense, likelihood, columns):
    """In all arguments: features, s, mean, dense columns, diagonal, and the noise."""
    model, X, Y = problem(rng, "inducing" if dense else "relevance", 1, likelihood)
    Phi_i, Phi_j, s, sample = own_features(model, X, UNITS._replace(columns=columns))
    q, m = model.posterior, len(model.posterior.mean)

    def at(*arrays):
        Phi_i, Phi_j, mean, columns, diagonal, *rest = arrays
        noise = fs.Gaussian(rest.pop()) if likelihood is LIKELIHOODS[0] else likelihood
        posterior = fs.qsgp.ChevronWeights(mean, columns, diagonal)
        return fs.qsgp.sampled_bound_and_grad_from_features(
            Phi_i,
            Phi_j,
            posterior,
            noise,
            Y,
            sample,
            precision=rest.pop() if rest else s,
            num_data=20,
        )

    given = [Phi_i, Phi_j, q.mean, q.columns, q.diagonal]
    value, (Phi_i_bar, Phi_j_bar, precision_bar, posterior_bar, likelihood_bar), _ = at(
        *given,
        *(() if dense else (s,)),
        *((likelihood.variance,) if likelihood is LIKELIHOODS[0] else ()),
    )
    rows = zip(
        (posterior_bar.mean, posterior_bar.columns, posterior_bar.diagonal),
        (m, m, m - 1),
        strict=True,
    )
    bars = [Phi_i_bar, Phi_j_bar, *(bar.dense(length) for bar, length in rows)]
    if not dense:
        given, bars = [*given, s], [*bars, precision_bar.dense(m)]
    if likelihood is LIKELIHOODS[0]:
        given, bars = [*given, np.float64(likelihood.variance)], [*bars, likelihood_bar.variance]
    for which, (array, bar) in enumerate(zip(given, bars, strict=True)):
        d = rng.standard_normal(np.shape(array))

        def along(h, which=which, array=array, d=d):
            return at(*given[:which], array + h * d, *given[which + 1 :])[0]

        scale = max(1.0, abs(value), np.linalg.norm(bar) * np.linalg.norm(d))
        assert abs(nine_point(along, 1e-4) - np.vdot(bar, d)) <= 1e-7 * scale, which


def test_one_sample_is_enough_for_other_likelihoods(rng):
    model, X, Y = problem(rng, "relevance", 0, fs.likelihoods.BernoulliLogit())
    Phi_i, _, s, sample = own_features(
        model, X, fs.qsgp.BasisSample(np.array([2, 0]), weight_i=np.array([1.5, 1.4]))
    )
    q = model.posterior
    value, bars, _ = fs.qsgp.sampled_bound_and_grad_from_features(
        Phi_i, None, q, model.likelihood, Y, sample, precision=s
    )
    expected, _, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, tangent=1.0)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    assert bars[1] is None and bars[0].shape == Phi_i.shape and list(bars[2].rows) == [0, 2]


@pytest.mark.parametrize("dense", [False, True])
def test_float32_and_what_is_not_named(rng, dense):
    """NaN of a function outside the sample is not read."""
    m, i, j = 5, np.array([1, 3]), np.array([3, 0, 1])
    phi, Y = rng.standard_normal((4, m)), rng.standard_normal(4)
    q = fs.qsgp.ChevronWeights(rng.standard_normal(m), np.zeros((m, 0)), rng.uniform(0.5, 1, m))
    s = np.eye(m) + 0.1 if dense else rng.uniform(0.5, 1, m)
    q.mean[[2, 4]], q.diagonal[[2, 4]], s[[2, 4]] = np.nan, np.nan, np.nan
    sample, noise = fs.qsgp.BasisSample(i, j), fs.Gaussian(0.3)
    value, bars, _ = fs.qsgp.sampled_bound_and_grad_from_features(
        phi[:, i], phi[:, j], q, noise, Y, sample, precision=s
    )
    assert np.isfinite(value) and all(np.isfinite(bar).all() for bar in bars[:2])
    single = [np.float32(a) for a in (phi[:, i], phi[:, j], Y, s)]
    q = fs.records.tree_map(np.float32, q)
    found, others, info = fs.qsgp.sampled_bound_and_grad_from_features(
        *single[:2], q, noise, single[2], sample, precision=single[3]
    )
    np.testing.assert_allclose(found, value, rtol=1e-4)
    assert info.mean.dtype == others[0].dtype == others[3].mean.values.dtype == np.float32
    np.testing.assert_allclose(others[0], bars[0], atol=1e-3 * np.abs(bars[0]).max())


def test_bad_input(rng):
    model, X, Y = problem(rng, "relevance", 1, fs.Gaussian(variance=0.2))
    Phi_i, Phi_j, s, sample = own_features(model, X, UNITS)
    good = dict(
        Phi_i=Phi_i,
        Phi_j=Phi_j,
        posterior=model.posterior,
        likelihood=model.likelihood,
        Y=Y,
        sample=sample,
        precision=s,
    )
    holed, logit = Phi_i.copy(), fs.likelihoods.BernoulliLogit()
    holed[0, 1] = np.nan
    asymmetric = np.eye(3)
    asymmetric[2, 1] = np.inf
    for bad, error, said in (
        (
            {"Phi_i": Phi_i[:, :2]},
            ValueError,
            r"`Phi_i` must have .* a column for each function of `sample.i`, got \(7, 2\)",
        ),
        ({"Phi_j": Phi_j[:3]}, ValueError, r"`Phi_j` must have a row for each datum"),
        ({"Phi_j": None}, ValueError, "`Phi_j` must have the features of the functions `sample.j`"),
        ({"Phi_i": holed}, ValueError, r"`Phi_i` contains nan at index \(0, 1\)"),
        ({"Y": Y[:3]}, ValueError, "`Y` must have one row for each of the 7 rows of `Phi_i`"),
        ({"precision": s[:2]}, ValueError, "`posterior` has mean"),
        (
            {"precision": np.ones((3, 2))},
            ValueError,
            r"`precision` must have shape \(m,\) or \(m, m\)",
        ),
        ({"precision": -s}, ValueError, "`precision` must be positive"),
        ({"precision": asymmetric}, ValueError, "`precision` contains inf"),
        ({"precision": -np.eye(3)}, ValueError, "`precision` must be positive"),
        ({"precision": s.astype(np.float32)}, TypeError, "`precision` is float32"),
        ({"posterior": model}, TypeError, "`posterior` must be a fastsvgp.qsgp.ChevronWeights"),
        (
            {"posterior": fs.replace(model.posterior, mean=None)},
            TypeError,
            "`posterior.mean` is None",
        ),
        ({"likelihood": model}, TypeError, "`likelihood`"),
        ({"likelihood": fs.StudentT(0.3, df=4.0)}, TypeError, "not log-concave"),
        (
            {"likelihood": logit, "Y": (Y > 0) * 1.0, "tangent": -1.0},
            ValueError,
            "`tangent` must be positive",
        ),
        (
            {"sample": sample._replace(i=np.array([0, 1, 3]))},
            ValueError,
            "`sample.i` names 3, but the basis has 3 units",
        ),
        ({"sample": (0, 1)}, TypeError, "`sample` must be a fastsvgp.qsgp.BasisSample"),
        ({"num_data": 3}, ValueError, "`num_data` is 3"),
    ):
        with pytest.raises(error, match=said):
            fs.qsgp.sampled_bound_and_grad_from_features(**(good | bad))
