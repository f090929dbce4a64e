"""Compile the CPU kernels ahead of time into one extension module for each level of processor.

Usage: ``python tools/build_kernels.py OUT [LEVEL ...]``. It writes
``OUT/_kernels_LEVEL.<platform>.so`` for each level; without LEVEL, all levels of this machine's
architecture. OUT is ``fastsvgp/kernels/cpu`` of the installation that shall use them.

Each family of kernels is compiled by a process of its own: typed and lowered once, then optimised
for each level. What is written needs neither Numba nor a compiler. It is Numba's ``pycc`` with four
differences: options of kernels are heeded; an array of another dtype, order or number of axes
raises TypeError (``pycc`` would read it as it stands); an error in an argument raises it (``pycc``
crashes); and BLAS is SciPy's, through pointers that are set when the module is loaded.
"""

import concurrent.futures
import os
import pathlib
import pickle
import platform
import subprocess
import sys
import tempfile
import warnings
from types import SimpleNamespace

os.environ["FASTSVGP_KERNELS"] = "none"

from fastsvgp.kernels.cpu.common import ahead, compiled, forms

CPUS = {
    "x86_64_v2": "x86-64-v2",
    "x86_64_v3": "x86-64-v3",
    "x86_64_v4": "x86-64-v4",
    "aarch64": "generic",
}
ADDRESSES = {"gemm": 13, "gemv": 11, "syrk": 10, "syr2k": 12, "symm": 12, "trmm": 11, "trsm": 11}

C_SOURCE = r"""
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char *fastsvgp_sources = "@SOURCES@";

/* Whether an argument is an array of this kind; otherwise a TypeError is set. */
HIDDEN int fastsvgp_fits(PyObject *given, int ndim, int type, int flags) {
  if (PyArray_Check(given)) {
    PyArrayObject *array = (PyArrayObject *)given;
    if (PyArray_NDIM(array) == ndim && PyArray_TYPE(array) == type &&
        PyArray_ISNOTSWAPPED(array) && (PyArray_FLAGS(array) & flags) == flags)
      return 1;
  }
  PyErr_SetString(PyExc_TypeError, "an argument of another kind than the form declares");
  return 0;
}

@BLAS@
EXPORTED int fastsvgp_set_blas(void **table) {
@SET@
  import_array1(-1);
  return 0;
}
"""


def levels_here():
    machine = platform.machine().lower().replace("arm64", "aarch64").replace("amd64", "x86_64")
    return [level for level in CPUS if level.startswith(machine)]


def families():
    """Return ``{family: kernels that Python calls}``."""
    found = {}
    ahead.import_every_kernel()
    for kernel in compiled.KERNELS.values():
        if kernel.entry:
            name = kernel.key[0].removeprefix("fastsvgp.kernels.cpu.").partition(".")[0]
            found.setdefault(name, []).append(kernel)
    return found


def signatures(kernels):
    """Yield ``(symbol, kernel, Numba's types)`` of each form."""
    for kernel in kernels:
        reals = {"d": "float64", "f": "float32"}
        if not forms.place_of_dtype(kernel.kinds):
            reals = {"": "float64"}
        for dtype, real in reals.items():
            yield ahead.symbol(kernel, dtype), kernel, forms.signature(kernel.kinds, real)


# --- One family, in a process of its own


def guard_arguments():
    """Let wrappers refuse arrays of another kind, and raise the errors that they find."""
    import numpy as np
    from llvmlite import ir
    from numba.core import boxing, cgutils, pythonapi, types
    from numba.np.numpy_support import as_dtype

    orders = {"C": "C_CONTIGUOUS", "F": "F_CONTIGUOUS"}
    flags = {"C_CONTIGUOUS": 1, "F_CONTIGUOUS": 2, "ALIGNED": 0x100, "WRITEABLE": 0x400}
    assert np.empty((2, 2)).flags.num & ~flags["C_CONTIGUOUS"] & 0x501 == 0x500

    def unbox_array(kind, given, c):
        builder, word = c.builder, ir.IntType(32)
        needed = ["ALIGNED", *(["WRITEABLE"] if kind.mutable else [])]
        needed += [orders[kind.layout]] if kind.layout in orders else []
        signature = ir.FunctionType(word, [given.type, word, word, word])
        fits = cgutils.get_or_insert_function(builder.module, signature, "fastsvgp_fits")
        asked = kind.ndim, as_dtype(kind.dtype).num, sum(flags[name] for name in needed)
        good = builder.call(fits, [given, *(word(number) for number in asked)])
        value = cgutils.alloca_once(builder, c.context.get_value_type(kind))
        failed = cgutils.alloca_once_value(builder, cgutils.true_bit)
        with builder.if_then(cgutils.is_not_null(builder, good), likely=True):
            native = boxing.unbox_array(kind, given, c)
            builder.store(native.value, value)
            builder.store(native.is_error, failed)
        return pythonapi.NativeValue(builder.load(value), is_error=builder.load(failed))

    pythonapi._unboxers.functions[types.Array] = unbox_array
    numbas = pythonapi.PythonAPI.get_c_object

    def get_c_object(self, name):
        # in an extension module PyExc_X is a variable; Numba passes its address as the object
        if not name.startswith("PyExc_"):
            return numbas(self, name)
        place = self.context.get_c_value(self.builder, self.pyobj, name, dllimport=True)
        return self.builder.load(place)

    pythonapi.PythonAPI.get_c_object = get_c_object


