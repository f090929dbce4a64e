"""Compile CUDA sources for several architectures without a GPU, and read ptxas's report."""

import functools
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import numpy as np
from cuda_host import host_module

from fastsvgp.kernels.cuda.common import loader

ARCHITECTURES = ("80", "90a", "100")
COMMANDS = (__file__, loader.__file__)  # the modules that call the compilers
VERBOSE = ("-v", "--warn-on-spills", "--warn-on-local-memory-usage")
KERNEL = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def why_not(compiler):
    """Return the reason why a compiler cannot be used here, or None."""
    if compiler == "nvcc":
        return None if shutil.which("nvcc") else "nvcc is not on the path"
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except (
        Exception
    ) as error:  # not installed, or CuPy without the wheel of NVRTC: the reason is the answer
        return f'NVRTC is missing ({type(error).__name__}); python -m pip install ".[test-cuda]"'


def log_of(compiler, stem, dtype, architecture):
    """Return the output of compiler and assembler, if possible of an earlier run.

    Raises ``RuntimeError`` if they fail.
    """
    folder = pathlib.Path(loader.source_folder())
    texts = [
        p.read_bytes()
        for p in [
            folder / f"{stem}.cu",
            *sorted(folder.glob("*.cuh")),
            *map(pathlib.Path, COMMANDS),
        ]
    ]
    key = repr((compiler, _version(compiler), np.dtype(dtype).name, architecture))
    kept = (
        host_module.cache_folder()
        / f"{hashlib.sha256(key.encode() + b''.join(texts)).hexdigest()[:24]}.log"
    )
    if not kept.exists():
        # written in a temporary folder and renamed, because runs can overlap
        with tempfile.TemporaryDirectory(dir=kept.parent) as aside:
            part = pathlib.Path(aside, "log")
            part.write_text(_log_of(compiler, stem, dtype, architecture), encoding="utf-8")
            os.replace(part, kept)
    return kept.read_text(encoding="utf-8")


@functools.cache
def _version(compiler):
    if compiler == "nvcc":
        return subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout
    from cupy.cuda import nvrtc

    return nvrtc.getVersion()


def _log_of(compiler, stem, dtype, architecture):
    if compiler == "nvrtc":
        cubin, log = loader.compile_cubin(
            stem, dtype, architecture, tuple(f"--ptxas-options={o}" for o in VERBOSE)
        )
    else:
        cubin, log = _nvcc(stem, dtype, architecture)
    assert cubin[:4] == b"\x7fELF"
    return log


def _nvcc(stem, dtype, architecture):
    folder = pathlib.Path(loader.source_folder())
    with tempfile.TemporaryDirectory() as scratch:
        cubin = pathlib.Path(scratch, "kernels.cubin")
        command = ["nvcc", "-cubin", f"-gencode=arch=compute_{architecture},code=sm_{architecture}",
                   "-std=c++17", "-Werror", "all-warnings", "-Xptxas", ",".join(VERBOSE),
                   f"-DREAL={loader.C_NAMES[dtype]}",
                   str(folder / f"{stem}.cu"), "-o", str(cubin)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return cubin.read_bytes(), done.stderr


def usage(log):
    """Return per kernel: registers, bytes of stack frame, bytes spilled."""
    found, name = {}, None
    for line in log.splitlines():
        if match := KERNEL.search(line):
            name = match[1]
            found[name] = {}
        elif name and (match := STACK.search(line)):
            found[name].update(stack=int(match[1]), spilled=int(match[2]) + int(match[3]))
        elif name and (match := USED.search(line)):
            found[name].update(registers=int(match[1]))
    return found
