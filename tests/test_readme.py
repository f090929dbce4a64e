"""What the README shows runs, and says what comes out."""

import numpy as np
from readme import README, snippets


def test_the_python_block_runs():
    (block,) = snippets()
    names = {}
    exec(compile(block, str(README), "exec"), names)
    np.testing.assert_allclose(names["mean"], np.sin(1.0), atol=0.1)
    np.testing.assert_allclose(names["var"], 0.2**2, rtol=0.5)


def test_the_two_commands_are_there():
    text = README.read_text(encoding="utf-8")
    assert 'python -m pip install ".[cli]" && fastsvgp demo\n' in text
    assert 'python -m pip install ".[test]" && python -m pytest\n' in text
