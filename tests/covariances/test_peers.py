"""Entries that GPflow, GPyTorch and BoTorch compute (``support/covariance_peers.py``)."""

import json

import numpy as np
import pytest
from support.covariance_peers import FILE, L, W

import fastsvgp as fs

FOUND = json.loads(FILE.read_text())
X1, X2, CODES = (np.array(FOUND[name]) for name in ("X1", "X2", "codes"))
OURS = {
    "rational quadratic": fs.covariances.RationalQuadratic(1.3, L, 0.6),
    # its sine is halved, so its lengthscales are half of ours
    "periodic": fs.Periodic(fs.RBF(1.3, 2 * L), np.array([2.1, 3.4])),
    "periodic matern52": fs.Periodic(fs.Matern52(0.8, 2.2), 2.7),
    "cosine": fs.covariances.Cosine(1.2, 1 / L),
    "polynomial": fs.covariances.Polynomial(W, 0.7, degree=3),
    "arc cosine": fs.covariances.ArcCosine(1.1, W, 0.5, order=1),
    "arc cosine of order 2": fs.covariances.ArcCosine(1.1, W, 0.5, order=2),
    "coregion": fs.covariances.Coregion(
        np.arange(8.0).reshape(4, 2) / 5 - 0.7, np.array([0.3, 0.8, 1.1, 0.5])
    ),
    "change points": fs.covariances.ChangePoints(
        (fs.RBF(1.3, L[:1]), fs.Matern32(0.6, L[1:])),
        at=np.array([0.25]),
        steepness=np.array([2.5]),
        column=0,
    ),
    "on": fs.RBF(1.3, 0.7).on(1) * fs.Linear(0.4).on(0),
    "spectral mixture": fs.covariances.spectral_mixture(
        np.array([0.8, 0.5]),
        np.array([[0.3], [0.9]]),
        np.array([[0.2], [0.1]]),
    ),
    "additive": fs.covariances.Additive(np.array([0.9, 0.4]), np.array([0.7, 1.6, 1.1])),
    "categorical": fs.covariances.Categorical(1.0, np.array([0.7])),
}


def inputs_of(name):
    if name in ("coregion", "categorical"):
        return CODES, CODES[:4]
    if name in ("change points", "spectral mixture", "periodic matern52"):
        return X1[:, :1], X2[:, :1]
    if name == "additive":
        return tuple(np.c_[X, X[:, :1] * X[:, 1:]] for X in (X1, X2))
    return X1, X2


@pytest.mark.parametrize(
    "name", [pytest.param(name, id=name) for peer in ("gpflow", "gpytorch") for name in FOUND[peer]]
)
def test_entries(name):
    theirs = np.array((FOUND["gpflow"] | FOUND["gpytorch"])[name])
    ours = OURS[name].matrix(*inputs_of(name))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * max(1, np.abs(theirs).max()))
