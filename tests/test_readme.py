"""What the README shows runs, and says what comes out."""

import pathlib
import re

import numpy as np

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def test_the_python_block_runs():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    names = {}
    exec(compile(block, str(README), "exec"), names)
    np.testing.assert_allclose(names["mean"], np.sin(1.0), atol=0.1)
    np.testing.assert_allclose(names["var"], 0.2**2, rtol=0.5)


def test_the_two_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[cli]" && fastsvgp demo\n' in text
    assert 'python -m pip install ".[test]" && python -m pytest\n' in text
