"""Covariances of some columns, and periodic ones: checks, peers, and far inputs."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs


def test_on_gathers_its_columns_and_scatters_their_gradient(rng):
    part, X, Z = fs.RBF(1.2, np.array([0.7, 1.3])), *rng.standard_normal((2, 6, 4))
    some = part.on(3, 0)
    assert type(some) is fs.covariances.On and some.columns == (3, 0)
    np.testing.assert_array_equal(some.matrix(X, Z), part.matrix(X[:, [3, 0]], Z[:, [3, 0]]))
    K_bar = rng.standard_normal((6, 6))
    whole, X_bar, Z_bar = some.matrix_vjp(K_bar, None, X, Z)
    own, *bars = part.matrix_vjp(K_bar, None, X[:, [3, 0]], Z[:, [3, 0]])
    np.testing.assert_array_equal(whole.part.lengthscales, own.lengthscales)
    for found, expected in zip((X_bar, Z_bar), bars, strict=True):
        np.testing.assert_array_equal(found[:, [3, 0]], expected)
        assert not found[:, 1:3].any()


def test_columns_are_numbers_of_any_kind(tmp_path):
    some = fs.covariances.On(fs.Linear(), columns=[np.int64(2), 0])
    assert some.columns == (2, 0) and type(some.columns[0]) is int
    np.testing.assert_array_equal(fs.Linear().on(0).on(1).matrix(np.eye(2)), np.diag([0.0, 1.0]))
    fs.save(tmp_path / "some.npz", some)
    assert fs.load(tmp_path / "some.npz").columns == (2, 0)


@pytest.mark.parametrize(
    "covariance, error, message",
    [
        (fs.RBF().on(0, 3), ValueError, r"On: `columns` names column 3, but the inputs have D = 3"),
        (fs.RBF().on(1, 1), ValueError, r"On: `columns` names column 1 twice, in \(1, 1\)"),
        (fs.RBF().on(-1), ValueError, "`columns of On` must be a whole number of at least 0"),
        (fs.RBF().on(0.5), ValueError, "`columns of On` must be a whole number of at least 0"),
        (fs.RBF().on(), TypeError, r"On: `columns` must be a tuple of column numbers .* got \(\)"),
        (
            fs.covariances.On(fs.RBF(), columns=1),
            TypeError,
            "On: `columns` must be a tuple .* got 1",
        ),
        (
            fs.covariances.On(1.0, columns=(0,)),
            TypeError,
            "On.part: `part` must be a covariance .* got float",
        ),
        (fs.RBF(1.0, np.ones(2)).on(0), ValueError, r"On.part: RBF: `lengthscales` has shape"),
        (
            fs.covariances.OnFeatures(fs.RBF(), fs.covariances.Network.random((1, 2), rng=0)).on(0),
            TypeError,
            "On.part: a OnFeatures has inducing variables of its own",
        ),
        (fs.Periodic(fs.Linear()), TypeError, "Periodic: `part` must be a stationary .* Linear"),
        (fs.Periodic(fs.RBF() + 1.0), TypeError, "Periodic: `part` must be a stationary .* Sum"),
        (fs.Periodic(2.0), TypeError, "Periodic.part: `part` must be a covariance .* got float"),
        (
            fs.Periodic(fs.RBF(), np.ones(2)),
            ValueError,
            r"Periodic: `period` has shape \(2,\), but the inputs have D = 3 columns.*\(3,\)",
        ),
    ],
)
def test_bad_parts_are_named(covariance, error, message):
    with pytest.raises(error, match=message):
        covariance.check_dim(3)


def test_a_period_is_positive(rng):
    Z = rng.standard_normal((4, 1))
    for period in (0.0, -1.0):
        model = fs.SVGP(
            fs.Periodic(fs.RBF(), period),
            Z,
            fs.Whitened(np.zeros(4), lower_factor(rng, 4)),
            fs.Gaussian(0.1),
        )
        with pytest.raises(ValueError, match=r"`covariance.period` must be positive"):
            fs.elbo(model, Z, Z[:, 0])


def test_values_repeat_after_a_period(rng):
    covariance = fs.Periodic(fs.Matern52(1.3, [0.8, 1.2]), [0.5, 2.0])
    X = rng.standard_normal((5, 2))
    moved = X + np.array([0.5, 2.0]) * rng.integers(-3, 4, (5, 2))
    np.testing.assert_allclose(covariance.matrix(X, moved), covariance.matrix(X), atol=1e-13)


def test_far_inputs_keep_what_digits_they_have(rng):
    """Times in seconds with a period of 1: finite, with the digits that the numbers resolve."""
    covariance, near = fs.Periodic(fs.RBF(1.3, 0.8), 1.0), rng.integers(0, 64, (6, 1)) / 64.0
    K_bar = rng.standard_normal((6, 6))
    far = near + 1e9
    np.testing.assert_allclose(covariance.matrix(far), covariance.matrix(near), rtol=1e-13)
    bars = [covariance.matrix_vjp(K_bar + K_bar.T, None, X)[:2] for X in (near, far)]
    np.testing.assert_allclose(bars[1][1], bars[0][1], atol=1e-12)
    np.testing.assert_allclose(bars[1][0].period, bars[0][0].period, rtol=1e-10)


def test_periodic_equals_scikit_learn(rng):
    peers = pytest.importorskip("sklearn.gaussian_process.kernels")
    X = rng.uniform(-3, 3, (9, 1))
    ours, theirs = fs.Periodic(fs.RBF(1.0, 0.7), 1.9), peers.ExpSineSquared(0.7, 1.9)
    np.testing.assert_allclose(ours.matrix(X), theirs(X), rtol=0, atol=1e-14)
