"""Public names, and the cost of importing them."""

import ast
import importlib.util
import inspect
import operator
import pathlib
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import public_names

# names that programs of others use: they stay at the package, though only some are listed
FIXED = """
SVGP SGPR Blocks InducingPair Convolutional OnFeatures Network Layer DeepGP MultiGP QSGP
RBF Matern12 Matern32 Matern52 Linear Constant Sum Product ZeroMean ConstantMean LinearMean
Gaussian BernoulliProbit BernoulliLogit Poisson Laplace StudentT RobustMax Softmax
HeteroskedasticGaussian Marginal Whitened InverseFreeWhitened LikelihoodForm Relaxed Orthogonal
WhitenedOrthogonal Decoupled DecoupledWeights OrthogonalSGPR AbsorbedDualSites DualSites Sites
SiteSVGP VGP RandomFourier InducingBasis RelevanceBasis ChevronWeights
elbo elbo_and_grad data_term_and_grad kl_term_and_grad elbo_and_grad_from_blocks
collapsed_bound collapsed_bound_and_grad optimal_svgp tighter_bound tighter_bound_and_grad
site_bound site_bound_and_grad weight_bound weight_bound_and_grad sampled_bound_and_grad
predict_f predict_y predict_log_density predict_f_and_vjp ravel save load natural_step
newton_schulz_step fit set_num_threads NotPositiveDefinite
""".split()


def test_fixed_names_work_and_few_names_are_listed():
    assert not [name for name in FIXED if not callable(getattr(fs, name))]
    assert len(dir(fs)) <= 75 and set(FIXED) - set(dir(fs))
    assert fs.covariances.RBF is fs.RBF and fs.Sum is fs.covariances.Sum
    assert fs.weight_bound is fs.qsgp.bound


@pytest.mark.parametrize("module", public_names.MODULES)
def test_modules_offer_their_names_alone(module):
    room = getattr(fs, module)
    assert sorted(dir(room)) == sorted(room.__all__) and "Come here" in room.__doc__
    assert all(getattr(room, name).__doc__ for name in room.__all__)


def test_every_public_name_resolves_and_is_documented():
    for name in fs.__all__:
        thing = getattr(fs, name)
        assert thing.__doc__ or not callable(thing), name
    assert fs.__doc__ and all(module in fs.__doc__ for module in public_names.MODULES)


def test_the_example_of_the_package_runs(rng):
    code = textwrap.dedent(fs.__doc__.partition("::")[2].partition("``elbo")[0])
    X = rng.uniform(-2, 2, (100, 1))
    names = {"np": np, "X": X, "y": np.sin(2 * X[:, 0]), "X_new": X[:5]}
    exec(code, names)
    assert names["mean"].shape == (5,)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="fastsvgp.*no_such_name"):
        _ = fs.no_such_name


def loaded_by(statement):
    program = f"import sys; {statement}\nprint(*sys.modules)"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_compiles_nothing():
    heavy = {"numba", "llvmlite", "scipy", "cupy", "sklearn", "matplotlib", "tqdm", "torch", "jax"}
    assert not loaded_by("import fastsvgp") & heavy


def test_importing_does_not_load_extending():
    assert not {"fastsvgp.extending", "fastsvgp.testing"} & loaded_by("import fastsvgp")
    assert "fastsvgp.extending" in loaded_by("import fastsvgp; fastsvgp.extending.check")


def test_extending_offers_what_its_rooms_do():
    """Names that ``fastsvgp`` has too are the same objects; inner paths still provide them."""
    from fastsvgp.bounds.layer_pass import LayerPass
    from fastsvgp.covariances.base import ALL, needs
    from fastsvgp.likelihoods.base import NODES
    from fastsvgp.likelihoods.targets import refuse
    from fastsvgp.posteriors.base import Bars, Joint, Projection, raise_to_floor
    from fastsvgp.records import restricted
    from fastsvgp.train.steps import Snapshot, Steps

    extending = fs.extending
    assert set(extending.__all__) <= set(dir(extending)) and sorted(extending.__all__) == sorted(
        set(extending.__all__)
    )
    assert {"OneLatent", "TwoLatents", "assert_gradient"} <= set(extending.__all__)
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
    names = (
        "ALL NODES refuse Bars Joint Projection raise_to_floor restricted Snapshot Steps LayerPass"
    ).split()
    assert all(getattr(extending, name) is thing for name, thing in zip(names, inner, strict=True))
    for need in (
        (),
        ("covariance",),
        ("covariance.variance", "X1"),
        ("X1",),
        ("covariance.variances",),
    ):
        assert extending.matches("covariance.variance", need) == needs(need, "variance")


