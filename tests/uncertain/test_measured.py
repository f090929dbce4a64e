"""True inputs given measurements."""

import numpy as np
import pytest

import fastsvgp as fs


def test_it_is_the_posterior_of_a_normal_population(rng):
    """The joint normal of true input and measurement, conditioned."""
    c, t2, obs, s = 0.7, 1.9, rng.standard_normal((5, 1)), rng.uniform(0.1, 2, (5, 1))
    found = fs.bounds.measured(obs, s, population=([c], [t2]))
    for m, v, o, e in zip(found.mean[:, 0], found.var[:, 0], obs[:, 0], s[:, 0], strict=True):
        joint = np.array([[t2, t2], [t2, t2 + e]])
        np.testing.assert_allclose(m, c + joint[0, 1] / joint[1, 1] * (o - c))
        np.testing.assert_allclose(v, t2 - joint[0, 1] ** 2 / joint[1, 1])


def test_the_population_comes_from_the_measurements(rng):
    obs, var = rng.standard_normal((50, 3)), np.array([0.0, 0.3, 5.0])
    obs[:, 1] *= 2
    found = fs.bounds.measured(obs, var)
    np.testing.assert_array_equal(found.mean[:, 0], obs[:, 0])  # exact
    assert not found.var[:, 0].any()
    t2 = obs[:, 1].var() - 0.3
    np.testing.assert_allclose(found.var[:, 1], t2 * 0.3 / (t2 + 0.3))
    assert (found.var[:, 2] < obs[:, 2].var()).all()  # less variance than of the errors
    single = fs.bounds.measured(obs.astype(np.float32), 0.1)
    assert single.mean.dtype == single.var.dtype == np.float32
    assert np.isfinite(fs.bounds.measured(np.ones((4, 1)), 0.1).mean).all()


def test_bad_input_is_refused_by_name(rng):
    obs = rng.standard_normal((5, 2))
    cases = [
        (lambda: fs.bounds.measured(obs[0], 0.1), "`obs` must be (N, D)"),
        (lambda: fs.bounds.measured(obs, np.ones(3)), "`var`"),
        (lambda: fs.bounds.measured(obs, -0.1), "holds variances, got -0.1"),
        (lambda: fs.bounds.measured(obs * np.nan, 0.1), "measured.mean"),
        (lambda: fs.bounds.measured(obs, 0.1, population=([0, 0], [1, 0])), "`population`"),
    ]
    for call, text in cases:
        with pytest.raises(ValueError) as caught:
            call()
        assert text in str(caught.value), str(caught.value)
