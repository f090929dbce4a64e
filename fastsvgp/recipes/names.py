"""Names that the settings of a start accept, and their classes."""

from types import ModuleType
from typing import Any

import numpy as np

from .. import check, covariances, likelihoods, names
from ..bounds.at_prior import at_prior
from ..covariances import Covariance
from ..likelihoods import (
    Censored,
    Gaussian,
    KnownNoise,
    Laplace,
    Likelihood,
    Ordinal,
    Poisson,
    StudentT,
)
from ..means import ConstantMean, LinearMean, Mean
from ..posteriors import (
    AbsorbedDualSites,
    Decoupled,
    DecoupledWeights,
    DualSites,
    InverseFreeWhitened,
    LikelihoodForm,
    Marginal,
    Orthogonal,
    Relaxed,
    Whitened,
    WhitenedOrthogonal,
)
from ..records import tree_map
from . import guesses


def _classes(room: ModuleType, table: dict[str, str]) -> dict[str, Any]:
    return {name: getattr(room, kind) for name, kind in table.items()}


COVARIANCES: dict[str, type[Covariance]] = _classes(covariances, names.COVARIANCES)
REGRESSION: dict[str, type[Likelihood]] = _classes(
    likelihoods, names.REGRESSION | names.COUNTS | names.POSITIVE | names.PROPORTIONS
)
ORDERED: dict[str, type[Likelihood]] = _classes(likelihoods, names.ORDERED)
BINARY: dict[str, type[Likelihood]] = _classes(likelihoods, names.BINARY)
MULTICLASS: dict[str, type[Likelihood]] = _classes(likelihoods, names.MULTICLASS)
POSTERIORS = {
    "whitened": Whitened,
    "marginal": Marginal,
    "likelihood_form": LikelihoodForm,
    "relaxed": Relaxed,
    "inverse_free_whitened": InverseFreeWhitened,
    "absorbed_dual_sites": AbsorbedDualSites,
    "dual_sites": DualSites,
    "whitened_orthogonal": WhitenedOrthogonal,
    "orthogonal": Orthogonal,
    "decoupled": Decoupled,
    "decoupled_weights": DecoupledWeights,
}
MEANS = ("constant", "linear")
CHOICES = ("kmeans", "greedy", "random")
NOISE = guesses.NOISE
FEW = 8  # names that a message lists beside the nearest
SETTINGS: dict[type[Likelihood], dict[str, float]] = {
    StudentT: {"scale": NOISE**0.5},
    Laplace: {"scale": NOISE**0.5},
    **dict.fromkeys((Gaussian, KnownNoise, Censored), {"variance": NOISE}),
}


def look_up(setting, value, table, record=None, more=()):
    """Look up a name in ``table``; return a ``record`` as it is. ``ValueError`` lists the names."""
    if record is not None and isinstance(value, record):
        return value
    if not isinstance(value, str) or value not in table:
        known = ", ".join(map(repr, (*more, *table)))
        or_record = "" if record is None else f", or a {record.__name__} of fastsvgp"
        came = repr(value)[:80]
        if isinstance(value, type):
            came = f"{value.__name__}, a class"
            if record is not None and issubclass(value, record):
                raise ValueError(f"`{setting}` is {came}{check.advice_for_class(value)}")
        text = value.lower() if isinstance(value, str) else ""
        meant = names.did_you_mean(text, table, "'", names.ELSEWHERE)
        if meant and len(table) > FEW:
            raise ValueError(f"`{setting}` has no choice {came}{meant}")
        raise ValueError(f"`{setting}` must be one of {known}{or_record}; got {came}{meant}")
    return table[value] if isinstance(table, dict) else value


def plain(kind):
    """Make a likelihood of this class for targets of variance 1, or with its default settings."""
    return kind(**SETTINGS.get(kind, {}))


def columns_of(likelihood):
    """Return the columns of targets of a likelihood, or of the one of this name in a regression."""
    if isinstance(likelihood, str):
        likelihood = plain(REGRESSION.get(likelihood, Gaussian))
    return getattr(likelihood, "target_columns", ("y",))


def classes_of(likelihood):
    """Return the number of classes of a likelihood of classes."""
    if isinstance(likelihood, Ordinal):
        return likelihood.num_classes
    return 2 if likelihood.num_latent is None else likelihood.num_latent


def likelihood_of(name, y=None, num_classes=None, weights=None, exposure=False):
    """Make the initial likelihood of this name.

    name : str
    y : array
        Targets in the units of the model: with variance 1 if they are real-valued, all columns of
        them; not needed for classes
    num_classes : int, of "ordinal" and of classes
    weights : (N,) array, optional
    exposure : bool
        Whether counts have a column of exposures.
    """
    kind = look_up("likelihood", name, REGRESSION | BINARY | MULTICLASS | ORDERED)
    if exposure:
        return guesses.counts_with_exposure(kind, y, weights)
    if kind is Poisson:
        rate = float(np.mean(np.average(y, axis=0, weights=weights)))  # f = 0 gives the mean rate
        return Poisson(exposure=rate if rate > 0 else 1.0)
    if name in MULTICLASS:
        return kind(num_classes=num_classes)
    if kind in guesses.GUESSED:
        return guesses.likelihood(kind, y, num_classes, weights)
    return plain(kind)


def mean_of(mean, D, offset):
    """Make the initial mean function: zero, or ``offset`` () or (P,), for all inputs of D columns.

    mean : None, one of ``MEANS``, or a record, which is cast to the dtype of ``offset``
    """
    if mean is None:
        return None
    look_up("mean", mean, MEANS, Mean, more=(None,))
    if mean == "constant":
        return ConstantMean(offset)
    if mean == "linear":
        return LinearMean(np.zeros((*offset.shape, D), offset.dtype), offset)
    return cast_arrays(offset.dtype, mean)


def cast_arrays(dtype, tree):
    """Cast the arrays of a record to this dtype; Python numbers stay as they are."""
    return tree_map(
        lambda value: value if isinstance(value, (int, float)) else np.asarray(value, dtype)[()],
        tree,
    )


def posterior_of(kind, covariance, inducing, outputs, num_data, jitter=None):
    """Make the initial posterior: at the prior, or with equally precise pseudo-observations.

    The pseudo-observations of M inducing inputs have the noise variance ``NOISE * M / num_data``.

    kind : class of the posterior; outputs : int or None; num_data : float
    """
    if kind not in (LikelihoodForm, Relaxed, InverseFreeWhitened):
        return at_prior(kind, covariance, inducing, outputs=outputs, jitter=jitter)
    M, dtype = len(inducing), inducing.dtype
    mean, eye = np.zeros((M,) if outputs is None else (outputs, M), dtype), np.eye(M, dtype=dtype)
    if kind is InverseFreeWhitened:
        # ``fit`` computes the inverse first
        return InverseFreeWhitened(mean, np.broadcast_to(eye, (*mean.shape, M)).copy(), eye)
    variance = np.full(M, NOISE * M / num_data, dtype)
    return (
        kind(mean, variance)
        if kind is LikelihoodForm
        else Relaxed(mean=mean, variance=variance, inverse_tril=eye)
    )
