"""Checks of covariances that have parts, or read codes."""

from .base import Covariance

# Limit on parts within parts, below Python's recursion limit
MAX_DEPTH = 50


def set_depth(owner, parts):
    """Set the depth of a covariance of ``parts``; refuse more levels than Python could recurse."""
    depth = 1 + max((part._depth for part in parts if isinstance(part, Covariance)), default=0)
    if depth > MAX_DEPTH:
        raise ValueError(
            f"{type(owner).__name__}: `parts` are nested more than {MAX_DEPTH} deep; put them side"
            " by side"
        )
    object.__setattr__(owner, "_depth", depth)


def all_codes(parts, D):
    """Return ``code_columns`` of several covariances of the same inputs."""
    found = {}
    for part in parts:
        for column, levels in part.code_columns(D).items():
            known = [n for n in (levels, found.get(column)) if n is not None]
            found[column] = min(known, default=None)
    return found


def refuse_codes(what, covariance, inputs):
    """Refuse a covariance that reads codes where its inputs are not columns of X, but ``inputs``.

    Numbers that a model computes are real, and codes of them would be their integer parts.
    """
    reader = _reader_of_codes(covariance)
    if reader is not None:
        raise TypeError(
            f"{what}: a {reader} reads codes, but its inputs are {inputs}, real numbers; make each"
            " code a column of 0 and 1"
        )


def _reader_of_codes(covariance):
    """Return the name of a covariance within this one that reads codes, or None."""
    fields = [getattr(covariance, name) for name, _ in covariance._record_fields]
    inside = [one for field in fields for one in (field if isinstance(field, tuple) else (field,))]
    parts = [one for one in inside if isinstance(one, Covariance)]
    if parts:
        return next(filter(None, map(_reader_of_codes, parts)), None)
    kind = type(covariance)
    return None if kind.code_columns is Covariance.code_columns else kind.__name__


def check_part(what, part, D, inputs=None):
    """Check a part of a covariance.

    Refuse a part that is not a covariance, defines its own inducing variables, or does not fit D
    columns. ``inputs`` says what these are, if they are not columns of X: see ``refuse_codes``.
    """
    owner = what.partition(".")[0]
    if not isinstance(part, Covariance):
        field = what.split(".")[1]
        raise TypeError(
            f"{what}: `{field}` must be {'covariances' if field == 'parts' else 'a covariance'}"
            " such as fastsvgp.RBF(...), got"
            f" {type(part).__name__}"
        )
    own = [
        name
        for name in ("Kuu", "Kuf", "kff", "Kff")
        if getattr(type(part), name) is not getattr(Covariance, name)
    ]
    if own:
        raise TypeError(
            f"{what}: a {type(part).__name__} has inducing variables of its own (it defines"
            f" {', '.join(own)}), but {owner} needs values of the function; use it alone"
        )
    if inputs is not None:
        refuse_codes(what, part, inputs)
    try:
        part.check_dim(D)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