def lowered(family, kernels):
    """Return the LLVM module of a family's forms, and what the module's start needs to know."""
    from numba.core import codegen, compiler
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.environment import lookup_environment
    from numba.core.registry import cpu_target
    from numba.core.runtime import nrtdynmod
    from numba.core.runtime.nrt import rtsys

    from fastsvgp.kernels.cpu.common.link_once import unfinished

    class Library(codegen.AOTCodeLibrary):
        def add_linking_library(self, library):
            self._linking_libraries.append(library)

        def add_llvm_module(self, module):
            module.data_layout = self._codegen._data_layout
            self._final_module.link_in(module)

    typing_context, context = cpu_target.typing_context, cpu_target.target_context
    context = context.with_aot_codegen(f"fastsvgp_{family}")
    context.codegen()._library_class = Library
    library = context.codegen().create_library(family)
    library.add_ir_module(nrtdynmod.create_nrt_module(context)[0])
    environments, kept = {}, set()

    with global_compiler_lock:
        for symbol, kernel, signature in signatures(kernels):
            dispatcher, flags = kernel.dispatcher, compiler.Flags()
            dispatcher.targetdescr.options.parse_as_flags(flags, dispatcher.targetoptions)
            flags.no_compile = flags.no_cfunc_wrapper = flags.nrt = True
            with dispatcher._compiling_counter:
                result = compiler.compile_extra(
                    typing_context, context, kernel.py_func, signature, None, flags, {}, library
                )
            for f in library._final_module.functions:
                if f.name.startswith("__excinfo_unwrap_args"):
                    f.linkage = "linkonce_odr"
            descriptor = result.fndesc
            library.get_function(descriptor.llvm_func_name).linkage = "linkonce_odr"
            wrapper = library.get_function(descriptor.llvm_cpython_wrapper_name)
            wrapper.name, wrapper.linkage = f"._pycc_method_{symbol}", "external"
            kept.add(wrapper.name)
            environments[symbol] = descriptor.env_name, result.environment.consts
        waiting, seen = list(library._linking_libraries), {rtsys.library}
        while waiting:
            other = waiting.pop(0)
            if other in seen:
                continue
            seen.add(other)
            if other._finalized:
                module = other._get_module_for_linking()
            else:
                module = unfinished(other)
                waiting += other._linking_libraries
            library._final_module.link_in(module, preserve=True)
    own = {name for name, _ in environments.values()}
    more = {}
    for variable in library._final_module.global_variables:
        if variable.name.startswith("_ZN08NumbaEnv") and variable.name not in own:
            environment = lookup_environment(variable.name)
            if environment is not None and environment.can_cache():
                more[variable.name] = environment.consts
    return library._final_module, environments, more, kept


def compile_family(family, folder, levels):
    """Write ``family.LEVEL.o`` for each level, and ``family.pickle``."""
    import llvmlite.binding as llvm
    from numba.core import codegen

    from fastsvgp.kernels.cpu.common.link_once import make_internal

    compiled.ready()
    guard_arguments()
    module, environments, more, kept = lowered(family, families()[family])
    raw = module.as_bitcode()
    for level in levels:
        target = codegen.AOTCPUCodegen(f"fastsvgp_{family}", cpu_name=CPUS[level])
        library = target.create_library(family)
        library._final_module = llvm.parse_bitcode(raw)
        library._optimize_final_module()
        make_internal(library._final_module, kept)
        library._final_module.verify()
        code = target._tm.emit_object(library._final_module)
        pathlib.Path(folder, f"{family}.{level}.o").write_bytes(code)
    pathlib.Path(folder, f"{family}.pickle").write_bytes(pickle.dumps((environments, more)))


# --- The module of all families


