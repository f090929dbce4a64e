"""Where a model has its posteriors: their dotted paths.

A kind of model with posteriors elsewhere than in a field ``posterior`` has a ``posterior_paths``.
"""

from functools import reduce

from ..records import replace, replace_at


def posteriors_of(model):
    """Return ``{path: posterior}`` of a model: empty for a kind without posteriors."""
    default = ("posterior",) if getattr(model, "posterior", None) is not None else ()
    return {path: part_at(model, path) for path in getattr(model, "posterior_paths", default)}


def part_at(model, path):
    """Return the part of a model at a dotted path, which can lead through tuples."""
    return reduce(_step, path.split("."), model)


def _step(part, name):
    return part[int(name)] if isinstance(part, tuple) else getattr(part, name)


def replace_posteriors(model, found):
    """Return the model with other posteriors: ``found`` has them by path."""
    for path, q in found.items():
        model = replace_at(model, path, q)
    return model


def layer_at(model, path):
    """Return the record that holds a posterior, with its covariance and inducing inputs.

    Inducing inputs that are None are those of the record around it.
    """
    above = path.rpartition(".")[0]
    layer = part_at(model, above) if above else model
    shared = layer.inducing
    while shared is None:
        above = above.rpartition(".")[0]
        shared = getattr(part_at(model, above) if above else model, "inducing", None)
    return replace(layer, inducing=shared)


def paths_of_q(model):
    """Return the paths of all that determines q(u): the posteriors, or the sites of the data."""
    return ("sites",) if hasattr(model, "sites") else tuple(posteriors_of(model))


def moves_naturally(kind):
    """Whether natural steps update every field of a class of posteriors."""
    return {name for name, _ in kind._record_fields} == set(kind.natural_fields)
