"""One table: what serves each public function for each kind of model.

A kind is a record whose file registers what it offers.
"""

import dataclasses
import inspect
import re
import sys
from typing import NamedTuple

from .errors import refuse_unknown

# Written by ``python tools/public_names.py``.
OFFERED = (
    "data_term_and_grad",
    "elbo",
    "elbo_and_grad",
    "kl_term_and_grad",
    "likelihood_direction",
    "collapsed_bound",
    "collapsed_bound_and_grad",
    "optimal_svgp",
    "advance_control",
    "kriged_control",
    "paired_control",
    "convert",
    "dual_parameters",
    "leave_one_out",
    "site_bound",
    "site_bound_and_grad",
    "site_bound_terms",
    "tied",
    "sampled_bound_and_grad",
    "optimal_diagonal",
    "optimal_weights",
    "optimal_precision",
    "prune",
    "relevance_vectors",
    "weight_bound",
    "weight_bound_and_grad",
    "tighter_bound",
    "tighter_bound_and_grad",
    "predict_cdf",
    "predict_f",
    "predict_log_density",
    "predict_quantiles",
    "predict_y",
    "sample_f",
    "predict_f_and_vjp",
    "natural_step",
    "natural_step_and_grad",
    "refresh_inverse",
    "fit",
    "em",
    "natural_steps",
)
# of all posteriors that are known: options that ``**random`` of a bound passes on
RANDOM_QUANTITIES: set[str] = set()

# an annotated ``**`` parameter, for type checkers: options of other kinds of model, none of which comes
OTHERS = "others"

_SERVES: dict[type, dict] = {}  # kind: {public function: what ``serving`` returns}
_INSTEAD: dict[type, str] = {}  # kind: what to use where it does not offer a function


def register(kind, *, instead=None, **functions):
    """Offer public functions for models of a kind; a kind may register more than once.

    Parameters
    ----------
    kind : type
        A record. Classes derived from it are kinds of their own.
    instead : str, optional
        What an error tells those who ask for a function that this kind does not offer.
    **functions
        By the names of the public functions: what serves them. Each is called as the public
        function was; its options are keyword-only.

    Raises
    ------
    TypeError
        No class, or a name of no public function that goes by the kind of a model.

    Examples
    --------
    >>> @fs.record
    ... class Reversed:
    ...     model: fs.SVGP
    >>> fs.models.register(Reversed, predict_f=lambda model, Xs: fs.predict_f(model.model, -Xs))
    >>> mean, var = fs.predict_f(Reversed(model), X)
    >>> mean.shape
    (40,)
    """
    if not isinstance(kind, type):
        raise TypeError(f"register: `kind` must be the class of a model, got {kind!r:.200}")
    if instead is not None:
        _INSTEAD[kind] = instead
    for name, function in functions.items():
        if name not in OFFERED:
            raise TypeError(
                f"register: {name!r} is no public function that goes by the kind of a model:"
                f" {', '.join(OFFERED)}"
            )
        parameters = inspect.signature(function).parameters.values()
        options = frozenset(
            p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        )
        more = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        typed = more is not None and more.name == OTHERS and more.annotation is not more.empty
        rest = None if more is None or typed else more.name
        record = _record_of(function)
        if record is not None:
            options, rest = options | {f.name for f in dataclasses.fields(record)}, None
        _SERVES.setdefault(kind, {})[name] = function, options, rest


def serving(name, model, argument="model"):
    """What serves a public function for this model.

    Parameters
    ----------
    name : str
        Of the public function.
    model : record
    argument : str
        What the public function calls the model: for the error.

    Returns
    -------
    function : callable
    options : frozenset of str
        The names of its parameters.
    rest : str or None
        The name of its ``**`` parameter.

    Raises
    ------
    TypeError
        Where models of this kind do not have it; says which kinds do.

    Examples
    --------
    >>> function, options, rest = fs.models.serving("elbo", model)
    >>> round(function(model, X, Y), 3), "num_data" in options, rest
    (-279.181, True, 'random')
    """
    if not offers(name, model):
        raise TypeError(_not_offered(name, model, argument))
    return _SERVES[type(model)][name]


def offers(name, model):
    """Whether models of this kind have a public function.

    Parameters
    ----------
    name : str
        Of the public function.
    model : record

    Returns
    -------
    bool

    Examples
    --------
    >>> fs.models.offers("elbo", model), fs.models.offers("elbo", sgpr), fs.models.offers("collapsed_bound", sgpr)
    (True, False, True)
    """
    return name in _SERVES.get(type(model), ())


def takes(name, model, option):
    """Whether models of this kind have a public function, and it takes this option."""
    if not offers(name, model):
        return False
    _, named, rest = serving(name, model)
    return option in named or rest not in (None, "random")


class Option(NamedTuple):
    """One option of a public function: its name, its default, and a line on what it does."""

    name: str
    default: object
    summary: str


