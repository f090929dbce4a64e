"""The examples run: a few steps of MNIST, and the reader of IDX files."""

import importlib.util
import pathlib

import numpy as np
import pytest

FILE = pathlib.Path(__file__).resolve().parents[1] / "examples" / "mnist.py"


@pytest.fixture(scope="module")
def mnist():
    spec = importlib.util.spec_from_file_location("mnist_example", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
