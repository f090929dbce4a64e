"""Compilation of a kernel with all that it calls as one LLVM module: optimised and generated once.

Numba gives each function machine code of its own, and optimises it again within each caller. Here
functions that compiled code calls are typed and lowered only (``Inner``). An entry, which Python
calls, links them, each once and internally (``Entry``): so compiling takes a third of the time, and
the code of an entry is the same whatever the process compiled, or loaded from the cache, before.

This uses classes that Numba does not promise to keep. ``works`` compiles a small kernel to find
out; if that fails, plain ``numba.njit`` takes over, which is slower to compile.
"""

import dis
import functools

from . import forms

OPTIONS = {"nopython": True, "boundscheck": None}


def unfinished(library):
    """Return a copy of a library's code as it was lowered, for linking once."""
    module = library._final_module.clone()
    for f in module.functions:
        if not f.is_declaration and f.linkage.name == "external":
            f.linkage = "linkonce_odr"
    return module


def make_internal(module, entries):
    """Hide the functions of a module, but for its entries, from other modules.

    Only after it is optimised: LLVM inlines each internal function that is called once, and then
    loops of long functions, with pointers of which it knows less, are not vectorised any more.
    """
    for f in module.functions:
        if not f.is_declaration and f.name not in entries and f.linkage.name != "private":
            f.linkage = "internal"


def has_loop(code):
    """Whether a function has loops. Such functions stay functions, whose loops LLVM vectorises.

    Inlined, a loop has pointers into one array, and its independence is no longer seen.
    """
    loops = "FOR_ITER", "JUMP_BACKWARD"
    return any(step.opname.startswith(loops) for step in dis.get_instructions(code))


@functools.cache
def classes():
    """Return the classes for entries and for inner functions."""
    from numba import _dynfunc
    from numba.core import compiler
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler_machinery import register_pass
    from numba.core.environment import lookup_environment
    from numba.core.registry import CPUDispatcher
    from numba.core.typed_passes import NativeLowering

    class Library(JITCodeLibrary):
        """Raw code until it is finalised, which only the library of an entry is."""

        def add_linking_library(self, library):
            if not isinstance(library, Library) or library._shared_module is not None:
                library._ensure_finalized()
            self._linking_libraries.append(library)

        def add_llvm_module(self, module):
            module.data_layout = self._codegen._data_layout
            self._final_module.link_in(module)

        def finalize(self):
            self._raise_if_finalized()
            own = {f.name for f in self._final_module.functions if not f.is_declaration}
            waiting, seen = list(self._linking_libraries), set()
            while waiting:
                library = waiting.pop(0)
                if library in seen:
                    continue
                seen.add(library)
                self._reload_init.update(library._reload_init)
                raw = isinstance(library, Library) and not library._finalized
                module = unfinished(library) if raw else library._get_module_for_linking()
                self._final_module.link_in(module, preserve=True)
                if raw:
                    waiting += library._linking_libraries
            self._optimize_final_module()
            make_internal(self._final_module, own)
            self._final_module.verify()
            self._finalize_final_module()
            for variable in self._final_module.global_variables:
                if variable.name.startswith("_ZN08NumbaEnv"):
                    environment = lookup_environment(variable.name)
                    if environment is not None:
                        self._codegen.set_env(variable.name, environment)

    @register_pass(mutates_CFG=True, analysis_only=False)
    class Lowering(NativeLowering):
        _name = "fastsvgp_lowering"

        def run_pass(self, state):
            name = state.func_id.func_qualname
            state.library = Library(state.targetctx.codegen(), name)
            state.library.enable_object_caching()
            super().run_pass(state)
            if has_loop(state.func_id.code) and not state.flags.forceinline:
                entry = state.library.get_function(state["cr"].fndesc.llvm_func_name)
                entry.add_function_attribute("noinline")
            if state.flags.no_compile:
                # callers are lowered to a call of a key, which itself cannot be called
                result = state["cr"]
                descriptor = result.fndesc
                key = _dynfunc.make_function(
                    descriptor.lookup_module(), descriptor.qualname, "", 1, result.env,
                    (state.library,),
                )  # fmt: skip
                state.targetctx.insert_user_function(key, descriptor, [state.library])
                state["cr"] = result._replace(cfunc=key)
            return True

    class Pipeline(compiler.CompilerBase):
        def define_pipelines(self):
            manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
            manager.passes = [
                (Lowering, text) if step is NativeLowering else (step, text)
                for step, text in manager.passes
            ]
            manager._finalized = False
            manager.finalize()
            return [manager]

    class Inner(CPUDispatcher):
        """Called from compiled code; never finalised."""

        kinds = None

        def add_overload(self, result):
            self.overloads[tuple(result.signature.args)] = result

        def get_call_template(self, args, kws):
            signature, args = self._compiler.fold_argument_types(args, kws)
            template, _, _, _ = super().get_call_template(canonical(self.kinds, args), {})
            return template, signature, args, {}

    class Entry(CPUDispatcher):
        """Called from Python."""

        kinds = None

        def _compile_for_args(self, *args, **kws):
            given = tuple(self.typeof_pyval(a) for a in args)
            form = canonical(self.kinds, given)
            entry = self.compile(form)
            if given != form:
                self._insert([a._code for a in given], entry, False)
            return entry

    return Pipeline, Inner, Entry


