"""pytest plugin: adapts the stand-in for the CUDA driver (see ``tests/cuda/on_standin.sh``).

It compiles CuPy's own kernels by g++. Two functions of CUDA's mathematics are missing there, or
overflow far from zero.
"""

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


def host_compile(source, options):
    for name, other in OTHERS.items():
        source = source.replace(name, other)
    return _compile(source, options)


fakegpu.host_compile = host_compile

# Its driver executes captured work at once, and a launch of the graph does nothing. Therefore the
# function runs again here.
if not fakegpu.NOOP:
    graphs.Recorded._launch = lambda self: setattr(self, "_result", self._apart(self._body))
# Its cuBLAS has everything that CuPy calls; CuPy does not call this function.
_routine = libraries.routine
libraries.routine = lambda library, name, *types: (
    (lambda *_: None) if "SetWorkspace" in name else _routine(library, name, *types)
)
