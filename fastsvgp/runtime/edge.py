"""The edge of the package: what happens around every call of a public function, in one place.

The call goes to whatever serves the kind of its model, with options that this kind takes. BLAS gets
as many threads as the matrices deserve. On a device, checks are read with the result. Where memory
runs out, the message names an argument.
"""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .. import models
from ..errors import no_option
from .blas_scope import blas_threads_for
from .deferred_checks import confirmed
from .memory import name_culprit

P = ParamSpec("P")
R = TypeVar("R")


def public_call(
    kind: type | None = None, *, checks: bool = True, blas_threads: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a public function of one that serves models of ``kind``; what is called goes by the kind of the first argument.

    Parameters
    ----------
    kind : type, optional
        Without it the function is the same for whatever comes.
    checks : bool
        The function defers checks on a device.
    blas_threads : bool
        Set the threads of BLAS for the time of the call. False for functions that call others on
        smaller parts.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, parameters = function.__name__, inspect.signature(function).parameters
        first = next(iter(parameters), "")
        more = kind is None and not any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if kind is not None:
            models.register(kind, **{name: function})

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            serves = function
            if kind is not None:
                if not args and first in options:
                    args = (options.pop(first),)  # type: ignore[assignment]
                if args:  # else Python says what is missing
                    serves, named, rest = models.serving(name, args[0], first)
                    if not options.keys() <= named:
                        options = models.check_options(name, type(args[0]), options, named, rest)
            try:
                if blas_threads:
                    joint = name == "sample_f" or options.get("full_cov") is True
                    with blas_threads_for((*args, *options.values()), joint):
                        return _called(serves, args, options, checks)
                return _called(serves, args, options, checks)
            except MemoryError as error:
                raise name_culprit(error, function, args, options) from error
            except TypeError:
                if more and (unknown := [one for one in options if one not in parameters]):
                    known = [p.name for p in parameters.values() if p.default is not p.empty]
                    raise no_option(name, unknown[0], known) from None
                raise

        return call

    return decorate


def run(function, *args, **options):
    """``function(*args, **options)`` as the inside of a public call: with threads, checks and messages of its own."""
    try:
        with blas_threads_for((*args, *options.values())):
            return confirmed(function, args, options)
    except MemoryError as error:
        raise name_culprit(error, function, args, options) from error


def _called(function, args, options, checks):
    return confirmed(function, args, options) if checks else function(*args, **options)