def canonical(kinds, given):
    """Return the types to compile for: those of the declared form, if the given ones fit."""
    from numba.core import types

    if kinds is not None:
        real = next((t for t in _flat(given) if t in (types.float64, types.float32)), types.float64)
        for name in dict.fromkeys((str(real), "float64", "float32")):
            declared = forms.signature(kinds, name)
            if forms.fits(declared, given):
                return declared
    return tuple(types.unliteral(t) for t in given)  # no form of its own for a constant


def _flat(given):
    """Yield the dtypes of arrays, also of those in tuples."""
    from numba.core import types

    for t in given:
        if isinstance(t, types.Array):
            yield t.dtype
        elif isinstance(t, types.BaseTuple):
            yield from _flat(t)


@functools.cache
def works():
    """Whether this Numba has what the classes above need."""
    try:
        made = _made("Entry", _probe, None, {}, no_cfunc_wrapper=True)
        made.enable_caching()
        return made(2.0) == 5.0
    except Exception:  # whatever has changed
        return False


def _made(name, py_func, kinds, options, **more):
    pipeline, *kind = classes()
    made = kind[name == "Entry"](
        py_func, targetoptions={**options, **OPTIONS, **more}, pipeline_class=pipeline
    )
    made.kinds = kinds
    return made


def inner(kernel):
    """Return Numba's object for calls of a kernel from compiled code."""
    if not works():
        return kernel.dispatcher
    return _inner(kernel.py_func, kernel.kinds, kernel.options)


def _inner(py_func, kinds, options):
    made = _made("Inner", py_func, kinds, options, no_cpython_wrapper=True, no_cfunc_wrapper=True)
    customise = made._compiler._customize_flags

    def flags(given):
        given = customise(given)
        given.no_compile = True
        return given

    made._compiler._customize_flags = flags
    return made


def entry(kernel):
    """Return Numba's object for calls of a kernel from Python."""
    if not works():
        import numba

        return numba.njit(cache=True, **kernel.options)(kernel.py_func)
    made = _made("Entry", kernel.py_func, kernel.kinds, kernel.options, no_cfunc_wrapper=True)
    made.enable_caching()
    # a call of itself is a recursion, although it is a call of the inner object
    made._compiling_counter = kernel.inner._compiling_counter
    return made


def _twice(x):
    return 2 * x


class _Twice:
    """An inner function for ``_probe``."""

    @functools.cached_property
    def made(self):
        return _inner(_twice, None, {"nogil": True})

    @property
    def _numba_type_(self):
        return self.made._numba_type_


twice = _Twice()


def _probe(x):
    return twice(x) + 1