def start_of_module(name, level, folder):
    """Write the object with the module's table of functions and its initialisation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pycc announces its end, without a successor
        from numba.pycc.compiler import ExportEntry, ModuleCompiler
    from llvmlite import ir
    from numba.core.compiler_lock import global_compiler_lock

    environments, more = {}, {}
    for file in sorted(pathlib.Path(folder).glob("*.pickle")):
        theirs, others = pickle.loads(file.read_bytes())
        environments.update(theirs)
        more.update(others)

    entries = [ExportEntry(symbol, None, None) for symbol in environments]
    start = ModuleCompiler(entries, name, True, cpu_name=CPUS[level])
    start.external_init_function = f"pycc_init_{name}"
    start.exported_function_types = dict.fromkeys(entries, ir.FunctionType(ir.IntType(32), []))
    start.environment_gvs = {e: environments[e.symbol][0] for e in entries}
    start.function_environments = {
        e: SimpleNamespace(consts=environments[e.symbol][1]) for e in entries
    }
    for name_of_one in start.environment_gvs.values():
        more.pop(name_of_one, None)
    start.extra_environments = {n: SimpleNamespace(consts=consts) for n, consts in more.items()}
    library = start.context.codegen().create_library(name)
    module = library.create_ir_module("start")
    start._emit_python_wrapper(module)
    library.add_ir_module(module)
    library._verify_declare_only_symbols = lambda: None
    with global_compiler_lock:
        library.finalize()
    pathlib.Path(folder, f"start.{level}.o").write_bytes(library.emit_native_object())
    return start.dll_exports


def c_source():
    names = [prefix + name for prefix in "ds" for name in ahead.BLAS]
    functions = []
    for name in names:
        count = ADDRESSES[name[1:]]
        kinds = ", ".join(["uintptr_t"] * count)
        given = ", ".join(f"uintptr_t a{i}" for i in range(count))
        passed = ", ".join(f"a{i}" for i in range(count))
        functions.append(f"static void (*p_{name})({kinds});")
        functions.append(f"HIDDEN void fastsvgp_{name}({given}) {{ p_{name}({passed}); }}")
    setting = [f"  p_{name} = table[{i}];" for i, name in enumerate(names)]
    text = C_SOURCE.replace("@SOURCES@", ahead.sources())
    return text.replace("@BLAS@", "\n".join(functions)).replace("@SET@", "\n".join(setting))


def link(level, folder, out):
    """Compile Numba's run-time functions and ours, and link the module."""
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from numba.pycc.cc import CC
        from numba.pycc.platform import Toolchain

    name = f"_kernels_{level}"
    exports = start_of_module(name, level, folder)
    source = pathlib.Path(folder, "fastsvgp.c")
    source.write_text(c_source())
    cc, tools = CC.__new__(CC), Toolchain()
    cc._basename, cc._use_nrt = name, True
    objects = tools.compile_objects(
        [*cc._get_mixin_sources(), str(source)],
        str(pathlib.Path(folder, level)),
        include_dirs=[*tools.get_python_include_dirs(), np.get_include()],
        macros=cc._get_mixin_defines(),
        extra_cflags=["-g0"],
    )
    objects += map(str, sorted(pathlib.Path(folder).glob(f"*.{level}.o")))
    target = pathlib.Path(out, tools.get_ext_filename(name))
    tools.link_shared(
        str(target),
        objects,
        tools.get_python_libraries(),
        tools.get_python_library_dirs(),
        export_symbols=exports,
        extra_ldflags=["-pthread", "-s"] if sys.platform.startswith("linux") else [],
    )
    return target


def build(out, levels):
    levels = levels or levels_here()
    unknown = [level for level in levels if level not in levels_here()]
    if unknown or not levels:
        raise SystemExit(
            f"no kernels for {', '.join(unknown) or platform.machine()} can be built here; levels:"
            f" {', '.join(levels_here()) or 'none'}"
        )
    sources = ahead.sources()
    count = {name: len(list(signatures(kernels))) for name, kernels in families().items()}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), "--family"]

        def run(family):
            subprocess.run([*command, family, folder, *levels], check=True)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(run, sorted(count, key=count.get, reverse=True)))
        ahead.sources.cache_clear()
        if ahead.sources() != sources:
            raise SystemExit("the sources of the kernels changed in the meantime; build them again")
        for level in levels:
            made = link(level, folder, out)
            print(f"{made.name}: {sum(count.values())} forms, {made.stat().st_size // 1000} kB")


if __name__ == "__main__":
    if sys.argv[1] == "--family":
        compile_family(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        build(sys.argv[1], sys.argv[2:])
