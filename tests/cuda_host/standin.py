"""pytest plugin: adapts the stand-in for the CUDA driver (see ``tests/cuda/on_standin.sh``).

It compiles CuPy's own kernels by g++. Two functions of CUDA's mathematics are missing there, or
overflow far from zero.
"""

import atexit
import ctypes
import fcntl
import functools
import hashlib
import pathlib
import re
import subprocess

import cupy
import pytest
from cuda_host import host_module

import fastsvgp.kernels.cuda
from fastsvgp.kernels.cuda.common import graphs, libraries, loader
from fastsvgp.runtime import cuda_devices

# It was written when these were here.
fastsvgp.kernels.cuda.loader, loader._require_device = loader, cuda_devices.require_device

import fakegpu  # noqa: E402

fakegpu.PRE += r"""
inline double normcdfinv(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (normcdf(middle) < p ? low : high) = middle;
  }
  return p <= 0 ? -INFINITY : p >= 1 ? INFINITY : (low + high) / 2;
}
// exp(x^2) erfc(x), by Laplace's continued fraction if the factors are out of range
inline double scaled_erfc(double x) {
  if (x < 20) return std::exp(x * x) * std::erfc(x);
  double tail = 0;
  for (int n = 40; n > 0; --n) tail = n / 2.0 / (x + tail);
  return 1 / std::sqrt(M_PI) / (x + tail);
}
"""
# It drops all lines that begin with "#include", but these headers are plain C++.
OTHERS = {
    "erfcxf(": "scaled_erfc(",
    "erfcx(": "scaled_erfc(",
    "#include <cupy/xsf/": "# include <cupy/xsf/",
    "#include <cupy/math_constants.h>": "# include <cupy/math_constants.h>",
}
_compile = fakegpu.host_compile


class Quicker:
    """``subprocess`` for it: g++ reads the beginning of all sources as a precompiled header."""

    @staticmethod
    def run(command, **options):
        unit, begins = pathlib.Path(command[-3]), fakegpu.PRE
        text = unit.read_text(encoding="utf-8")
        if text.startswith(begins):
            unit.write_text(text[len(begins) :], encoding="utf-8")
            flags = [flag for flag in command[1:-3] if flag != "-shared"]
            command = [
                *command[:1],
                "-include",
                str(precompiled(begins, tuple(flags))),
                *command[1:],
            ]
        return subprocess.run(command, **options)


@functools.cache
def precompiled(text, flags):
    """Return the header with this text; beside it lies its compiled form for these flags.

    The key is made of texts, not of places: all checkouts share it.
    """
    own = [path.read_text(encoding="utf-8") for path in sorted(host_module.HERE.glob("*.hpp"))]
    options = [flag for flag in flags if not flag.startswith("-I")]
    key = hashlib.sha256(chr(0).join([text, *own, *options]).encode()).hexdigest()[:24]
    header = fakegpu.CACHE / f"header-{key}.hpp"
    with open(header.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not header.exists():
            part = header.with_suffix(".part.hpp")
            part.write_text(text, encoding="utf-8")
            built = header.with_suffix(".hpp.gch")
            subprocess.run(["g++", *flags, "-x", "c++-header", str(part), "-o", built], check=True)
            part.rename(header)
    return header


fakegpu.subprocess = Quicker


def host_compile(source, options):
    for name, other in OTHERS.items():
        source = source.replace(name, other)
    return _compile(source, options)


fakegpu.host_compile = host_compile

# Without `../shared/cuda_standin_replay` its driver executes captured work at once, and a launch of
# the graph does nothing. Therefore the function runs again here.
REPLAYS = hasattr(fakegpu.driver, "fake_graph_run")
if not (fakegpu.NOOP or REPLAYS):
    graphs.Recorded._launch = lambda self: setattr(self, "_result", self._apart(self._body))
# A driver that replays prints what must not be done during a capture: copies to or from the host,
# waits, frees. Memory for the graph's pool, and copies between arrays of the device (kind 4), are
# allowed.
BARRED = re.compile(r"^CAPTURE: (?!malloc|memcpy kind 4).*", re.MULTILINE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail a test that has done what must not be done during a capture."""
    report = yield
    said = [line for _, key, text in item._report_sections if key == "stderr"
            for line in BARRED.findall(text)]  # fmt: skip
    if said and report.when == "call" and report.passed:
        report.outcome, report.longrepr = "failed", "during a capture:\n" + "\n".join(said)
    return report


class Overwritten(cupy.cuda.MemoryHook):
    """Fill memory of a pool with NaN (-1 in integers) when it is given out, and given back.

    A kernel that reads what was never written, or a graph that uses memory that it does not hold,
    then computes NaN. It acts on the thread that loads this module.
    """

    name = "overwritten"

    def malloc_postprocess(self, *, mem_ptr, mem_size, **others):
        if mem_ptr:  # there was enough memory
            ctypes.memset(mem_ptr, 0xFF, mem_size)

    free_preprocess = malloc_postprocess


OVERWRITTEN = Overwritten()
if not fakegpu.NOOP:
    OVERWRITTEN.__enter__()
    atexit.register(OVERWRITTEN.__exit__, None, None, None)

# Its cuBLAS has everything that CuPy calls; CuPy does not call this function.
_routine = libraries.routine
libraries.routine = lambda library, name, *types: (
    (lambda *_: None) if "SetWorkspace" in name else _routine(library, name, *types)
)
