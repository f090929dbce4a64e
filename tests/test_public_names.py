"""The names that other people's code calls, and what importing them costs."""

import ast
import pathlib
import subprocess
import sys

import pytest

import fastsvgp as fs

NAMES = """
SVGP SGPR Blocks
Convolutional extract_patches patch_inducing
RBF Matern12 Matern32 Matern52 Linear Constant Sum Product
ZeroMean ConstantMean LinearMean
Gaussian BernoulliProbit BernoulliLogit Poisson Laplace StudentT RobustMax Softmax
Marginal Whitened InverseFreeWhitened LikelihoodForm Relaxed
elbo elbo_and_grad data_term_and_grad kl_term_and_grad elbo_and_grad_from_blocks
collapsed_bound_and_grad optimal_svgp
predict_f predict_y predict_log_density predict_cdf predict_quantiles predict_f_and_vjp
ravel save load load_with_extra load_fitted Fitted to_device to_host natural_step newton_schulz_step
inverse_factor variance_gap variance_interval inverse_updates refresh_inverse by_field gentle_inducing
fit set_num_threads NotPositiveDefinite
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_name_is_public(name):
    assert callable(getattr(fs, name))
    assert name in fs.__all__
    assert name in dir(fs)


def test_every_public_name_resolves_and_is_documented():
    for name in fs.__all__:
        thing = getattr(fs, name)
        assert thing.__doc__ or not callable(thing), name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fastsvgp.*no_such_name"):
        _ = fs.no_such_name


def loaded_by(statement):
    program = f"import sys; {statement}; print(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_compiles_nothing():
    heavy = {"numba", "llvmlite", "scipy", "cupy", "sklearn", "matplotlib", "tqdm", "torch", "jax"}
    assert not loaded_by("import fastsvgp") & heavy


def test_importing_does_not_load_what_only_parts_of_your_own_need():
    assert not {"fastsvgp.extending", "fastsvgp.testing"} & loaded_by("import fastsvgp")
    assert "fastsvgp.extending" in loaded_by("import fastsvgp; fastsvgp.extending.check")


def test_extending_offers_what_its_rooms_do():
    """The names that ``fastsvgp`` has too are the same objects, and inner paths go on to give them."""
    from fastsvgp.bounds.layer_pass import LayerPass
    from fastsvgp.covariances.base import ALL, wanted
    from fastsvgp.likelihoods.base import NODES, refuse
    from fastsvgp.posteriors.base import Bars, Joint, Projection, raise_to_floor
    from fastsvgp.records import restricted
    from fastsvgp.train.steps import Snapshot, Steps

    extending = fs.extending
    assert set(extending.__all__) <= set(dir(extending)) and sorted(extending.__all__) == sorted(
        set(extending.__all__)
    )
    for name in set(extending.__all__) & set(fs.__all__):
        assert getattr(extending, name) is getattr(fs, name), name
    inner = (
        ALL,
        NODES,
        refuse,
        Bars,
        Joint,
        Projection,
        raise_to_floor,
        restricted,
        Snapshot,
        Steps,
        LayerPass,
    )
    names = "ALL NODES refuse Bars Joint Projection raise_to_floor restricted Snapshot Steps LayerPass".split()
    assert all(getattr(extending, name) is thing for name, thing in zip(names, inner, strict=True))
    for need in (
        (),
        ("covariance",),
        ("covariance.variance", "X1"),
        ("X1",),
        ("covariance.variances",),
    ):
        assert extending.matches("covariance.variance", need) == wanted(need, "variance")


def test_building_a_model_compiles_nothing():
    model = (
        "fs.SVGP(fs.RBF(1.0, 1.0), np.ones((2, 1)), fs.Whitened(np.zeros(2), np.eye(2)),"
        " fs.Gaussian(0.1))"
    )
    loaded = loaded_by(f"import fastsvgp as fs, numpy as np; {model}")
    assert not loaded & {"numba", "llvmlite", "cupy", "scipy.special", "scipy.linalg"}


def test_the_stub_lists_what_the_package_offers():
    stub = pathlib.Path(fs.__file__).with_suffix(".pyi")
    if not stub.is_file():
        pytest.skip("the package has no __init__.pyi")
    declared = set()
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            declared |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            declared.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            declared.add(node.target.id)
    assert set(fs.__all__) <= declared
