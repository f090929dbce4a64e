"""Dispatch table: the implementation of each public function for each kind of model.

A kind is a record class. The module that defines it registers the functions that it offers.
"""

import dataclasses
import functools
import inspect
import re
from typing import NamedTuple

from .errors import refuse_unknown
from .public_names import find, offer_defined, place

# Written by ``python tools/public_names.py``.
OFFERED = (
    "predict_cdf",
    "predict_f",
    "predict_log_density",
    "predict_quantiles",
    "predict_y",
    "sample_f",
    "predictor",
    "condition",
    "export",
    "certificate",
    "sample_paths",
    "fit",
    "em",
    "laplace",
    "lsvgp_direction",
    "data_term_and_grad",
    "elbo",
    "elbo_and_grad",
    "kl_term_and_grad",
    "predict_f_and_vjp",
    "moment_interval",
    "streaming_bound_and_grad",
    "streaming_svgp",
    "collapsed_bound",
    "collapsed_bound_and_grad",
    "optimal_svgp",
    "tighter_bound",
    "tighter_bound_and_grad",
    "input_covariance",
    "update_inverse_factor",
    "natural_step",
    "natural_step_and_grad",
    "convert",
    "optimal_diagonal",
    "update_control_variate",
    "kriging_control_variate",
    "qsgp.bound",
    "qsgp.bound_and_grad",
    "paired_control_variate",
    "optimal_precision",
    "prune",
    "relevance_vectors",
    "sampled_bound_and_grad",
    "optimal_weights",
    "dual_parameters",
    "leave_one_out",
    "sites.bound",
    "sites.bound_and_grad",
    "sites.bound_terms",
    "tie_sites",
    "natural_steps",
)
# options that ``**random`` of a bound passes on, of all known posteriors
RANDOM_QUANTITIES: set[str] = set()

# name of an annotated ``**`` parameter for type checkers: options of other kinds, never passed
OTHERS = "others"
FEW = 8  # functions that a message lists; of more of them, those of ``FIRST``
FIRST = "elbo", "natural_step", "em", "fit", "predict_f", "predict_y", "sample_f"

_IMPLEMENTATIONS: dict[type, dict] = {}  # kind: {public function: result of ``serving``}
_ADVICE: dict[type, str] = {}  # kind: what to use in place of functions that it does not offer


