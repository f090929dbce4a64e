"""Models, samples and settings that sampled bounds refuse."""

import numpy as np
import pytest
from support.sampled_problems import FIRST, SECOND, problem

import fastsvgp as fs


@pytest.mark.parametrize(
    "jitter, error", [(-1e-6, ValueError), (np.nan, ValueError), ("much", TypeError)]
)
def test_invalid_jitters(rng, jitter, error):
    model, X, Y = problem(rng, "inducing", 0, fs.Gaussian(variance=0.2))
    with pytest.raises(error, match="`jitter`"):
        fs.qsgp.sampled_bound_and_grad(
            model, X, Y, fs.qsgp.BasisSample(FIRST, SECOND), wrt="posterior", jitter=jitter
        )


@pytest.mark.parametrize("sample, options, error, said", [
    (fs.qsgp.BasisSample(np.array([0, 3]), SECOND), {}, ValueError,
     "`sample.i` names 3, but the basis has 3 units"),
    (fs.qsgp.BasisSample(FIRST, np.array([-1])), {}, ValueError, "`sample.j` names -1"),
    (fs.qsgp.BasisSample(np.array([0.0]), SECOND), {}, TypeError,
     "`sample.i` must hold one or more whole numbers"),
    (fs.qsgp.BasisSample(np.array([], int), SECOND), {}, TypeError,
     "`sample.i` must hold one or more whole numbers"),
    (fs.qsgp.BasisSample(FIRST, SECOND, weight_i=np.array([1.0, 0.0])), {}, ValueError,
     "`sample.weight_i` must be positive, got 0$"),
    (fs.qsgp.BasisSample(FIRST, SECOND, weight_j=np.ones((1, 2))), {}, ValueError,
     r"`sample.weight_j` must be a number or have"),
    (fs.qsgp.BasisSample(FIRST, SECOND, weight_i=1.0, weight_j=np.nan), {}, ValueError,
     "`sample.weight_j`"),
    (fs.qsgp.BasisSample(FIRST), {}, ValueError, "`sample` has no j, needed for Gaussian noise"),
    (FIRST, {}, TypeError, "`sample` must be a fastsvgp.qsgp.BasisSample"),
    (fs.qsgp.BasisSample(FIRST, SECOND), {"wrt": "basis.nothing"}, ValueError, "`wrt` names"),
    (fs.qsgp.BasisSample(FIRST, SECOND), {"num_data": 2}, ValueError, "`num_data` is 2"),
])  # fmt: skip
def test_bad_samples(rng, sample, options, error, said):
    model, X, Y = problem(rng, "fourier", 2, fs.Gaussian(variance=0.2))
    with pytest.raises(error, match=said):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, **options)


@pytest.mark.parametrize(
    "value, said",
    [(np.nan, "contains nan at"), (0.0, "must be positive, got 0"), (-1.0, "must be")],
)
def test_pivots_are_checked_for_any_sample(rng, value, said):
    model, X, Y = problem(rng, "inducing", 2, fs.Gaussian(variance=0.2))
    model.posterior.columns[1, 1] = value
    with pytest.raises(ValueError, match=f"`diagonal of posterior.columns` {said}"):
        fs.qsgp.sampled_bound_and_grad(
            model, X, Y, fs.qsgp.BasisSample(np.array([2]), np.array([2])), wrt="posterior"
        )


def test_bad_models(rng):
    sample = fs.qsgp.BasisSample(FIRST, SECOND)
    model, X, Y = problem(rng, "inducing", 1, fs.likelihoods.BernoulliLogit())
    for wrt in (None, "basis", "basis.covariance.variance"):
        with pytest.raises(
            ValueError, match=r"log\|S\| of an InducingBasis has no gradient from a sample"
        ):
            fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt)
    with pytest.raises(ValueError, match="`sample` has no j, needed for dense columns"):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, fs.qsgp.BasisSample(FIRST), wrt="posterior")
    for tangent, said in ((0.0, "positive"), (np.ones(3), "one for each row"), (np.nan, "nan")):
        with pytest.raises(ValueError, match=f"`tangent`.*{said}"):
            fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt="posterior", tangent=tangent)
    with pytest.raises(TypeError, match="a StudentT likelihood is not log-concave"):
        fs.qsgp.sampled_bound_and_grad(
            fs.replace(model, likelihood=fs.StudentT(0.3, df=4.0)), X, Y, sample, wrt="posterior"
        )
    for path, value in (
        ("basis.covariance.variance", -1.0),
        ("basis.covariance.lengthscales", np.array([1.0, 0.0])),
    ):
        with pytest.raises(ValueError, match=f"`{path}` must be positive"):
            fs.qsgp.sampled_bound_and_grad(
                fs.records.replace_at(model, path, value), X, Y, sample, wrt="posterior"
            )
    single = fs.records.replace_at(model, "posterior.mean", model.posterior.mean.astype(np.float32))
    with pytest.raises(TypeError, match="`posterior.mean` is float32"):
        fs.qsgp.sampled_bound_and_grad(single, X, Y, sample, wrt="posterior")
    for value, said in ((-1.0, "positive"), (np.nan, "nan")):
        relevance, *_ = problem(rng, "relevance", 1, fs.likelihoods.BernoulliLogit())
        relevance = fs.records.replace_at(relevance, "basis.precision", np.array([1.0, value, 1.0]))
        with pytest.raises(ValueError, match=f"`basis.precision`.*{said}"):
            fs.qsgp.sampled_bound_and_grad(relevance, X, Y, sample)
    diagonal = fs.records.replace_at(model, "posterior.diagonal", -model.posterior.diagonal)
    with pytest.raises(ValueError, match="`posterior.diagonal` must be positive"):
        fs.qsgp.sampled_bound_and_grad(diagonal, X, Y, sample, wrt="posterior")
