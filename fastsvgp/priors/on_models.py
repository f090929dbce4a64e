"""Priors at the leaves of a model, and their log density with its gradient."""

from collections.abc import Mapping

import numpy as np

from .. import check
from ..optim.flat import check_paths
from ..posteriors.locate import paths_of_q
from ..records import is_record, leaves, matches, replace_leaves, tree_map
from ..records.typed import RecordT
from .densities import Prior


def log_prior_and_grad(model: RecordT, priors: Mapping[str, Prior]) -> tuple[float, RecordT]:
    """Compute the log density of the logarithms of positive parameters, and its gradient.

    Add both to a bound and its gradient, for an optimiser of your own. O(number of parameters).

    Parameters
    ----------
    model : record
    priors : dict of str to Prior
        By dotted path, as in ``fit``.

    Returns
    -------
    value : float
        Sum of the log densities of log t over all entries t at the paths. As a density of t each is
        smaller by log t.
    grad : record
        Derivatives in the parameters t themselves, as those of a bound, and zero elsewhere.

    Raises
    ------
    ValueError, TypeError
        A path does not exist, has two priors, is a parameter of q(u) or holds values that are not
        positive; a value of ``priors`` is no prior.

    Examples
    --------
    >>> priors = {"covariance.lengthscales": fs.priors.LogNormal(0.0, 1.0)}
    >>> value, grad = fs.priors.log_prior_and_grad(model, priors)
    >>> round(value, 3), bool(grad.covariance.variance == 0)
    (-0.919, True)
    """
    if not is_record(model):
        raise TypeError(f"log_prior_and_grad: `model` must be a fastsvgp record, got {model!r:.80}")
    placed = place_priors(model, priors)
    model, _ = check.parameters(model)
    return plus_log_prior(placed, model, 0.0, tree_map(_zero, model))


def place_priors(model, priors):
    """Return the checked priors by the paths of single leaves; None if there are none."""
    example = "{'covariance.lengthscales': fastsvgp.priors.LogNormal(0, 1)}"
    priors = check.mapping("priors", priors, example)
    if not priors:
        return None
    present = {path: kind for path, kind, value in leaves(model) if value is not None}
    check_paths("priors", priors, present)
    placed: dict[str, Prior] = {}
    for name, prior in priors.items():
        if not isinstance(prior, Prior):
            raise TypeError(
                f"`priors`: {name!r} must have a prior, such as fastsvgp.priors.LogNormal(0, 1),"
                f" got {prior!r:.80}"
            )
        for path in (path for path in present if matches(path, (name,))):
            if present[path] != "positive" or matches(path, paths_of_q(model)):
                what = "part of q(u)" if matches(path, paths_of_q(model)) else "not positive"
                raise ValueError(
                    f"`priors` names {name!r}, and {path!r} is {what}; name positive parameters"
                )
            if path in placed:
                raise ValueError(f"`priors`: {path!r} has two priors; leave one of them out")
            placed[path] = prior
    return placed


def plus_log_prior(placed, model, value, grad):
    """Return a value and its gradient with the log density at ``model`` added.

    Parameters
    ----------
    placed : dict or None
        As ``place_priors`` returns it.
    grad : record or None
        Leaves that are None stay so.
    """
    if not placed:
        return value, grad
    bars = {} if grad is None else {path: bar for path, _, bar in leaves(grad)}
    found = {}
    for path, _, leaf in leaves(model):
        if path in placed:
            leaf = check.as_array(path, leaf).astype(np.float64)
            log_density, derivative = placed[path].log_density_and_grad(leaf)
            value = value + float(np.sum(log_density))
            if bars.get(path) is not None:
                found[path] = _add(bars[path], derivative)
    return value, replace_leaves(grad, found) if found else grad


def _zero(value):
    return np.zeros_like(value)[()]


def _add(bar, derivative):
    """Add a derivative to a gradient, in its dtype; a number stays one."""
    if not hasattr(bar, "dtype"):
        return bar + float(derivative)
    return (bar + derivative).astype(bar.dtype)
