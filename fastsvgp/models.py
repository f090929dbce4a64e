"""One table: what serves each public function for each kind of model. A kind is a record whose file registers what it offers."""

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SERVES: dict[type, dict] = {}  # kind: {public function: (what serves it, the options that it takes, or None for any)}
_INSTEAD: dict[type, str] = {}  # kind: what to use where it does not offer a function


def register(kind, *, instead=None, **functions):
    """Offer public functions for models of a kind; a kind may register more than once. docs/model.md adds one, step by step.

    Parameters
    ----------
    kind : type
        A record. Its subclasses are of the kind too.
    instead : str, optional
        What an error tells those who ask for a function that this kind does not offer.
    **functions
        By the names of the public functions: what serves them. Each is called as the public function was; its options are
        keyword-only.
    """
    if instead is not None:
        _INSTEAD[kind] = instead
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        any_option = any(p.kind is p.VAR_KEYWORD for p in parameters)
        options = None if any_option else frozenset(p.name for p in parameters if p.kind is not p.VAR_POSITIONAL)
        _SERVES.setdefault(kind, {})[name] = function, options


def public(kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a public function of one that serves models of ``kind``; what is called goes by the kind of the first argument.

    ``TypeError`` where a kind does not offer the function, or an option that is given.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name, argument = function.__name__, next(iter(inspect.signature(function).parameters))
        register(kind, **{name: function})

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            if not args and argument in options:
                args = (options.pop(argument),)
            if not args:
                return function(**options)  # Python says what is missing
            own, serves, known = serving(name, args[0], argument)
            if known is not None and not options.keys() <= known:
                _refuse(name, own, serves, options.keys() - known)
            return serves(*args, **options)

        return call

    return decorate


def serving(name, model, argument="model"):
    """``(kind, what serves a public function for it, its options)`` for this model; ``TypeError`` where nothing does."""
    for kind in type(model).__mro__:
        if name in _SERVES.get(kind, ()):
            return kind, *_SERVES[kind][name]
    raise TypeError(_not_offered(name, model, argument))


def _refuse(name, kind, serves, unknown):
    takes = [f"`{p.name}`" for p in inspect.signature(serves).parameters.values() if p.kind is p.KEYWORD_ONLY]
    raise TypeError(f"{name}: `{min(unknown)}` is no option for {kind.__name__}; it takes {', '.join(takes) or 'no options'}")


def _not_offered(name, model, argument):
    """What to say where no kind of model that is known, or not this one, offers the function."""
    ours = [kind.__name__ for kind, functions in _SERVES.items() if name in functions and kind.__module__.startswith("fastsvgp.")]
    said = f"{name}: `{argument}` must be a fastsvgp.{' or '.join(ours)}, got {type(model).__name__}"
    for kind in type(model).__mro__:
        if kind in _INSTEAD:
            return f"{said}: {_INSTEAD[kind]}"
        if kind in _SERVES:
            return f"{said}, which offers {', '.join(sorted(_SERVES[kind]))}"
    if isinstance(model, tuple) and model and type(model[0]) in _SERVES:
        return f"{said}: fit gives the model and what is to say about the training, model, info = fastsvgp.fit(...)"
    return f"{said}: give its .model" if hasattr(model, "model") else said
