"""The edge of the package: the work around every call of a public function.

The edge picks the implementation for the type of the model and checks the options that this type
takes. It sets the number of BLAS threads by the sizes of the matrices. On a device, it reads
deferred checks with the result.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .. import models
from ..errors import no_option
from .blas_scope import blas_threads_for
from .deferred_checks import confirm

P = ParamSpec("P")
R = TypeVar("R")


def public_call(
    kind: type | None = None,
    *,
    name: str | None = None,
    checks: bool = True,
    blas_threads: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate the implementation of a public function for models of type ``kind``.

    The type of the first argument selects the implementation that runs.

    Parameters
    ----------
    kind : type, optional
        Type of model that the implementation serves. Default: any first argument.
    name : str, optional
        Public name, with its module if that of the function alone is ambiguous ("qsgp.bound").
    checks : bool
        Whether the function defers checks on a device.
    blas_threads : bool
        Set the number of BLAS threads during the call. False for functions that call other public
        functions on smaller parts.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        key, parameters = name or function.__name__, inspect.signature(function).parameters
        first = next(iter(parameters), "")
        more = kind is None and not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if kind is not None:
            models.register(kind, **{key: function})

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            serves = function
            if kind is not None:
                if not args and first in options:
                    args = (options.pop(first),)  # type: ignore[assignment]
                if args:  # otherwise Python reports the missing argument
                    serves, named, rest = models.serving(key, args[0], first)
                    if not options.keys() <= named:
                        options = models.check_options(key, type(args[0]), options, named, rest)
            try:
                if blas_threads:
                    joint = key == "sample_f" or options.get("full_cov") is True
                    with blas_threads_for((*args, *options.values()), joint):
                        return _call(serves, args, options, checks)
                return _call(serves, args, options, checks)
            except TypeError:
                if more and (unknown := [one for one in options if one not in parameters]):
                    known = [p.name for p in parameters.values() if p.kind is not p.VAR_POSITIONAL]
                    raise no_option(key, unknown[0], known) from None
                raise

        return call

    return decorate


def run(function, *args, **options):
    """Call ``function`` with the BLAS threads and deferred checks of a public call."""
    with blas_threads_for((*args, *options.values())):
        return confirm(function, args, options)


def _call(function, args, options, checks):
    return confirm(function, args, options) if checks else function(*args, **options)
