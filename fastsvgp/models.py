"""One table: what serves each public function for each kind of model.

A kind is a record whose file registers what it offers.
"""

import inspect

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

# a ``**`` parameter for type checkers: options that other kinds of model take, none of which comes
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
        rest = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
        if rest == OTHERS:
            rest = None
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


def check_options(name, kind, options, named, rest):
    """Refuse options of a public function that this kind does not take: of ``**random`` such as no posterior has."""
    taken = RANDOM_QUANTITIES if rest == "random" else options if rest else ()
    refuse_unknown(name, options, {*named, *taken}, kind.__name__)


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
