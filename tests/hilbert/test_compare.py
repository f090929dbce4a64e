"""Cross-validation from sums, against the rows."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.bounds import HilbertBasis, compare, sufficient_sums


def problem(rng, n=200):
    X = rng.uniform(-1, 1, (n, 1))
    y = np.sin(5 * X[:, 0]) + 0.2 * rng.standard_normal(n)
    basis = HilbertBasis(-1.0, 1.0, 25, 2.0)
    return basis, X, y


def test_scores_are_those_of_the_rows(rng):
    basis, X, y = problem(rng)
    at = [np.arange(200) % 4 == i for i in range(4)]
    folds = [sufficient_sums(basis, X[one], y[one]) for one in at]
    total = sufficient_sums(basis, X, y)
    (scores,) = compare(total, [fs.RBF(1.0, 0.4)], folds)
    model, joint, errors = fs.BasisGP(fs.RBF(1.0, 0.4), basis, 0.1 * np.mean(y**2)), [], []
    for one in at:
        model, info = fs.fit(model, X[~one], y[~one])
        mean, cov = fs.predict_f(info.svgp, X[one], full_cov=True)
        K, e = cov + model.noise_variance * np.eye(50), y[one] - mean
        logs = e @ np.linalg.solve(K, e) + np.linalg.slogdet(K)[1] + 50 * np.log(2 * np.pi)
        joint.append(-0.5 * logs)
        errors.append(e @ e)
    np.testing.assert_allclose(np.array(scores.log_densities) * 50, joint, rtol=1e-3)
    assert np.isclose(scores.rmse, np.sqrt(np.sum(errors) / 200), rtol=1e-4)
    assert np.isclose(scores.log_density, np.sum(joint) / 200, rtol=1e-3)
    assert isinstance(scores.model, fs.BasisGP)


def test_smooth_functions_prefer_a_smooth_covariance(rng):
    X = rng.uniform(-1, 1, (400, 1))
    y = np.sin(5 * X[:, 0]) + 0.05 * rng.standard_normal(400)
    basis = HilbertBasis(-1.0, 1.0, 60, 2.0)
    folds = [sufficient_sums(basis, X[i::4], y[i::4]) for i in range(4)]
    scores = compare(sum(folds[1:], folds[0]), [fs.RBF(1.0, 0.4), fs.Matern12(1.0, 0.4)], folds)
    assert scores[0].log_density > scores[1].log_density
    assert 0.04 < scores[0].rmse < 0.06


def test_bad_input(rng):
    basis, X, y = problem(rng)
    total = sufficient_sums(basis, X, y)
    with pytest.raises(ValueError, match="leave nothing"):
        compare(total, [fs.RBF()], [total])
    with pytest.raises(TypeError, match="`folds` must be SufficientSums, got none"):
        compare(total, [fs.RBF()], [])
    with pytest.raises(TypeError, match="`sums` must be SufficientSums, got int"):
        compare(3, [fs.RBF()], [total])
    other = sufficient_sums(fs.replace(basis, boundary=3.0), X[:9], y[:9])
    with pytest.raises(ValueError, match="another basis: `boundary`"):
        compare(total, [fs.RBF()], [other])
