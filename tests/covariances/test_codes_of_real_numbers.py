"""A covariance of codes is refused, by name, where its inputs are not columns of X."""

import numpy as np
import pytest
from support.path_problems import layer

import fastsvgp as fs

COREGION = fs.covariances.Coregion(np.array([[1.0], [0.5], [-2.0]]), own=np.full(3, 0.1))
RBF = fs.RBF(0.8, 1.1)
IMAGES = {"image_shape": (3, 4), "patch_shape": (2, 2)}


@fs.records.record
class Own(fs.covariances.Categorical):
    """A covariance of codes that is not one of the package."""


# covariances of two columns that read codes in one of them, and the name of what reads them
READERS = {
    "Categorical": fs.covariances.Categorical(),
    "Coregion": COREGION.on(1),
    "a sum": (RBF + COREGION.on(0), "Coregion"),
    "a product": (fs.Matern32().on(1) * fs.covariances.Categorical(0.5).on(0), "Categorical"),
    "change points": (
        fs.covariances.ChangePoints((RBF, fs.covariances.Categorical()), at=[0.2]),
        "Categorical",
    ),
    "deep inside": ((RBF + (RBF * (RBF + Own().on(1)).on(0, 1))).on(1, 0), "Own"),
    "of your own": (Own(), "Own"),
}
READERS = {n: v if isinstance(v, tuple) else (v, n) for n, v in READERS.items()}
each_reader = pytest.mark.parametrize("name", READERS)


def svgp(covariance, Z, outputs=None):
    shape = (len(Z),) if outputs is None else (outputs, len(Z))
    q = fs.Whitened(np.zeros(shape), np.broadcast_to(np.eye(len(Z)), (*shape, len(Z))).copy())
    return fs.SVGP(covariance, Z, q, fs.Gaussian(0.1))


def refusal(what, reader, inputs):
    message = f"{what}: a {reader} reads codes, but its inputs are {inputs}, real numbers; make"
    return pytest.raises(TypeError, match=f"^{message} each code a column of 0 and 1$")


@each_reader
def test_features_of_a_network(name):
    covariance, reader = READERS[name]
    deep = fs.covariances.OnFeatures(covariance, fs.covariances.Network.random((2, 3, 2), rng=0))
    X, Z = np.zeros((4, 2)), np.eye(2)
    with refusal("OnFeatures.covariance", reader, "features of a network"):
        fs.predict_f(svgp(deep, Z), X)
    with refusal("OnFeatures.covariance", reader, "features of a network"):
        fs.collapsed_bound(fs.SGPR(deep, Z, 0.1), X, np.zeros(4))
    with refusal("`latents.1.`: OnFeatures.covariance", reader, "features of a network"):
        parts = (
            fs.layers.Layer(RBF, Z, svgp(RBF, Z).posterior),
            fs.layers.Layer(deep, Z, svgp(deep, Z).posterior),
        )
        fs.elbo(fs.MultiGP(parts, fs.Gaussian(0.1)), X, np.zeros((4, 2)))


def test_a_column_of_features():
    """One code per feature, negative ones and fractions: each was read as some code."""
    deep = fs.covariances.OnFeatures(COREGION, fs.covariances.Network((np.ones((1, 1)),), ()))
    model = svgp(deep, np.array([[0.0], [1.0], [2.0]]))
    with refusal("OnFeatures.covariance", "Coregion", "features of a network"):
        fs.predict_f(model, np.array([[-1.0], [0.9], [1.99], [2.0]]))


def test_patches_of_images():
    X = np.zeros((2, 12))
    with refusal("Convolutional.patch_covariance", "Categorical", "patches of images"):
        fs.predict_f(
            svgp(
                fs.covariances.Convolutional(fs.covariances.Categorical(), 1.0, **IMAGES), np.eye(4)
            ),
            X,
        )
    with refusal("Convolutional.location_covariance", "Coregion", "places of patches"):
        placed = fs.covariances.Convolutional(RBF, 1.0, COREGION.on(0), **IMAGES)
        fs.predict_f(svgp(placed, np.eye(6)), X)
    q = svgp(RBF, np.eye(4), 1).posterior
    below = fs.layers.ConvolutionalLayer(fs.covariances.Categorical() * RBF, np.eye(4), q, **IMAGES)
    with refusal(
        r"`layers\[0\]`: ConvolutionalLayer.covariance", "Categorical", "patches of images"
    ):
        fs.predict_f(fs.DeepGP((below,), fs.Gaussian(0.1)), X)


@each_reader
def test_layers_above_the_first(rng, name):
    covariance, reader = READERS[name]
    first, last = (
        layer(rng, 2, 2, fs.means.IdentityMean()),
        layer(rng, 2, None, covariance=covariance),
    )
    side = fs.layers.ParallelLayers(
        (layer(rng, 2, None), layer(rng, 2, None, covariance=covariance))
    )
    X, noise = np.zeros((3, 2)), fs.Gaussian(0.1)
    for layers, at in (
        ((first, last), 1),
        ((first, first, last), 2),
        ((first, side, layer(rng, 2, None)), 1),
    ):
        with pytest.raises(TypeError) as caught:
            fs.predict_f(fs.DeepGP(layers, noise), X)
        assert str(caught.value).startswith(
            f"`layers[{at}]`: covariance: a {reader} reads codes, but its inputs are outputs of"
            f" `layers[{at - 1}]`, real numbers"
        )


def test_columns_of_x_hold_codes_in_the_first_layer(rng):
    """On the other side: X has the codes, alone or beside other covariances."""
    codes, X = fs.covariances.Categorical().on(1) * RBF.on(0), np.array([[0.3, 1.0], [-1.0, 2.0]])
    Z = np.array([[0.1, 0.0], [0.2, 1.0]])
    first = fs.layers.Layer(codes, Z, svgp(codes, Z, 2).posterior, fs.means.IdentityMean())
    deep = fs.DeepGP((first, layer(rng, 2, None)), fs.Gaussian(0.1))
    assert np.isfinite(fs.predict_f(deep, X)[1]).all()
    side = fs.layers.ParallelLayers((fs.layers.Layer(codes, Z, svgp(codes, Z, 2).posterior),))
    assert np.isfinite(
        fs.predict_f(fs.DeepGP((side, layer(rng, 2, None)), fs.Gaussian(0.1)), X)[1]
    ).all()
    with pytest.raises(ValueError, match="`X` contains 1.5 in a column of codes"):
        fs.elbo(deep, X + [0, 0.5], np.zeros(2))
