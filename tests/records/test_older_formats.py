"""Files that older versions wrote."""

import warnings
from typing import Any

import numpy as np
import pytest
from support import format_1, format_2
from support.record_files import header_of, write

import fastsvgp as fs
from fastsvgp import records
from fastsvgp.records import persistence


@pytest.fixture
def old(tmp_path):
    """A function that writes one of the old files and returns its path."""

    def write(name):
        (tmp_path / name).write_bytes(format_1.content(name))
        assert header_of(tmp_path / name)["format"] == "fastsvgp-record-1"
        return tmp_path / name

    return write


def assert_leaves(tree, **expected):
    found = {
        path.replace(".", "_"): value for path, _, value in fs.leaves(tree) if value is not None
    }
    assert found.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_array_equal(
            found[path], value, err_msg=path, strict=isinstance(value, np.ndarray)
        )
        assert type(found[path]) is type(value), path


COMMON = {
    "covariance_variance": 1.5,
    "covariance_lengthscales": np.array([0.5]),
    "inducing": np.array([[-0.5], [0.75]]),
}
MEAN, TRIL = np.array([0.5, -1.0]), np.array([[0.5, 0.0], [-0.25, 1.0]])


def test_models_of_format_1(tmp_path, old):
    expected = {
        **COMMON,
        "posterior_mean": MEAN,
        "posterior_scale_tril": TRIL,
        "likelihood_variance": 0.25,
        "mean_value": 0.125,
    }
    svgp = fs.load(old("SVGP"))
    kinds = [
        type(part) for part in (svgp, svgp.covariance, svgp.posterior, svgp.likelihood, svgp.mean)
    ]
    assert kinds == [fs.SVGP, fs.RBF, fs.Whitened, fs.Gaussian, fs.ConstantMean]
    assert_leaves(svgp, **expected)
    fs.save(tmp_path / "again", svgp)
    assert header_of(tmp_path / "again")["format"] == persistence.FORMAT
    assert_leaves(fs.load(tmp_path / "again"), **expected)
    sgpr = fs.load(old("SGPR"))
    assert type(sgpr) is fs.SGPR and sgpr.mean is None
    assert_leaves(sgpr, **COMMON, noise_variance=0.25)


def test_models_of_format_2(tmp_path):
    """They load, whatever ``save`` writes later."""
    for name in ("SVGP", "SGPR"):
        (tmp_path / name).write_bytes(format_2.content(name))
        assert header_of(tmp_path / name)["format"] == "fastsvgp-record-2"
    svgp, extra = fs.load_with_extra(tmp_path / "SVGP")
    assert extra == {"note": [1, "two"]} and [type(part) for part in svgp.covariance.parts] == [
        fs.RBF,
        fs.Linear,
    ]
    assert type(svgp.likelihood) is fs.StudentT and (
        svgp.likelihood.df,
        svgp.likelihood.num_nodes,
    ) == (3.0, 20)
    expected = {
        f"covariance_parts_0_{name[11:]}": value
        for name, value in COMMON.items()
        if name.startswith("covariance")
    }
    expected |= {
        "covariance_parts_1_variance": 0.5,
        "inducing": COMMON["inducing"],
        "posterior_mean": MEAN,
    }
    assert_leaves(
        svgp, **expected, posterior_scale_tril=TRIL, likelihood_scale=0.25, mean_value=0.125
    )
    sgpr = fs.load(tmp_path / "SGPR")
    assert type(sgpr) is fs.SGPR and sgpr.mean is None
    assert_leaves(sgpr, **COMMON, noise_variance=0.25)


def test_training_goes_on_from_a_checkpoint_of_format_1(old):
    path = old("TrainingState")
    state = fs.load(path)
    assert (
        type(state) is fs.TrainingState
        and type(state.model) is fs.SVGP
        and type(state.model.posterior) is fs.Whitened
    )
    assert (state.step, state.seed, state.num_data, state.batch_size) == (2, 3, 4, 2)
    assert (
        state.optimiser.count == 2
        and state.optimiser.first.shape == (11,)
        and state.values.shape == (2,)
    )
    start, optimiser = fs.load(old("SVGP")), fs.adam(0.125)
    model, info = fs.fit(
        start, format_1.X, format_1.Y, steps=4, optimiser=optimiser, resume=path, **format_1.OPTIONS
    )
    np.testing.assert_array_equal(info.values[:2], state.values)
    straight, _ = fs.fit(
        start, format_1.X, format_1.Y, steps=4, optimiser=optimiser, **format_1.OPTIONS
    )
    for (path, _, a), (_, _, b) in zip(fs.leaves(model), fs.leaves(straight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9, err_msg=path)


def test_a_setting_that_a_record_no_longer_has(tmp_path, old, registry):
    expected = {
        **COMMON,
        "posterior_mean": MEAN,
        "posterior_variance": np.array([0.25, 0.5]),
        "posterior_inverse_tril": TRIL,
    }
    expected |= {"likelihood_variance": 0.25, "mean_value": 0.125}
    path = old("Relaxed")

    @records.record
    class Relaxed:
        __module__ = "fastsvgp.posteriors.relaxed"
        mean: Any = records.leaf()
        variance: Any = records.leaf("positive")
        inverse_tril: Any = records.leaf("tril")
        preconditioned: Any = records.static(default=True)

    gone = (
        r"a Relaxed with direction='likelihood', a field that was removed: pass it to training as "
    )
    advice = r'fit\(..., inverse_updates=fs.inverse_updates\(direction="likelihood"\)\)$'
    with pytest.warns(UserWarning, match=gone + advice) as found:
        model = fs.load(path)
    assert (
        found[0].filename == __file__
        and type(model.posterior) is Relaxed
        and model.posterior.preconditioned is True
    )
    assert_leaves(model, **expected)
    tree = header_of(path)["tree"]
    settings = tree["fields"]["posterior"]["fields"]
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "__fastsvgp__"}
    settings["direction"]["static"] = "exact"  # its default
    write(path, tree, "fastsvgp-record-1", **arrays)
    with warnings.catch_warnings(action="error"):
        assert_leaves(fs.load(path), **expected)
    settings["directions"] = settings.pop("direction")
    write(path, tree, "fastsvgp-record-1", **arrays)
    with pytest.raises(
        fs.DataFileError,
        match="type 'Relaxed' with a field 'directions', but the class in",
    ):
        fs.load(path)


def test_a_setting_is_dropped_only_where_the_record_has_it_no_longer(old):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        posterior = fs.load(old("Relaxed")).posterior
    stays = "direction" in dict(fs.Relaxed._record_fields)
    assert type(posterior) is fs.Relaxed and len(found) == (not stays)
    assert not stays or posterior.direction == "likelihood"
