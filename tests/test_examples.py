"""The examples run, for a few steps; and the reader of IDX files."""

import importlib
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"


@pytest.fixture
def mnist(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("mnist")


@pytest.fixture
def inverse_free(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module("inverse_free")


def test_idx_files(mnist, tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = b"\0\0\x08\x03" + np.array(images.shape, ">u4").tobytes()
    (tmp_path / "a").write_bytes(header + images.tobytes())
    np.testing.assert_array_equal(mnist.read_idx(tmp_path / "a"), images)
    (tmp_path / "b").write_bytes(b"1,2\n3,4\n")
    with pytest.raises(ValueError, match="no IDX file"):
        mnist.read_idx(tmp_path / "b")


@pytest.mark.parametrize("likelihood", ["softmax", "robustmax"])
def test_a_few_steps_on_the_digits(mnist, likelihood):
    if not (mnist.FOLDER / "mnist_t10k.images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no MNIST files in {mnist.FOLDER}; set FASTSVGP_DATA")
    scores = mnist.main(["--likelihood", likelihood, "--inducing", "20", "--batch-size", "64", "--epochs", "0.1"])
    assert scores["steps"] == 13
    assert scores["model"][1] < scores["trivial"][1] or likelihood == "robustmax"


def skip_without(folder, *names):
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {folder}; set FASTSVGP_DATA")


def test_traces_of_the_bound(inverse_free, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    skip_without(inverse_free.DATA, "snelson.csv.gz", "banana.X.csv", "banana.y.csv")
    traces, _ = inverse_free.main(["snelson", "banana", "--steps", "60", "--out", str(tmp_path)])
    for found in traces.values():
        ends = {t.method: t.elbos[-1] for t in found}
        assert all(t.elbos[-1] > t.elbos[0] and t.steps[-1] == 60 for t in found)
        assert ends["R-SVGP"] == pytest.approx(ends["L-SVGP"], rel=0.01)
    assert (tmp_path / "traces.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("| snelson |") == 4


def test_methods_in_turns(inverse_free, tmp_path, capsys):
    skip_without(inverse_free.DATA, "elevators.data.csv.gz", "elevators.test_mask.csv.gz")
    command = ["elevators", "--inducing", "20", "--batch-size", "16", "--out", str(tmp_path), "--report-every", "30"]
    inverse_free.main([*command, "--steps", "30"])
    _, rows = inverse_free.main([*command, "--steps", "60", "--resume"])
    assert [row.split(" | ")[1] for row in rows] == ["W-SVGP", "L-SVGP", "R-SVGP"]
    scores = {row.split(" | ")[1]: float(row.split(" | ")[3]) for row in rows}
    assert scores["R-SVGP"] == pytest.approx(scores["L-SVGP"], abs=0.01)
    assert "step 60: RMSE and NLPD W-SVGP" in capsys.readouterr().out
    _, again = inverse_free.main([*command, "--steps", "60", "--resume"])  # nothing is left to do
    assert [row.split(" | ")[2:5] for row in again] == [row.split(" | ")[2:5] for row in rows]
    with pytest.raises(SystemExit):
        inverse_free.main(["elevators", "--methods", "X"])


def test_directions_of_r_svgp(inverse_free):
    skip_without(inverse_free.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    table = importlib.import_module("directions").main(["--inducing", "30", "--steps", "40"])
    for distance, difference, exact, other in table.values():
        assert 0 < distance < 1 and other < exact < 1 and 0 < difference < 1
