"""Build a ``.cu`` file with g++ over ``cuda_host.hpp`` and launch its kernels on NumPy arrays."""

import ctypes
import fcntl
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "kernels_cuda"
KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\('
)
SHARED = re.compile(
    r"(?<!extern )__shared__\s+(?:__align__\(\d+\)\s+)?([\w:]+)\s+(\w+)\s*((?:\[[^\],;]*\])*)\s*;"
)
DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w:]+)\s+(\w+)\s*\[\s*\]\s*;"
)
ORDERS = ("forward", "reverse", "random")
FLAGS = ["-std=c++20", "-g1", "-march=native", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror",
         "-Wno-unknown-pragmas", "-Wno-unused-function", "-Wno-attributes"]  # fmt: skip
SANITIZERS = {
    None: ["-O2"],
    "thread": ["-O1", "-fsanitize=thread"],
    # compiling takes longer than running
    "address": ["-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
}


def translate(text, name):
    """Return the host's translation unit; its line numbers are those of the source."""
    count = iter(range(1, 1 << 30))
    text = DYNAMIC.sub(lambda m: f"{m[1]}* {m[2]} = cuda_host::dynamic_shared<{m[1]}>();", text)
    text = SHARED.sub(
        lambda m: f"auto& {m[2]} = cuda_host::shared<{m[1]} {m[3]}, {next(count)}>();", text
    )
    if "__shared__" in text:
        raise ValueError(f"{name}: a __shared__ declaration that the emulation does not read")
    kernels = "\n".join(f"CUDA_HOST_KERNEL({kernel})" for kernel in KERNEL.findall(text))
    return f'#include "cuda_host.hpp"\n#line 1 "{name}"\n{text}\n{kernels}\n'


def cache_folder():
    """Return the folder of built libraries: never in the repository."""
    folder = pathlib.Path(
        os.environ.get("CUDA_HOST_CACHE")
        or pathlib.Path(tempfile.gettempdir()) / f"cuda_host_{os.getuid()}"
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def build(path, options, sanitizer):
    """Return the path of the shared library of ``path``, built now or cached.

    The key is made of texts, not of places: all checkouts share what one of them has built.
    """
    source = translate(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}")
    command = [os.environ.get("CXX", "g++"), *FLAGS, *SANITIZERS[sanitizer], *options]
    headers = b"".join(
        p.read_bytes() for p in [*sorted(HERE.glob("*.hpp")), *sorted(HEADERS.glob("*.cuh"))]
    )
    key = hashlib.sha256(source.encode() + headers + " ".join(command).encode()).hexdigest()[:24]
    command += [f"-I{HERE}", f"-I{HEADERS}"]
    library = cache_folder() / f"{key}.so"
    # wait for another process that builds the same library
    with open(library.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build(library, source, command, path.name)
    return library


def _build(library, source, command, name):
    if not library.exists():
        # built in a temporary folder and renamed, because runs can overlap
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            unit, part = pathlib.Path(folder, "unit.cpp"), pathlib.Path(folder, "unit.so")
            unit.write_text(source, encoding="utf-8")
            done = subprocess.run(
                [*command, str(unit), "-o", str(part)], capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(f"{name} does not build on the host:\n{done.stderr}")
            os.replace(part, library)


class HostModule:
    """The kernels of one ``.cu`` file; ``order`` is the order in which the threads of a block run.

    With ``CUDA_HOST_TRUNCATING=1`` in the environment tensor cores truncate sums of float32 as
    those of devices do.
    """

    def __init__(self, path, options=(), sanitizer=None):
        self.library = ctypes.CDLL(str(build(pathlib.Path(path), tuple(options), sanitizer)))
        self.signature = functools.cache(self._signature)

    def _signature(self, kernel):
        buffer = ctypes.create_string_buffer(4096)
        getattr(self.library, f"signature_{kernel}")(buffer)
        return buffer.value.decode().split(",")[:-1]

    def launch(self, kernel, grid, block, arguments, shared_memory=0, order="forward", seed=0):
        codes = self.signature(kernel)
        if len(arguments) != len(codes):
            raise TypeError(f"{kernel}: {len(arguments)} arguments for {len(codes)} parameters")
        cells = [
            self._cell(kernel, i, *pair)
            for i, pair in enumerate(zip(arguments, codes, strict=True))
        ]
        slots = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        shape = (ctypes.c_uint * 6)(*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        error = ctypes.create_string_buffer(512)
        truncating = os.environ.get("CUDA_HOST_TRUNCATING") == "1"
        ctypes.c_int.in_dll(self.library, "truncating_tensor_cores").value = truncating
        run = getattr(self.library, f"launch_{kernel}")
        if run(
            shape,
            ctypes.c_size_t(shared_memory),
            ORDERS.index(order),
            ctypes.c_uint(seed),
            slots,
            error,
        ):
            raise RuntimeError(f"{kernel}: {error.value.decode()}")

    @staticmethod
    def _cell(kernel, i, argument, code):
        """Return the argument in the form of a launch; its type must be the parameter's.

        CuPy would pass it on unchecked.
        """
        if isinstance(argument, np.ndarray):
            found, cell = "*" + argument.dtype.str[1:], ctypes.c_void_p(argument.ctypes.data)
        elif (argument is None or isinstance(argument, np.uint64) and argument == 0) and code[
            0
        ] == "*":
            found, cell = code, ctypes.c_void_p(0)  # a null pointer
        elif isinstance(argument, np.generic):
            found, cell = argument.dtype.str[1:], ctypes.create_string_buffer(argument.tobytes())
        else:
            raise TypeError(
                f"{kernel}: argument {i} is {type(argument).__name__}; give an array, a NumPy"
                " scalar or None"
            )
        if found != code:
            raise TypeError(f"{kernel}: argument {i} is {found}, the parameter is {code}")
        return cell