def register(kind, *, instead=None, **functions):
    """Register implementations of public functions for a kind of model.

    A kind can register more than once.

    Parameters
    ----------
    kind : type
        Record class of the models. Classes derived from it are separate kinds.
    instead : str, optional
        Advice in the error for a function that this kind does not offer.
    **functions
        Implementations, by the name of the public function. Each is called with the arguments of
        the public function; its options are keyword-only.

    Raises
    ------
    TypeError
        ``kind`` is not a class, or a name is not a public function that depends on the kind of
        model.

    Examples
    --------
    >>> @fs.records.record
    ... class Reversed:
    ...     model: fs.SVGP
    >>> def predict_f(model, Xs):
    ...     return fs.predict_f(model.model, -Xs)
    >>> fs.extending.models.register(Reversed, predict_f=predict_f)
    >>> mean, var = fs.predict_f(Reversed(model), X)
    >>> mean.shape
    (40,)
    """
    if not isinstance(kind, type):
        raise TypeError(f"register: `kind` must be the class of a model, got {kind!r:.200}")
    if instead is not None:
        _ADVICE[kind] = instead
    for name, function in functions.items():
        if name not in OFFERED:
            raise TypeError(
                f"register: {name!r} is not a public function that depends on the kind of model:"
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
        _IMPLEMENTATIONS.setdefault(kind, {})[name] = function, options, rest


def share(kind, like, *names, options=None):
    """Register for a kind the implementations that another kind has of these public functions.

    options : record of further options that these functions have for ``kind``
    """
    for name in names:
        function = _IMPLEMENTATIONS[like][name][0]
        if options is not None:
            function = with_options(options)(functools.partial(function))
        register(kind, **{name: function})


def serving(name, model, argument="model"):
    """Find the implementation of a public function for this model.

    Parameters
    ----------
    name : str
        Name of the public function.
    model : record
    argument : str
        Name of the model argument in error messages.

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
        Models of this kind do not have the function; the message says which kinds do.

    Examples
    --------
    >>> function, options, rest = fs.extending.models.serving("elbo", model)
    >>> round(function(model, X, Y), 3), "num_data" in options, rest
    (-279.181, True, 'random')
    """
    if not offers(name, model):
        raise TypeError(_not_offered(name, model, argument))
    return _IMPLEMENTATIONS[type(model)][name]


def offers(name, model):
    """Whether models of this kind have a public function.

    Parameters
    ----------
    name : str
        Name of the public function.
    model : record

    Returns
    -------
    bool

    Examples
    --------
    >>> fs.extending.models.offers("elbo", model), fs.extending.models.offers("elbo", sgpr)
    (True, False)
    """
    return name in _IMPLEMENTATIONS.get(type(model), ())


def takes(name, model, option):
    """Whether models of this kind have a public function that takes this option."""
    if not offers(name, model):
        return False
    _, named, rest = serving(name, model)
    return option in named or rest not in (None, "random")


class Option(NamedTuple):
    """One option of a public function: its name, its default, and a one-line summary."""

    name: str
    default: object
    summary: str


def options(kind, function="fit"):
    """List the options that a public function has for one kind of model only.

    Options that it has for all kinds are not listed.

    Parameters
    ----------
    kind : type
        Class of the model.
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
    >>> for option in fs.extending.models.options(fs.QSGP):
    ...     print(option.name, option.default)
    basis_size None
    control None
    closed_form_every None
    """
    # loading the public function loads its implementations
    public = find(function)
    if function not in _IMPLEMENTATIONS.get(kind, ()):
        name = getattr(kind, "__name__", repr(kind))
        raise TypeError(f"options: {name} is not a kind of model that has `{function}`")
    serves, record = _IMPLEMENTATIONS[kind][function][0], record_of(kind, function)
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
    """The options record of a kind without options of its own."""


def with_options(record):
    """Decorator for an implementation: the fields of a frozen ``record`` are options of its kind.

    The options are passed by keyword.
    """

    def mark(function):
        function.options_record = record
        return function

    return mark


def record_of(kind, function):
    """The options record of a public function for this kind; None if it has none."""
    return _record_of(_IMPLEMENTATIONS[kind][function][0])


def _record_of(serves):
    inner = getattr(serves, "func", serves)  # of a ``functools.partial``
    return getattr(serves, "options_record", getattr(inner, "options_record", None))


def _fields_of(serves):
    record = _record_of(serves)
    return () if record is None else dataclasses.fields(record)


def _summaries(record):
    """The first sentence of the docstring of a record on each of its fields, by name."""
    found, text = {}, inspect.getdoc(record) or ""
    entries = re.findall(r"^(\w[\w, ]*) : .+\n((?:    .+\n?|\n(?=    ))+)", text, re.M)
    for names, body in entries:
        first = " ".join(body.split()).partition(". ")[0].rstrip(".") + "."
        found |= dict.fromkeys(names.split(", "), first)
    return found


def _defaults_by_kind(function, option):
    """Defaults of this option, by the names of the kinds of this package that have it."""
    return {
        kind.__name__: field.default
        for kind, functions in _IMPLEMENTATIONS.items()
        if function in functions and kind.__module__.startswith("fastsvgp.")
        for field in _fields_of(functions[function][0])
        if field.name == option
    }


def check_options(name, kind, options, named, rest):
    """Check options for this kind, and return those to pass to the implementation.

    An option of other kinds raises a ``TypeError`` with the names of these kinds, unless it is None
    or has its default. Options of ``**random`` that no posterior has are refused too.
    """
    known = {*named, *(RANDOM_QUANTITIES if rest == "random" else options if rest else ())}
    given = {}
    for option, value in options.items():
        takers = {} if option in known else _defaults_by_kind(name, option)
        if not takers:
            given[option] = value
        elif not is_default(value, next(iter(takers.values()))):
            owners = _join_names(sorted(takers), "and")
            raise TypeError(
                f"{name}: `{option}` is an option of {owners}, not of {kind.__name__}; leave it out"
            )
    refuse_unknown(name, given, known, kind.__name__)
    return given


def _join_names(names, last):
    """Return "A, B and C" for ``last`` "and"."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def is_default(value, default):
    """Whether an option has the same effect as leaving it out."""
    return value is None or value is default or isinstance(value, str) and value == default


def _not_offered(name, model, argument):
    """The message for a model whose kind is unknown or does not offer the function."""
    kinds = (
        kind
        for kind, functions in _IMPLEMENTATIONS.items()
        if name in functions and kind.__module__.startswith("fastsvgp.")
    )
    # sorted, so independent of the order of imports
    ours = sorted(place(kind.__name__).removeprefix("fastsvgp.") for kind in kinds)
    listed = _join_names(ours, "or")
    said = f"{name}: `{argument}` must be a fastsvgp.{listed}, got {type(model).__name__}"
    kind = type(model)
    if kind in _ADVICE:
        return f"{said}: {_ADVICE[kind]}"
    if kind in _IMPLEMENTATIONS:
        offers = sorted(_IMPLEMENTATIONS[kind])
        if len(offers) > FEW:
            first = [one for one in FIRST if one in offers]
            offers = [*first, f"{len(offers) - len(first)} more"]
        return f"{said}, which offers {', '.join(offers)}"
    if isinstance(model, tuple) and model and type(model[0]) in _IMPLEMENTATIONS:
        return (
            f"{said}: fit returns a model and information on its training, model, info ="
            " fastsvgp.fit(...)"
        )
    return f"{said}: give its .model" if hasattr(model, "model") else said


__getattr__, __dir__ = offer_defined(__name__)
