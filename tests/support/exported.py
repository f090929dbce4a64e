"""Call exported files: a C file compiled by the C compiler, and a Python file."""

import ctypes
import importlib.util
import itertools
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

COMPILER = shutil.which("gcc") or shutil.which("cc")
FLAGS = "-std=c99 -O1 -Wall -Wextra -pedantic -Werror -shared -fPIC".split()
NUMBERS = ctypes.POINTER(ctypes.c_double)
NUMBER = itertools.count()


def pointer(array):
    assert array.flags.c_contiguous and array.dtype == np.float64
    return array.ctypes.data_as(NUMBERS)


class FromC:
    """The functions of a C file, for many rows; ``outputs`` is () or (P,)."""

    def __init__(self, path, outputs=()):
        if COMPILER is None:
            pytest.skip("no C compiler")
        path = pathlib.Path(path)
        # a library that is open is not read again
        library = path.with_suffix(f".{next(NUMBER)}.so")
        command = [COMPILER, *FLAGS, str(path), "-o", str(library), "-lm"]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr[:2000]
        self._library, self._stem = ctypes.CDLL(str(library)), path.stem
        self._outputs = outputs

    def moments(self, x):
        """Return the code, and what ``predict_y`` wrote."""
        out = np.full((2, *self._outputs), -7.0)
        call = getattr(self._library, f"{self._stem}_predict_y")
        return call(pointer(x), pointer(out[0:1]), pointer(out[1:2])), out

    def quantiles(self, x, levels):
        levels = np.array(levels, np.float64)
        out = np.full((len(levels), *self._outputs), -7.0)
        call = getattr(self._library, f"{self._stem}_predict_quantiles")
        call.argtypes = [NUMBERS, NUMBERS, ctypes.c_size_t, NUMBERS]
        return call(pointer(x), pointer(levels), len(levels), pointer(out)), out

    def predict_y(self, X):
        codes, found = zip(*map(self.moments, np.ascontiguousarray(X)), strict=True)
        assert not any(codes)
        return tuple(np.stack(found, axis=1))

    def predict_quantiles(self, X, levels):
        rows = (self.quantiles(x, levels) for x in np.ascontiguousarray(X))
        codes, found = zip(*rows, strict=True)
        assert not any(codes)
        return np.stack(found, axis=1)


def from_python(path):
    """Import an exported Python file."""
    path = pathlib.Path(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def difference(found, want):
    """Largest difference of moments, or of quantiles, from the wanted ones.

    Both are ``(mean, var, quantiles or None)``. The unit of means and quantiles is their size plus
    the standard deviation, that of variances their size.
    """
    assert [np.shape(one) for one in found] == [np.shape(one) for one in want]
    mean, var, quantiles = want
    unit = np.abs(mean) + np.sqrt(var)
    worst = [np.max(np.abs(found[0] - mean) / unit), np.max(np.abs(found[1] / var - 1))]
    if quantiles is not None:
        worst.append(np.max(np.abs(found[2] - quantiles) / unit))
    return max(worst)
