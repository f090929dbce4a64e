"""Bases of sines: sizes, rules for lengthscales, and what they refuse."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.bounds import HilbertBasis
from fastsvgp.covariances import Additive


@pytest.mark.parametrize("kind", [fs.RBF, fs.Matern32, fs.Matern52])
@pytest.mark.parametrize("scale", [0.05, 0.2, 0.8])
def test_the_rule_holds_the_evidence_of_the_exact_process(kind, scale, rng):
    """To the missing 1e-4 of the variance over the noise, 0.01: 0.01 nats a row."""
    X, covariance = rng.uniform(-1, 1, (150, 1)), kind(1.0, scale)
    K = covariance.matrix(X) + 0.01 * np.eye(150)
    y = np.linalg.cholesky(K) @ rng.standard_normal(150)
    exact = -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1] + 150 * np.log(2 * np.pi))
    basis = HilbertBasis.for_lengthscales(X, covariance)
    model = fs.BasisGP(covariance, basis, 0.01)
    assert abs(fs.collapsed_bound(model, X, y) - exact) / 150 < 0.01
    assert abs(model.missing(fs.sufficient_sums(basis, X, y))) < 4e-4


def test_groups_follow_the_terms(rng):
    X = rng.uniform(0, 1, (50, 4))
    covariance = (
        fs.RBF(1.0, 0.5).on(2) + fs.Matern52(0.3, np.array([1.0, 0.8])).on(0, 3) + fs.RBF().on(2)
    )
    basis = HilbertBasis.for_lengthscales(X, covariance)
    assert basis.groups == ((0, 3), (2,)) and basis.num_functions[1] == 1
    assert basis.size == basis.num_functions[[0, 3]].prod() + basis.num_functions[2]
    pairs = HilbertBasis.for_lengthscales(X[:, :3], Additive([1.0, 0.5], 1.0))
    assert pairs.groups == ((0,), (0, 1), (0, 2), (1,), (1, 2), (2,))
    squares = pairs.squared_frequencies()
    assert squares.shape == (pairs.size, 3) and np.isnan(squares).sum(1).max() == 2


def test_bad_input(rng):
    X = rng.uniform(0, 1, (50, 4))
    with pytest.raises(ValueError, match="sines of up to 3 columns, got 4"):
        HilbertBasis.for_lengthscales(X, fs.RBF(1.0, 3.0))
    with pytest.raises(ValueError, match=r"m = 6400 functions.*m\^3 = 2.6e\+11 flops"):
        HilbertBasis(X.min(0)[:2], X.max(0)[:2], 80, 1.5)
    with pytest.raises(TypeError, match="Linear has no spectral density.*Additive"):
        HilbertBasis.for_lengthscales(X, fs.RBF().on(0) + fs.Linear().on(1))
    with pytest.raises(ValueError, match="column 1.*constant column has no basis"):
        HilbertBasis([0.0, 1.0], [1.0, 1.0], 5, 1.5)
    with pytest.raises(ValueError, match="`boundary` must be above 1, got 1"):
        HilbertBasis(0.0, 1.0, 5, 1.0)
    with pytest.raises(ValueError, match="`num_functions` must be whole numbers"):
        HilbertBasis(0.0, 1.0, 5.5, 1.2)
    with pytest.raises(ValueError, match=r"`upper` of a HilbertBasis must be one number or \(2,\)"):
        HilbertBasis([0.0, 0.0], [1.0, 1.0, 1.0], 5, 1.2)
    with pytest.raises(ValueError, match=r"`groups` must hold different columns from 0 to 0"):
        HilbertBasis(0.0, 1.0, 5, 1.2, groups=((1,),))
    with pytest.raises(ValueError, match="finite numbers"):
        HilbertBasis(0.0, np.inf, 5, 1.2)