def test_building_a_model_compiles_nothing():
    model = (
        "fs.SVGP(fs.RBF(1.0, 1.0), np.ones((2, 1)), fs.Whitened(np.zeros(2), np.eye(2)),"
        " fs.Gaussian(0.1))"
    )
    loaded = loaded_by(f"import fastsvgp as fs, numpy as np; {model}")
    assert not loaded & {"numba", "llvmlite", "cupy", "scipy.special", "scipy.linalg"}


# the parts of SciPy that take as long to import as a first step takes
SLOW = {f"scipy.{p}" for p in ("cluster", "optimize", "sparse", "spatial", "special", "stats")}


def test_a_first_number_needs_blas_alone():
    model = (
        "q = fs.Whitened(np.zeros(2), np.eye(2)); k = fs.RBF(1.0, 1.0); X = np.ones((2, 1)) * [[0],"
        " [1]]; y = X[:, 0]; model = fs.SVGP(k, X, q, fs.Gaussian(0.1))"
    )
    calls = (
        "fs.elbo_and_grad(model, X, y); fs.predict_y(model, X);"
        " fs.collapsed_bound_and_grad(fs.SGPR(k, X, 0.1), X, y)"
    )
    loaded = loaded_by(f"import fastsvgp as fs, numpy as np; {model}; {calls}")
    assert "scipy.linalg" in loaded and not loaded & SLOW
    # and what does need them loads them
    assert "scipy.special" in loaded_by(
        f"import fastsvgp as fs, numpy as np; {model}; fs.elbo_and_grad(fs.SVGP(k, X, q,"
        " fs.Poisson()), X, y)"
    )


def test_one_covariance_can_be_added_to_another():
    """Also where no other was loaded: operators and ``.on`` come with the first."""
    code = "import fastsvgp as fs; k = fs.RBF(1.0, 1.0); k + k * 2.0; k.on(0)"
    assert "fastsvgp.covariances.compose" in loaded_by(code)


