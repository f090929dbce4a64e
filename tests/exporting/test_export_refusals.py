"""What cannot be exported is refused by its name, and no file is written."""

import re
import sys

import numpy as np
import pytest
from support.multi_gp_problems import multi_of

import fastsvgp as fs
from fastsvgp import covariances as cs, likelihoods as ls
from fastsvgp.recipes.scaling import ClassScale, Scale


@fs.records.record
class OwnRBF(fs.RBF):
    """A covariance of a user, which can compute something else."""


def predictor(**changes):
    q = fs.Whitened(np.zeros(3), np.eye(3) / 2)
    Z = np.arange(6.0).reshape(3, 2)
    return fs.predictor(fs.replace(fs.SVGP(fs.RBF(), Z, q, fs.Gaussian(0.1)), **changes))


COVARIANCES = {
    "OwnRBF": OwnRBF(),
    "Additive": cs.Additive(np.ones(2)),
    "ArcCosine": fs.RBF() + 2.0 * cs.ArcCosine(),
    "ChangePoints": cs.ChangePoints((fs.RBF(), fs.RBF()), np.ones(1), 1.0),
}


@pytest.mark.parametrize("name", COVARIANCES)
def test_covariances(tmp_path, name):
    with pytest.raises(
        TypeError, match=f"the covariance {name} cannot be exported; these can: RBF,"
    ):
        fs.export(predictor(covariance=COVARIANCES[name]), tmp_path / "gp.c")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("likelihood", [ls.Gamma(2.0), ls.Beta(3.0), ls.Binomial()])
def test_likelihoods(tmp_path, likelihood):
    name = type(likelihood).__name__
    message = f"the likelihood {name} cannot be exported; these can: Gaussian, Heterosk"
    with pytest.raises(TypeError, match=message):
        fs.export(predictor(likelihood=likelihood), tmp_path / "gp.py")
    assert not list(tmp_path.iterdir())


def test_likelihoods_of_several_functions(rng, tmp_path):
    model = multi_of(rng, "heteroskedastic")[0]
    counts = fs.replace(model, likelihood=ls.HeteroskedasticNegativeBinomial())
    with pytest.raises(TypeError, match="the likelihood HeteroskedasticNegativeBinomial cannot be"):
        fs.export(fs.predictor(counts), tmp_path / "gp.c")


def test_means(tmp_path):
    q = fs.Whitened(np.zeros((2, 3)), np.eye(3) * np.ones((2, 1, 1)) / 2)
    made = predictor(posterior=q, mean=fs.means.IdentityMean())
    with pytest.raises(
        TypeError, match="the mean IdentityMean cannot be exported; these can: Zero"
    ):
        fs.export(made, tmp_path / "gp.c")


def test_models(rng, tmp_path):
    one = predictor()
    model = fs.replace(one, posterior=fs.Whitened(np.zeros(3), np.eye(3) / 2))
    with pytest.raises(TypeError, match="posterior of the class Whitened; give fs.predictor"):
        fs.export(model, tmp_path / "gp.c")
    layer = fs.layers.Layer(one.covariance, one.inducing, one.posterior)
    kind = r"`predictor` must be a fastsvgp.MultiGP, SVGP or bounds.Mixture, got "
    with pytest.raises(TypeError, match=f"{kind}DeepGP"):
        fs.export(fs.DeepGP((layer,), one.likelihood), tmp_path / "gp.c")
    vif = fs.VIF(model.covariance, model.inducing, model.posterior, model.likelihood)
    with pytest.raises(TypeError, match=f"{kind}VIF"):
        fs.export(vif, tmp_path / "gp.c")
    with pytest.raises(TypeError, match="predictor: `model` must be .*, got VIF"):
        fs.predictor(vif)


@pytest.mark.parametrize("name", ["gp.h", "gp", "gp.C", "gp.npz"])
def test_suffixes(tmp_path, name):
    message = r"`path` must end in .c \(C99\), .py \(Python with NumPy\) or .onnx, got "
    with pytest.raises(ValueError, match=message):
        fs.export(predictor(), tmp_path / name)
    with pytest.raises(TypeError, match="`path` must be a path"):
        fs.export(predictor(), 3)


@pytest.mark.parametrize("name", ["my-gp.c", "3gp.py", "class.py", "größe.c", ".c"])
def test_names(tmp_path, name):
    with pytest.raises(ValueError, match="give a file name of letters|must end in"):
        fs.export(predictor(), tmp_path / name)


def test_scales(tmp_path):
    with pytest.raises(TypeError, match="`scale` must be a Scale, such as start.scale, got dict"):
        fs.export(predictor(), tmp_path / "gp.c", scale={})
    with pytest.raises(ValueError, match="the scaling is not one of 2 inputs"):
        fs.export(predictor(), tmp_path / "gp.c", scale=Scale(np.zeros(3), np.ones(3)))
    three = ClassScale(np.zeros(2), np.ones(2), classes=np.arange(3))
    with pytest.raises(ValueError, match="3 classes do not match the likelihood"):
        fs.export(predictor(likelihood=fs.BernoulliProbit()), tmp_path / "gp.c", scale=three)
    assert not list(tmp_path.iterdir())


def test_files_are_replaced_as_a_whole(tmp_path):
    for path in ("gp.py", "gp.py", "gp.c"):
        fs.export(predictor(), tmp_path / path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["gp.c", "gp.npz", "gp.py"]
    with pytest.raises(OSError, match="missing"):
        fs.export(predictor(), tmp_path / "missing" / "gp.c")


def test_a_package_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    hint = 'needs the package onnx: python -m pip install "fastsvgp[onnx]"'
    with pytest.raises(ImportError, match=re.escape(hint)):
        fs.export(predictor(), tmp_path / "gp.onnx")
    assert not list(tmp_path.iterdir())
