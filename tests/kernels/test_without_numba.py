"""Without a Numba that fits the NumPy, kernels that must be compiled say what is wrong."""

import os
import subprocess
import sys

CODE = """
import sys


class WithoutNumba:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "numba":
            raise ImportError("Numba needs NumPy 2.3 or less. Got NumPy 2.4.")


sys.meta_path.insert(0, WithoutNumba())
import numpy as np
import fastsvgp as fs

q = fs.Whitened(np.zeros(3), np.eye(3))
model = fs.SVGP(fs.RBF(1.0, 1.0), np.zeros((3, 1)), q, fs.Gaussian(0.1))
try:
    fs.elbo(model, np.ones((4, 1)), np.ones(4))
except ImportError as error:
    print(error)
"""


def test_the_message_says_what_fits():
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | {"FASTSVGP_KERNELS": "none"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == (
        "compiling kernels needs Numba, which cannot be imported here (Numba needs NumPy 2.3 or"
        " less. Got NumPy 2.4.); install versions of numba and numpy that fit, or a wheel of"
        " fastsvgp with compiled kernels"
    )