def test_the_help_of_the_command_line_needs_no_numpy():
    loaded = loaded_by(
        "import contextlib, io, os; from fastsvgp.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    main(['--help'])\n"
        "assert 'fastsvgp.cli.arguments' in sys.modules"
    )
    assert not loaded & {"numpy", "scipy", "fastsvgp.recipes"}


ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def lists():
    """The program that writes the lists of public names."""
    spec = importlib.util.spec_from_file_location("lists", ROOT / "tools" / "public_names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_lists_of_public_names_are_up_to_date(lists):
    sources = lists.Sources(ROOT)
    lists.update(sources)
    assert not sources.stale(), "run python tools/public_names.py"
    lazy = (path for path in (ROOT / "fastsvgp").rglob("*.pyi"))
    assert {path for path in sources.written if "docs" not in path} == {
        "fastsvgp/kernels/__init__.py",
        "fastsvgp/models.py",
        "fastsvgp/records/registry.py",
        *(path.relative_to(ROOT).as_posix() for path in lazy),
    }


def test_new_and_removed_names_update_each_list(lists, tmp_path):
    for folder in ("fastsvgp", "docs/api"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*cache*"))
    change = {
        "fastsvgp/public_names.py": (
            '"likelihoods.laplace": ("Laplace",)',
            '"likelihoods.gaussian": ("Gaussian", "Levy")',
            '        "likelihoods.gaussian": ("Gaussian",),\n',
            "",
            '        "predict_cdf",\n',
            '        "predict_sf",\n',
        ),
        "fastsvgp/likelihoods/gaussian.py": (
            "@record\nclass Gaussian(",
            "@record\nclass Levy(Likelihood):\n    pass\n\n\n@record\nclass Gaussian(",
        ),
        "fastsvgp/bounds/predict.py": ("def predict_cdf(", "def predict_sf("),
    }
    for path, (*pairs,) in change.items():
        text = (tmp_path / path).read_text(encoding="utf-8")
        for old, new in zip(pairs[::2], pairs[1::2], strict=True):
            assert text.count(old) == 1
            text = text.replace(old, new)
        (tmp_path / path).write_text(text, encoding="utf-8")
    sources = lists.Sources(tmp_path)
    lists.update(sources)
    stub = sources.text("fastsvgp/likelihoods/__init__.pyi")
    assert "Levy as Levy" in stub and "Laplace" not in stub
    stub = sources.text("fastsvgp/__init__.pyi")
    assert "    predict_sf as predict_sf,\n" in stub and "predict_cdf" not in stub
    assert '    "Levy": "likelihoods.gaussian",\n' in sources.text("fastsvgp/records/registry.py")
    assert '    "predict_sf",\n' in sources.text("fastsvgp/models.py")
    page = sources.text("docs/api/likelihoods.rst")
    assert "   Levy\n" in page and "Laplace" not in page
    page = sources.text("docs/api/fastsvgp.rst")
    assert "   predict_sf\n" in page and "predict_cdf" not in page
    assert set(sources.stale()) == {
        "docs/api/fastsvgp.rst",
        "docs/api/likelihoods.rst",
        "fastsvgp/__init__.pyi",
        "fastsvgp/likelihoods/__init__.pyi",
        "fastsvgp/models.py",
        "fastsvgp/records/registry.py",
    }


def test_a_name_far_from_all_pages_is_named(lists, tmp_path):
    (tmp_path / "docs" / "api").mkdir(parents=True)
    with pytest.raises(SystemExit, match="room.alone stands on no page of docs/api"):
        lists.pages(lists.Sources(tmp_path), [["room.alone"]])


@pytest.mark.parametrize("path", sorted((ROOT / "fastsvgp").rglob("*.pyi")), ids=str)
def test_stubs_declare_nothing_themselves(path):
    """Type checkers read a function next to its implementation."""
    _, *body = ast.parse(path.read_text(encoding="utf-8")).body
    names = {
        alias.asname for node in body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    others = [ast.unparse(node) for node in body if not isinstance(node, ast.ImportFrom)]
    parts = path.relative_to(ROOT / "fastsvgp").parts[:-1]
    assert others == ([] if parts else ["__version__: str"])
    shown = operator.attrgetter(*parts)(fs).__all__ if parts else fs.__all__
    assert names | {"__version__"} == set(shown) | {"__version__"}


@pytest.mark.parametrize(
    "name, meant",
    [
        ("SquaredExponential", "RBF"),
        ("Matern5", "Matern52"),
        ("greedy_variance", "inducing.greedy_variance"),
        ("InducingPatches", "inducing.patches"),
        ("schedules", "optim.schedules"),
        ("GaussianProcessRegressor", "sklearn.SVGPRegressor"),
        ("Kmeans", "inducing.kmeans"),
        ("kernel", "covariances"),
        ("Parameter", "records.leaf"),
        ("mean_functions", "means"),
    ],
)
def test_unknown_names_suggest_the_nearest(name, meant):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean '{meant}'"):
        getattr(fs, name)
    with pytest.raises(AttributeError, match="no attribute 'qqqqqq'$"):
        fs.qqqqqq  # noqa: B018
    with pytest.raises(AttributeError, match="'fastsvgp.optim' .* did you mean 'fastsvgp.RBF'"):
        fs.optim.RBF  # noqa: B018


@pytest.mark.parametrize(
    "module, name, meant",
    [
        ("means", "Constant", "ConstantMean"),
        ("means", "Linear", "LinearMean"),
        ("posteriors", "Gaussian", "fastsvgp.posteriors.Marginal"),
        ("kernels", "RBF", "fastsvgp.RBF"),
        ("kernels", "WhiteKernel", "fastsvgp.Gaussian"),
        ("errors", "Diverge", "Diverged"),
    ],
)
def test_names_of_the_module_itself_come_first(module, name, meant):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; did you mean '{meant}'"):
        getattr(getattr(fs, module), name)


def test_parts_that_are_imported_by_name_say_so(monkeypatch):
    monkeypatch.delattr(fs, "sklearn", raising=False)
    with pytest.raises(AttributeError, match="'sklearn'; write import fastsvgp.sklearn$"):
        fs.sklearn  # noqa: B018


@pytest.mark.parametrize("module", ["kernels", "extending", "extending.models"])
def test_modules_list_no_names_of_others(module):
    listed = dir(operator.attrgetter(module)(fs))
    assert not {"re", "inspect", "cpu", "cuda", "triangular", "annotations"} & set(listed)
    assert not [name for name in listed if name.startswith("_")]


def test_signatures_are_short():
    for function in (fs.fit, fs.predict_y, fs.predict_log_density, fs.collapsed_bound):
        assert "numpy._typing" not in str(inspect.signature(function))


def test_names_of_other_packages_are_ours():
    assert len(public_names.ELSEWHERE) >= 100
    for here in set(public_names.ELSEWHERE.values()):
        assert here.startswith("sklearn.") or operator.attrgetter(here)(fs), here
