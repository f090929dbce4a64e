"""The module of kernels built ahead of time that fits this processor, if there is one.

``tools/build_kernels.py`` builds it. Its functions call SciPy's BLAS through pointers, which are
set here. A module built from other sources of kernels is not used.

``FASTSVGP_KERNELS`` chooses: ``none`` for kernels that Numba compiles, or a level of x86-64, such
as ``x86_64_v2``; otherwise it is the highest level that the processor has.
"""

import ctypes
import functools
import hashlib
import importlib
import importlib.util
import os
import pathlib
import pkgutil

FOLDER = pathlib.Path(__file__).parents[1]  # of all CPU kernels
BLAS = ("gemm", "gemv", "syrk", "syr2k", "symm", "trmm", "trsm")
LEVELS = {  # the highest first, and the features of a processor that has it
    "x86_64_v4": ("AVX512_SKX",),
    "x86_64_v3": ("AVX2", "FMA3"),
    "x86_64_v2": ("SSE42", "POPCNT"),
    "aarch64": ("ASIMD",),
}
CHOICE = "FASTSVGP_KERNELS"


def import_every_kernel():
    """Import all modules of CPU kernels, which registers their kernels."""
    package = __name__.rpartition(".common")[0]
    for module in pkgutil.walk_packages([str(FOLDER)], f"{package}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(module.name)


@functools.cache
def sources():
    """Return a digest of the sources of all CPU kernels."""
    digest = hashlib.sha256()
    for file in sorted(FOLDER.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(FOLDER).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()


def fitting():
    """Return the levels that this processor has, the highest first."""
    from numpy._core._multiarray_umath import __cpu_features__ as has

    return [level for level, needs in LEVELS.items() if all(has.get(f) for f in needs)]


@functools.cache
def found():
    """Return ``(level, module, reason)``: a module and None, or None and why there is none."""
    choice = os.environ.get(CHOICE)
    if choice == "none":
        return None, None, f"{CHOICE}=none"
    if choice is not None and choice not in LEVELS:
        raise ValueError(f"{CHOICE} is {choice!r}; it can be none, {', '.join(LEVELS)}")
    for level in [choice] if choice else fitting():
        name = f"fastsvgp.kernels.cpu._kernels_{level}"
        if importlib.util.find_spec(name) is None:
            continue
        module = importlib.import_module(name)
        library = ctypes.PyDLL(module.__file__)
        if ctypes.c_char_p.in_dll(library, "fastsvgp_sources").value.decode() != sources():
            return None, None, f"the module {level} was built from other sources"
        _set_blas(library)
        return level, module, None
    if choice:
        raise ImportError(f"{CHOICE} is {choice!r}, and this installation has no such module")
    return None, None, "this installation has no module of kernels"


def _set_blas(library):
    from scipy.linalg import cython_blas

    capsules, api = cython_blas.__pyx_capi__, ctypes.pythonapi
    pointer, name_of = api.PyCapsule_GetPointer, api.PyCapsule_GetName
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    wanted = [capsules[prefix + name] for prefix in "ds" for name in BLAS]
    addresses = [pointer(capsule, name_of(capsule)) for capsule in wanted]
    library.fastsvgp_set_blas((ctypes.c_void_p * len(addresses))(*addresses))


def symbol(kernel, dtype):
    """Return the name that a form of a kernel has in the module."""
    module, name = kernel.key
    return f"{module.removeprefix('fastsvgp.kernels.cpu.').replace('.', '_')}__{name}__{dtype}"


def functions(kernel):
    """Return ``{character of R: function}`` of a kernel; {} without a module."""
    module = found()[1]
    if module is None or not kernel.entry:
        return {}
    named = {dtype: getattr(module, symbol(kernel, dtype), None) for dtype in ("d", "f", "")}
    return {dtype: function for dtype, function in named.items() if function is not None}
