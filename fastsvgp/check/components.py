"""Checks that each part of a model is a record of the right kind, not for example a class."""

from ..public_names import place
from ..records import is_record

PARTS = {  # field of a model: a method that identifies its kind of record, and an example
    "covariance": ("check_dim", "RBF(...)"),
    "posterior": ("check_size", "Whitened(...)"),
    "likelihood": ("check_targets", "Gaussian(...)"),
    "mean": ("check_shapes", "means.ConstantMean(...) or None"),
}
PARTIAL = (  # likely source of a None
    "; a gradient is None outside `wrt`, and tree_map keeps it: take the gradient of all fields, or"
    " put the new ones into the model with fastsvgp.records.replace_at"
)


def parts(model, names=tuple(PARTS)):
    """Reject a model with a part of the wrong kind."""
    for name in names:
        if not hasattr(model, name):
            continue
        (method, example), part = PARTS[name], getattr(model, name)
        if not (is_record(part) and hasattr(part, method) or name == "mean" and part is None):
            what = part.__name__ + ", a class" if isinstance(part, type) else type(part).__name__
            if isinstance(part, type):
                hint = advice_for_class(part, model)
            elif part is None:
                hint = PARTIAL
            else:
                hint = (
                    "; its class lacks the decorator fastsvgp.records.record"
                    if hasattr(part, method)
                    else ""
                )
            raise TypeError(
                f"`{name}` of the model must be a record such as fastsvgp.{example}, got"
                f" {what}{hint}"
            )


def advice_for_class(kind, model=None):
    """Return advice for a class given in place of a record."""
    name = kind.__name__
    if kind.__module__.startswith("fastsvgp."):
        name = place(name).replace("fastsvgp", "fs", 1)
    if not getattr(kind, "starts_at_prior", False):
        return f"; call it: {name}(...)"
    likelihood = getattr(model, "likelihood", None)
    count = getattr(likelihood, "num_latent", None)
    if count is None and getattr(likelihood, "latents_per_output", 1) != 1:
        count = likelihood.latents_per_output
    outputs = f", outputs={count}" if isinstance(count, int) else ""
    Z = "Z" if kind.num_sets == 1 else "fs.posteriors.InducingPair(Z, O)"
    return f"; to start at the prior write fs.posteriors.at_prior({name}, covariance, {Z}{outputs})"
