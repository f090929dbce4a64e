"""Bases by their contract: products with features, the prior of the weights, and cotangents."""

import numpy as np
import pytest
from support.numerics import nine_point
from support.weight_problems import BASES, COVARIANCE, basis_of

import fastsvgp as fs
from fastsvgp.qsgp.bases.base import BasisWeights

JITTER = 1e-2
N, M = 11, 8


def problem(rng, name, R=3):
    basis = basis_of(rng, name, M)
    return basis, rng.standard_normal((N, 2)), rng.standard_normal((R, M)), rng.uniform(0.1, 1.0, M)


def prior_precision(basis):
    if isinstance(basis, fs.qsgp.RelevanceBasis):
        return np.diag(basis.precision)
    return (
        basis.covariance.matrix(basis.inducing) + JITTER * np.eye(M)
        if isinstance(basis, fs.qsgp.InducingBasis)
        else np.eye(M)
    )


@pytest.mark.parametrize("name", BASES)
def test_products_and_energy_are_those_of_whole_features(rng, name):
    basis, X, W, v = problem(rng, name)
    phi, S = basis.features(X), prior_precision(basis)
    assert phi.shape == (N, M) and basis.num_functions() == M
    out, squares = basis.products(X, BasisWeights(W, v))
    np.testing.assert_allclose(out, W @ phi.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(squares, (phi * phi) @ v, rtol=1e-10)
    energy = basis.energy(W, v, JITTER)
    np.testing.assert_allclose(energy.quadratic, np.trace(W @ S @ W.T) + np.diag(S) @ v, rtol=1e-11)
    np.testing.assert_allclose(energy.log_det, np.linalg.slogdet(S)[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", BASES)
def test_cotangents_of_a_basis_by_differences(rng, name):
    """Of every result of a basis, in every argument."""
    basis, X, W, v = problem(rng, name)
    out_bar, squares_bar, a, b = rng.standard_normal((3, N)), rng.standard_normal(N), 0.7, -0.4
    of_data = basis.products_vjp(X, BasisWeights(W, v), out_bar, squares_bar, ("basis",))
    of_prior = basis.energy_vjp(a, b, basis.energy(W, v, JITTER).saved, W, v, ("basis",))
    vector, unravel = fs.ravel(basis, unconstrained=False)
    bar = unravel.pullback(vector, basis.gradient(of_data[2], of_prior[2]))

    def value(vector, W, v):
        there = unravel(vector)
        out, squares = there.products(X, BasisWeights(W, v))
        energy = there.energy(W, v, JITTER)
        return (
            np.vdot(out_bar, out)
            + squares_bar @ squares
            + a * energy.quadratic
            + b * energy.log_det
        )

    for k, (at, found) in enumerate(
        ((vector, bar), (W, of_data[0] + of_prior[0]), (v, of_data[1] + of_prior[1]))
    ):
        d = rng.standard_normal(at.shape)
        arguments = [vector, W, v]

        def along(s, k=k, at=at, d=d, arguments=arguments):
            return value(*arguments[:k], at + s * d, *arguments[k + 1 :])

        assert abs(nine_point(along, 1e-3) - np.vdot(found, d)) < 1e-8 * max(
            1, np.linalg.norm(found) * np.linalg.norm(d)
        )


@pytest.mark.parametrize("name", BASES)
def test_only_what_is_needed_of_a_basis(rng, name):
    basis, X, W, v = problem(rng, name)
    out_bar, squares_bar, saved = (
        rng.standard_normal((3, N)),
        rng.standard_normal(N),
        basis.energy(W, v, JITTER).saved,
    )
    whole = basis.gradient(
        *(f[2] for f in both(basis, out_bar, squares_bar, X, W, v, saved, ("basis",)))
    )
    for path, _, _ in fs.records.leaves(basis):
        of_data, of_prior = both(basis, out_bar, squares_bar, X, W, v, saved, (f"basis.{path}",))
        found = {
            p: a
            for p, _, a in fs.records.leaves(basis.gradient(of_data[2], of_prior[2]))
            if a is not None
        }
        assert set(found) == {path}
        np.testing.assert_allclose(
            found[path], dict((p, a) for p, _, a in fs.records.leaves(whole))[path], rtol=1e-10
        )
    for of_nothing in both(basis, out_bar, squares_bar, X, W, v, saved, ("posterior",)):
        assert of_nothing[2] == {}


def both(basis, out_bar, squares_bar, X, W, v, saved, need):
    return basis.products_vjp(X, BasisWeights(W, v), out_bar, squares_bar, need), basis.energy_vjp(
        0.7, -0.4, saved, W, v, need
    )


@pytest.mark.parametrize("name", [name for name in BASES if name != "fourier"])
def test_panels_give_the_result_of_one_matrix(rng, name, tune):
    basis, X, W, v = problem(rng, name)
    bars = rng.standard_normal((3, N)), rng.standard_normal(N)
    whole = (
        basis.products(X, BasisWeights(W, v)),
        basis.products_vjp(X, BasisWeights(W, v), *bars, ("basis",)),
    )
    tune(basis_panel_numbers=3 * N)
    parts = (
        basis.products(X, BasisWeights(W, v)),
        basis.products_vjp(X, BasisWeights(W, v), *bars, ("basis",)),
    )
    for a, b in zip(whole[0] + whole[1][:2], parts[0] + parts[1][:2], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-13)
    for (_, _, a), (_, _, b) in zip(
        fs.records.leaves(basis.gradient(whole[1][2])),
        fs.records.leaves(basis.gradient(parts[1][2])),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("family", ["RBF", "Matern12", "Matern32", "Matern52"])
def test_many_fourier_features_have_the_covariance(rng, family):
    """Its diagonal exactly; the rest to 5 sigma of a mean of numbers between -1 and 1."""
    covariance, m = getattr(fs, family)(1.7, np.array([0.8, 1.3])), 40_000
    X, basis = (
        rng.standard_normal((6, 2)),
        fs.qsgp.RandomFourier(covariance, num_features=m, seed=7),
    )
    one, nothing = np.ones((1, 1)), BasisWeights(np.zeros((1, m)), np.zeros(m))
    phi = np.concatenate([basis.products_vjp(x[None], nothing, one, np.zeros(1), ())[0] for x in X])
    K = phi @ phi.T
    np.testing.assert_allclose(np.diag(K), 1.7, rtol=1e-9)
    assert np.abs(K - covariance.matrix(X)).max() < 5 * 1.7 / np.sqrt(m / 2)


@pytest.mark.parametrize("name", BASES)
def test_products_of_some_units_are_those_of_their_functions(rng, name):
    basis, X, W, v = problem(rng, name)
    units = np.array([2, 0, 2, 3])
    at = basis.functions(units)
    assert list(at) == ([4, 5, 0, 1, 4, 5, 6, 7] if name == "fourier" else [2, 0, 2, 3])
    phi, W, v = basis.features(X)[:, at], W[:, at], v[at]
    out, squares = basis.products(X, BasisWeights(W, v, units))
    np.testing.assert_allclose(out, W @ phi.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(squares, (phi * phi) @ v, rtol=1e-10)
    out_bar, squares_bar = rng.standard_normal((3, N)), rng.standard_normal(N)
    W_bar, v_bar, bars = basis.products_vjp(
        X, BasisWeights(W, v, units), out_bar, squares_bar, ("basis",)
    )
    np.testing.assert_allclose(W_bar, out_bar @ phi, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(v_bar, squares_bar @ (phi * phi), rtol=1e-10, atol=1e-12)
    whole = np.zeros((3, M)), np.zeros(M)
    np.add.at(whole[0].T, at, W.T)  # the same function, with the weights of its repeats
    np.add.at(whole[1], at, v)
    expected = basis.products_vjp(X, BasisWeights(*whole), out_bar, squares_bar, ("basis",))[2][
        "covariance"
    ]
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(bars["covariance"]), fs.records.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=path)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("squares", [True, False])
def test_products_and_vjp_are_those_of_two_calls(rng, name, squares):
    """Also with the results that the forward pass keeps for the backward pass."""
    basis, X, W, v = problem(rng, name)
    v, squares_bar = (v, rng.standard_normal(N)) if squares else (None, None)
    out_bar, need, weights = rng.standard_normal((3, N)), ("basis",), BasisWeights(W, v, None, [])
    products, found = basis.products_and_vjp(X, weights, out_bar, squares_bar, need)
    separate = (
        basis.products(X, weights),
        basis.products_vjp(X, weights, out_bar, squares_bar, need),
    )
    for a, b in zip(products + found[:2], separate[0] + separate[1][:2], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    for a, b in zip(
        *(fs.records.leaves(basis.gradient(bars)) for bars in (found[2], separate[1][2])),
        strict=True,
    ):
        np.testing.assert_allclose(a[2], b[2], rtol=1e-11) if a[2] is not None else None


def test_fourier_features_depend_on_the_seed():
    X = np.linspace(-1, 1, 5)[:, None]
    one, same, other = (
        fs.qsgp.RandomFourier(COVARIANCE[1], num_features=8, seed=seed).features(X)
        for seed in (1, 1, 2**64 - 1)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-3