def options(kind, function="fit"):
    """The options that a public function has for one kind of model only, beside those that it has for all.

    Parameters
    ----------
    kind : type
        Of the model.
    function : str
        Name of the public function.

    Returns
    -------
    list of Option
        ``name``, ``default`` and ``summary`` of each.

    Raises
    ------
    TypeError
        Models of this kind do not have the function.

    Examples
    --------
    >>> for option in fs.models.options(fs.QSGP):
    ...     print(option.name, option.default, option.summary)
    basis_size None Basis functions per step on each side.
    control None Control variate: a kriged one at this number of random rows, or an object for this model.
    closed_form_every None Steps between closed forms of the diagonal, for Gaussian noise.
    """
    # the front door loads what serves it
    public = getattr(sys.modules[__package__], function, None)
    if function not in _SERVES.get(kind, ()):
        name = getattr(kind, "__name__", repr(kind))
        raise TypeError(f"options: {name} is no kind of model that has `{function}`")
    serves, record = _SERVES[kind][function][0], record_of(kind, function)
    if record is not None:
        summaries = _summaries(record)
        fields = dataclasses.fields(record)
        return [Option(f.name, f.default, summaries.get(f.name, "")) for f in fields]
    shared = inspect.signature(public).parameters
    return [
        Option(p.name, p.default, "")
        for p in inspect.signature(serves).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name not in shared
    ]


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """The record of a kind that has no options for itself."""


def with_options(record):
    """Mark what serves a public function: the options of its kind alone are the fields of a frozen ``record``.

    They reach it by keyword.
    """

    def mark(function):
        function.options_record = record
        return function

    return mark


def record_of(kind, function):
    """The record of the options of a public function for this kind; None where what serves it names none."""
    return _record_of(_SERVES[kind][function][0])


def _record_of(serves):
    inner = getattr(serves, "func", serves)  # of a ``functools.partial``
    return getattr(serves, "options_record", getattr(inner, "options_record", None))


def _fields_of(serves):
    record = _record_of(serves)
    return () if record is None else dataclasses.fields(record)


def _summaries(record):
    """By the names of the fields of a record: the first sentence that its docstring has on each."""
    found, text = {}, inspect.getdoc(record) or ""
    entries = re.findall(r"^(\w[\w, ]*) : .+\n((?:    .+\n?|\n(?=    ))+)", text, re.M)
    for names, body in entries:
        first = " ".join(body.split()).partition(". ")[0].rstrip(".") + "."
        found |= dict.fromkeys(names.split(", "), first)
    return found


def _takers(function, option):
    """Kinds of ours that have this option of a public function for themselves: by name, the default."""
    return {
        kind.__name__: field.default
        for kind, functions in _SERVES.items()
        if function in functions and kind.__module__.startswith("fastsvgp.")
        for field in _fields_of(functions[function][0])
        if field.name == option
    }


def check_options(name, kind, options, named, rest):
    """The options that reach what serves a public function for this kind; others are refused.

    An option of other kinds is refused by the names of these, unless it is None or has its default.
    Of ``**random`` those are refused that no posterior has.
    """
    known = {*named, *(RANDOM_QUANTITIES if rest == "random" else options if rest else ())}
    given = {}
    for option, value in options.items():
        takers = {} if option in known else _takers(name, option)
        if not takers:
            given[option] = value
        elif not is_default(value, next(iter(takers.values()))):
            owners = " and ".join(sorted(takers))
            raise TypeError(
                f"{name}: `{option}` is an option of {owners}, not of {kind.__name__}; leave it out"
            )
    refuse_unknown(name, given, known, kind.__name__)
    return given


def is_default(value, default):
    """Whether an option says no more than to leave it out does."""
    return value is None or value is default or isinstance(value, str) and value == default


def _not_offered(name, model, argument):
    """What to say where no kind of model that is known, or not this one, offers the function."""
    kinds = (
        kind
        for kind, functions in _SERVES.items()
        if name in functions and kind.__module__.startswith("fastsvgp.")
    )
    ours = sorted(kind.__name__ for kind in kinds)  # whatever was imported first
    listed = " or ".join(filter(None, (", ".join(ours[:-1]), *ours[-1:])))
    said = f"{name}: `{argument}` must be a fastsvgp.{listed}, got {type(model).__name__}"
    kind = type(model)
    if kind in _INSTEAD:
        return f"{said}: {_INSTEAD[kind]}"
    if kind in _SERVES:
        return f"{said}, which offers {', '.join(sorted(_SERVES[kind]))}"
    if isinstance(model, tuple) and model and type(model[0]) in _SERVES:
        return (
            f"{said}: fit gives the model and what is to say about the training, model, info ="
            " fastsvgp.fit(...)"
        )
    return f"{said}: give its .model" if hasattr(model, "model") else said
