"""One table: what serves each public function for each kind of model. A kind is a record whose file registers what it offers."""

import inspect

_SERVES: dict[type, dict] = {}  # kind: {public function: (what serves it, the keywords that it takes, or None for any)}
_INSTEAD: dict[type, str] = {}  # kind: what to use where it does not offer a function


def register(kind, *, instead=None, **functions):
    """Offer public functions for models of a kind; a kind may register more than once.

    Parameters
    ----------
    kind : type
        A record. Its subclasses are of the kind too.
    instead : str, optional
        What an error tells those who ask for a function that this kind does not offer.
    **functions
        By the names of the public functions: what serves them. Each is called with the model and the other positional arguments,
        and with those keywords alone that the caller gave; options are keyword-only.
    """
    if instead is not None:
        _INSTEAD[kind] = instead
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
        keywords = None if any_keyword else frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        _SERVES.setdefault(kind, {})[name] = function, keywords


def call(name, model, /, *args, **keywords):
    """Call the public function ``name`` as the model's kind serves it; keywords that are None count as not given.

    Raises ``TypeError`` where the kind does not offer the function or a keyword.
    """
    for kind in type(model).__mro__:
        function, known = _SERVES.get(kind, {}).get(name, (None, None))
        if function is not None:
            break
    else:
        raise TypeError(_unknown(name, model))
    given = {key: value for key, value in keywords.items() if value is not None}
    if known is not None and not given.keys() <= known:
        wrong = next(key for key in given if key not in known)
        takes = ", ".join(f"`{key}`" for key in sorted(known)) or "no options"
        raise TypeError(f"{name}: `{wrong}` is nothing that a {kind.__name__} takes; it takes {takes}")
    return function(model, *args, **given)


def _unknown(name, model):
    """What to say where no kind of model that is known, or not this one, offers the function."""
    ours = {
        kind.__name__: functions[name][0]
        for kind, functions in _SERVES.items()
        if name in functions and kind.__module__.startswith("fastsvgp.")
    }
    argument = next(iter(inspect.signature(next(iter(ours.values()))).parameters))
    said = f"{name}: `{argument}` must be a fastsvgp.{' or '.join(ours)}, got {type(model).__name__}"
    for kind in type(model).__mro__:
        if kind in _INSTEAD:
            return f"{said}: {_INSTEAD[kind]}"
        if kind in _SERVES:
            return f"{said}, which offers {', '.join(sorted(_SERVES[kind]))}"
    if isinstance(model, tuple) and model and any(kind in _SERVES for kind in type(model[0]).__mro__):
        return f"{said}: fit gives the model and what is to say about the training, model, info = fastsvgp.fit(...)"
    return f"{said}: give its .model" if hasattr(model, "model") else said
