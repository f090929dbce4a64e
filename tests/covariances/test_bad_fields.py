"""Fields and settings that covariances refuse, each by name."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.extending import Homogeneous

TWO = (fs.RBF(), fs.Linear())


@pytest.mark.parametrize(
    "covariance, message",
    [
        (
            fs.covariances.Polynomial(degree=0),
            "Polynomial: `degree` must be a whole number of at least 1",
        ),
        (
            fs.covariances.Polynomial(degree=2.5),
            "Polynomial: `degree` must be a whole number .* got 2.5",
        ),
        (fs.covariances.Polynomial(np.ones(2)), r"Polynomial: `weights` has shape \(2,\)"),
        (fs.covariances.ArcCosine(order=0), "ArcCosine: `order` must be 1 or 2, got 0"),
        (fs.covariances.ArcCosine(1.0, 1.0, np.ones(3)), r"ArcCosine: `offset` has shape \(3,\)"),
        (fs.covariances.Cosine(1.0, np.ones(2)), r"Cosine: `frequencies` has shape \(2,\)"),
        (
            fs.covariances.RationalQuadratic(1.0, 1.0, np.ones(3)),
            r"RationalQuadratic: `alpha` has shape",
        ),
        (
            fs.covariances.Additive(np.ones(4)),
            r"Additive: `variances` has shape \(4,\).*R = 1 ... 3",
        ),
        (fs.covariances.Additive(1.0), r"Additive: `variances` has shape \(\)"),
        (
            fs.covariances.Additive(np.ones(2), np.ones(2)),
            r"Additive: `lengthscales` has shape \(2,\)",
        ),
        (fs.covariances.ChangePoints((fs.RBF(),), np.ones(0)), "at least two covariances, got 1"),
        (
            fs.covariances.ChangePoints(TWO, [0.1, 0.2]),
            r"`at` must have shape \(1,\), one number between",
        ),
        (
            fs.covariances.ChangePoints(TWO, [0.1], np.ones(2)),
            r"ChangePoints: `steepness` has shape \(2,\)",
        ),
        (
            fs.covariances.ChangePoints(TWO, [0.1], column=3),
            "`column` is 3, but the inputs have D = 3",
        ),
        (
            fs.covariances.ChangePoints(TWO, [0.1], column=-1),
            "`column of ChangePoints` must be a whole number",
        ),
        (
            fs.covariances.ChangePoints((fs.RBF(1.0, np.ones(2)), fs.RBF()), [0.1]),
            "ChangePoints.parts.0: RBF: `lengthscales` has shape",
        ),
    ],
)
def test_shapes_and_settings(covariance, message):
    with pytest.raises(ValueError, match=message):
        covariance.check_dim(3)


@pytest.mark.parametrize(
    "covariance, path",
    [
        (fs.covariances.RationalQuadratic(alpha=0.0), "alpha"),
        (fs.covariances.Polynomial(offset=0.0), "offset"),
        (fs.covariances.ArcCosine(weights=-1.0), "weights"),
        (fs.covariances.Additive([1.0, 0.0]), "variances"),
        (fs.covariances.ChangePoints(TWO, [0.1], 0.0), "steepness"),
        (fs.Periodic(fs.RBF(1.0, 0.0)), "part.lengthscales"),
        (fs.RBF(-1.0).on(0), "part.variance"),
    ],
)
def test_signs(rng, covariance, path):
    X = rng.standard_normal((4, 2))
    model = fs.SVGP(covariance, X, fs.Whitened(np.zeros(4), np.eye(4)), fs.Gaussian(0.1))
    with pytest.raises(ValueError, match=f"`covariance.{path}` must be positive"):
        fs.elbo(model, X, X[:, 0])


def test_parts_are_covariances():
    for covariance in (
        fs.covariances.ChangePoints((fs.RBF(), 1.0), [0.1]),
        fs.covariances.On(None, columns=(0,)),
    ):
        with pytest.raises(
            TypeError, match="must be (covariances|a covariance) such as fastsvgp.RBF"
        ):
            covariance.check_dim(2)


def test_parts_within_parts_have_a_depth():
    covariance = fs.RBF()
    for _ in range(50):
        covariance = covariance.on(0)
    covariance.matrix(np.zeros((2, 1)))
    with pytest.raises(ValueError, match="On: `parts` are nested more than 50 deep"):
        covariance.on(0)


def test_shapes_of_other_peoples_covariances_can_be_theirs():
    @fs.records.record
    class OwnShape(Homogeneous):
        variance: object = fs.records.leaf("positive", default=1.0)
        weights: object = fs.records.leaf(default=0.0)

    message = r"`weights` has shape \(3,\), .* give it shape \(\), or override `check_dim`$"
    with pytest.raises(ValueError, match=message):
        OwnShape(weights=np.ones(3)).check_dim(2)
