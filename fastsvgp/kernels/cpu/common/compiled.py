"""Kernels: functions of a module built ahead of time, or compiled by Numba when they are called.

Numba is imported only to compile. A kernel that is called from Python declares its form (see
``forms``): the module has a function for it, with either dtype, and the compiler makes nothing
else of it. Without a module, or for arguments of another form, it is compiled at its first call,
with all that it calls in one piece (see ``link_once``).
"""

import collections
import functools
import os

from . import ahead, forms, link_once, numba_cache

FAST = {"contract", "reassoc", "nsz", "arcp"}  # of fastmath, for loops that it vectorises
KERNELS = {}  # (module, name) -> Kernel
MISSES = collections.Counter()  # calls of kernels that the module lacks, by module and name

_pending = []  # registrations with Numba, which wait until it is needed


class _Types:
    """``numba.types``, imported at its first use."""

    def __getattr__(self, name):
        return getattr(ready().types, name)


class _IR:
    """``llvmlite.ir``, imported at its first use."""

    def __getattr__(self, name):
        from llvmlite import ir

        return getattr(ir, name)


types, ir = _Types(), _IR()


@functools.cache
def ready():
    """Import Numba, find a place for compiled code, and register what is ours; return Numba."""
    try:
        import numba
    except ImportError as error:
        raise ImportError(
            f"compiling kernels needs Numba, which cannot be imported here ({error}); install"
            " versions of numba and numpy that fit, or a wheel of fastsvgp with compiled kernels"
        ) from error

    numba_cache.drop_stale()
    numba_cache.find_place()
    while _pending:
        _pending.pop(0)()
    return numba


def when_ready(registration):
    """Call a function when Numba is needed; at once if it has been."""
    if ready.cache_info().currsize:
        registration()
    else:
        _pending.append(registration)


def interpreted():
    """Whether ``NUMBA_DISABLE_JIT`` asks for Python code, as debuggers and coverage need it."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


class _Always(dict):
    """One function for every dtype."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def __missing__(self, dtype):
        return self.function


class Kernel:
    """A function that Numba compiles; calls from compiled code see it as Numba's own.

    ``entry``: Python calls it, so the module has it. ``form`` is None if it is compiled for
    whatever compiled code passes.
    """

    def __init__(self, py_func, form, entry, options):
        functools.update_wrapper(self, py_func)
        self.py_func, self.entry, self.options = py_func, entry, {"nogil": True, **options}
        self.kinds = None if form is None else forms.parsed(*form)
        place = forms.place_of_dtype(self.kinds or ())
        self._at, self._inner = (*place, None, None)[:2]
        self._functions = None
        KERNELS[self.key] = self

    @property
    def key(self):
        return self.py_func.__module__, self.py_func.__qualname__

    def __call__(self, *args):
        if self._functions is None:
            self._functions = self._bound()
        try:
            return self._functions[self._dtype(args)](*args)
        except (KeyError, TypeError, AttributeError):
            if isinstance(self._functions, _Always):
                raise
        MISSES[self.key] += 1
        return self.dispatcher(*args)

    def _dtype(self, args):
        """Return the character of R in a call."""
        if self._at is None:
            return ""
        given = args[self._at]
        return (given if self._inner is None else given[self._inner]).dtype.char

    def _bound(self):
        if interpreted():
            return _Always(self.py_func)
        return ahead.functions(self) or _Always(self.dispatcher)

    @functools.cached_property
    def dispatcher(self):
        """Numba's object for calls from Python."""
        ready()
        return link_once.entry(self)

    @functools.cached_property
    def inner(self):
        """Numba's object for calls from compiled code."""
        ready()
        return link_once.inner(self)

    @property
    def _numba_type_(self):
        return self.inner._numba_type_


def njit(*args, **options):
    """Mark a function that only compiled code calls; options are those of ``numba.njit``.

    It is compiled for whatever compiled code passes, or for the form that is given.
    """
    if len(args) == 1 and callable(args[0]):
        return Kernel(args[0], None, False, options)
    return lambda py_func: Kernel(py_func, args or None, False, options)


def kernel(*form, **options):
    """Mark a function that Python calls with arguments of this form (see ``forms``)."""
    return lambda py_func: Kernel(py_func, form, True, options)


class Intrinsic:
    """``numba.extending.intrinsic``, made when a function that calls it is compiled."""

    def __init__(self, definition):
        functools.update_wrapper(self, definition)
        self._definition = definition

    @functools.cached_property
    def _numba_type_(self):
        ready()
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic

        self._made = intrinsic(self._definition)  # Numba holds weak references only
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(self._made)

    def __call__(self, *args):
        raise NotImplementedError(f"{self.__name__} works in compiled code only")


intrinsic = Intrinsic


def overload(function, **options):
    """Defer ``numba.extending.overload``."""

    def decorated(implementation):
        def registration():
            from numba.extending import overload

            overload(function, **options)(implementation)

        when_ready(registration)
        return implementation

    return decorated


def blas_symbols(names):
    """Let compiled code find SciPy's BLAS by our names, ``fastsvgp_dgemm`` for ``dgemm``."""

    def registration():
        from llvmlite import binding
        from numba.extending import get_cython_function_address

        for name in names:
            address = get_cython_function_address("scipy.linalg.cython_blas", name)
            binding.add_symbol(f"fastsvgp_{name}", address)

    when_ready(registration)
