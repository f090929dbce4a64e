"""Wheels with kernels that are compiled already, where ``FASTSVGP_BUILD_KERNELS=1`` asks for them.

Otherwise the package is pure Python, and Numba compiles its kernels when they are called. A module
that ``tools/build_kernels.py`` has put beside the sources becomes a part of the wheel too.
"""

import glob
import os
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

KERNELS = os.path.join("fastsvgp", "kernels", "cpu")
ASKED = os.environ.get("FASTSVGP_BUILD_KERNELS", "0") not in ("", "0")


class BuildWithKernels(build_py):
    def run(self):
        super().run()
        if ASKED and not self.editable_mode:
            folder = os.path.abspath(self.build_lib)
            # after ours the path of this process, which leads to the requirements of the build
            path = os.pathsep.join([folder, *filter(None, sys.path)])
            subprocess.run(
                [sys.executable, "tools/build_kernels.py", os.path.join(folder, KERNELS)],
                env=os.environ | {"PYTHONPATH": path},
                check=True,
            )


class WithKernels(Distribution):
    def has_ext_modules(self):
        return ASKED or bool(glob.glob(os.path.join(KERNELS, "_kernels_*")))


setup(
    distclass=WithKernels,
    cmdclass={"build_py": BuildWithKernels},
    # the Numba whose run-time functions the module contains; a build needs no more than these
    setup_requires=["numba==0.68.*", "numpy>=2.0", "scipy>=1.13"] if ASKED else [],
)
