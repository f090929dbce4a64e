"""All kernels under ThreadSanitizer and AddressSanitizer, in small runs that cover every kernel."""

import pathlib
import re
import shutil
import types

import pytest
from cuda_host import cupy_on_host, emulated, host_module, sanitized, small_runs

from fastsvgp.kernels.cuda.common import loader

RUNS = [(family, dtype) for family, dtypes in small_runs.RUNS.items() for dtype in dtypes]


@pytest.mark.parametrize("family, dtype", RUNS)
def test_clean(sanitizer, family, dtype):
    done = sanitized.run(sanitizer, "cuda_host.small_runs", family, dtype, sanitizer)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr[-3000:])


@pytest.mark.skipif(shutil.which("g++") is None, reason="the host emulation of CUDA needs g++")
def test_every_kernel_is_launched(monkeypatch):
    """In both dtypes if the kernel differs between them."""
    launched, module_of = set(), emulated.module_of

    def recording(stem, dtype, sanitizer):
        def launch(kernel, *arguments, **settings):
            launched.add((stem, dtype, kernel))
            module_of(stem, dtype, sanitizer).launch(kernel, *arguments, **settings)

        return types.SimpleNamespace(launch=launch)

    for room in (emulated, cupy_on_host):
        monkeypatch.setattr(room, "module_of", recording)
    for family, dtype in RUNS:
        small_runs.run(family, dtype)
    expected = set()
    for path in pathlib.Path(loader.source_folder()).glob("*.cu"):
        text = path.read_text(encoding="utf-8")
        dtypes = small_runs.LIBRARIES.get(path.stem, ("float32",))
        assert dtypes == small_runs.EITHER or not re.search(r"\bWIDTH\b|sizeof\(real\)", text), (
            path.stem
        )
        expected |= {
            (path.stem, dtype, kernel)
            for kernel in host_module.KERNEL.findall(text)
            for dtype in small_runs.LIBRARIES.get(kernel, dtypes)
        }
    assert launched == expected
