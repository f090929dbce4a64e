"""A good start: data standardised, a model in these units, and the arguments with which ``fit`` trains it.

``start = fs.recipes.regression(X, y)`` chooses lengthscales, noise, inducing inputs, a posterior and how it is trained;
``model, info = fs.fit(start.model, start.scale.X(X), start.scale.y(y), **start.fit)`` trains it, and ``start.scale.back`` takes
predictions to the units of y. The command line and the estimators of ``fastsvgp.sklearn`` start so.

What a start depends on is the rows with their weights: a row that comes twice, and one of weight 2, are the same, up to rounding.
"""

import logging
import math
import numbers
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypedDict, Unpack

import numpy as np

from . import check, distinct
from .bounds.collapsed import SGPR, optimal_svgp
from .bounds.collapsed_orthogonal import OrthogonalSGPR
from .bounds.convert import convert
from .bounds.elbo import SVGP
from .bounds.orthogonal import at_prior
from .bounds.predict import predict_f
from .bounds.weight_space import QSGP
from .covariances import RBF, Covariance, Matern12, Matern32, Matern52
from .errors import NotPositiveDefinite, refuse_unknown
from .inducing import InducingPair
from .initialise import greedy_variance_inducing, kmeans_inducing, median_lengthscales
from .likelihoods import BernoulliLogit, BernoulliProbit, Gaussian, Laplace, Likelihood, Poisson, RobustMax, Softmax, StudentT
from .means import ConstantMean, LinearMean, Mean
from .optim.first_order import adam
from .optim.schedules import Schedule, Size, log_linear
from .posteriors import (
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
from .records import tree_map
from .scales import ClassScale, Scale, constant, usable_rows
from .typed import ArrayLike, Seed

log = logging.getLogger("fastsvgp")

COVARIANCES = {"rbf": RBF, "matern12": Matern12, "matern32": Matern32, "matern52": Matern52}
REGRESSION = {"gaussian": Gaussian, "student-t": StudentT, "laplace": Laplace, "poisson": Poisson}
BINARY = {"bernoulli-probit": BernoulliProbit, "bernoulli-logit": BernoulliLogit}
MULTICLASS = {"softmax": Softmax, "robustmax": RobustMax}
POSTERIORS = {
    "whitened": Whitened, "marginal": Marginal, "likelihood_form": LikelihoodForm, "relaxed": Relaxed,
    "inverse_free_whitened": InverseFreeWhitened, "absorbed_dual_sites": AbsorbedDualSites, "dual_sites": DualSites,
    "whitened_orthogonal": WhitenedOrthogonal, "orthogonal": Orthogonal, "decoupled": Decoupled,
    "decoupled_weights": DecoupledWeights,
}  # fmt: skip
MEANS = ("constant", "linear")
CHOICES = ("kmeans", "greedy", "random")
SOLVERS = ("auto", "lbfgs", "adam", "natural")
COLLAPSED = {Whitened: SGPR, Marginal: SGPR, AbsorbedDualSites: SGPR, WhitenedOrthogonal: OrthogonalSGPR}

NOISE = 0.1  # variance at the start, of targets with variance 1
NATURAL_STEP = 0.1
RAMP = 100  # steps until the natural step size is reached, where the likelihood is not Gaussian
FEW = 300  # distinct rows up to which lengthscales are medians over all pairs of them
SHARE = 5  # of a short training the ramp is this part
JITTER = 1e-7  # where all rows are inducing inputs, in float64: the bound loses up to N jitter / (2 noise)
COLLAPSED_ROWS = 1000  # rows up to which "auto" is the collapsed bound: see bench/results/estimators.md

OWN = "inducing", "covariance"  # options that may be given by their place
Inducing: TypeAlias = int | tuple[int, int] | ArrayLike
Choices = TypedDict("Choices", {  # noqa: UP013 (in few lines)
    "posterior": str, "mean": str | Mean | None, "ard": bool, "chosen": str, "solver": str, "max_iter": int, "batch_size": int,
    "learning_rate": float, "natural_step_size": str | Size, "jitter": float | None,
}, total=False)  # fmt: skip


@dataclass(frozen=True)
class Start:
    """Where to start.

    Attributes
    ----------
    model : SVGP, SGPR or OrthogonalSGPR
        In standardised units. Of a trained SGPR ``fs.optimal_svgp`` makes an SVGP to predict with.
    fit : dict
        The arguments of ``fs.fit`` beside model and data.
    scale : Scale
        ``scale.X(X)`` and ``scale.y(y)`` are what the model wants; ``scale.back(mean, var)`` is in the units of y.
    """

    model: Any
    fit: dict
    scale: Scale


def regression(
    X: ArrayLike, y: ArrayLike, inducing: Inducing = 256, covariance: str | Covariance = "matern32", *,
    likelihood: str | Likelihood = "gaussian", normalize_X: bool = True, normalize_y: bool = True,
    weights: ArrayLike | None = None, rng: Seed = None, **choices: Unpack[Choices],
) -> Start:  # fmt: skip
    """A start for real-valued targets, or for counts.

    Parameters
    ----------
    X : (N, D) array
    y : (N,) or (N, P) array
        P targets share covariance, noise and inducing inputs.
    inducing : int, pair of int, or (M, D) array
        How many inducing inputs; a pair for posteriors of two sets, for which a number stands for two sets of that many. At most
        the distinct rows, which then are the inducing inputs. An array is in the units of X.
    covariance : str or Covariance
        "rbf", "matern12", "matern32" or "matern52": of variance 1, at lengthscales of the distances in the data. A record is
        taken as it is, in standardised units.
    likelihood : str or Likelihood
        "gaussian", "student-t", "laplace", or "poisson", whose counts are not standardised. A record is in standardised units.
    normalize_X, normalize_y : bool
        Whether to standardise.
    weights : (N,) array, optional
        Of the rows, zero or positive: a row of weight 2 counts as two equal ones, and one of weight 0 not at all.
    rng : None, int or Generator
    **choices
        ``posterior``: "whitened" and others, as ``recipes.POSTERIORS`` lists them. ``mean``: None, "constant", "linear", or a
        record. ``ard``: a lengthscale for each column, or one for all. ``chosen``: how the inducing inputs are, "kmeans",
        "greedy" (greedy variance) or "random". ``solver``: "lbfgs" on the collapsed bound, "adam", "natural" (natural-gradient
        steps of the posterior, Adam for all else), or "auto". ``max_iter``: epochs, or iterations of L-BFGS. ``batch_size``,
        ``learning_rate``, ``natural_step_size`` (a number, a schedule, or "auto"), ``jitter``.

    Returns
    -------
    Start

    Raises
    ------
    ValueError, TypeError
        Unknown names, which are listed with those there are; NaN, infinity, or values too large to be squared; a solver that does
        not go with the likelihood or posterior.

    Notes
    -----
    O(N D) beside the choice of inducing inputs: see ``kmeans_inducing``.

    Examples
    --------
    >>> start = fs.recipes.regression(X, Y, inducing=10, rng=0)
    >>> trained, info = fs.fit(start.model, start.scale.X(X), start.scale.y(Y), **start.fit)
    >>> type(trained).__name__, trained.inducing.shape
    ('SGPR', (10, 1))
    """
    refuse_unknown("regression", choices, (*OWN, *regression.__kwdefaults__, *Choices.__annotations__))
    X, y, w = usable_rows(X, y, weights)
    kind = named("likelihood", likelihood, REGRESSION, Likelihood)
    scale = _scale(Scale, X, y, normalize_X, normalize_y and not kind.counts, w)
    if isinstance(likelihood, str):
        likelihood = likelihood_of(likelihood, y, weights=w)
    _refuse(likelihood, BINARY | MULTICLASS, "classes, and here targets are numbers")
    return keeping_noise(_start(X, w, weights, scale, likelihood, y.shape[1:], inducing, covariance, rng, **choices), y)


def classification(
    X: ArrayLike, y: ArrayLike, inducing: Inducing = 256, covariance: str | Covariance = "matern32", *,
    likelihood: str | Likelihood = "auto", normalize_X: bool = True, weights: ArrayLike | None = None, rng: Seed = None,
    **choices: Unpack[Choices],
) -> Start:  # fmt: skip
    """A start for classes.

    Parameters
    ----------
    X : (N, D) array
    y : (N,) array
        Labels, at least two different ones.
    likelihood : str or Likelihood
        "bernoulli-probit" or "bernoulli-logit" for two classes, "softmax" or "robustmax"; "auto" is the first for two classes,
        and "softmax" for more.
    inducing, covariance, normalize_X, weights, rng, **choices
        As of ``regression``.

    Returns
    -------
    Start
        ``scale.y`` makes codes of labels, ``scale.back`` labels of codes; ``scale.classes`` are the labels.

    Raises
    ------
    ValueError, TypeError
        As ``regression``; and one class alone.

    Examples
    --------
    >>> start = fs.recipes.classification(X, np.where(Y > 0, "above", "below"), inducing=10, rng=0)
    >>> start.scale.classes.tolist()
    ['above', 'below']
    """
    refuse_unknown("classification", choices, (*OWN, *classification.__kwdefaults__, *Choices.__annotations__))
    check.unmasked("y", y)
    X, y, w = usable_rows(X, np.asarray(y), weights, labels=True)
    scale = _scale(ClassScale, X, y, normalize_X, False, w)
    scale.classes = np.unique(y)
    C = len(scale.classes)
    if C < 2:
        raise ValueError(f"`y` has one class only, {scale.classes[0]!s}; a classifier needs at least two classes")
    if isinstance(likelihood, str) and likelihood == "auto":
        likelihood = "bernoulli-probit" if C == 2 else "softmax"
    named("likelihood", likelihood, BINARY | MULTICLASS, Likelihood, more=("auto",))
    if isinstance(likelihood, str):
        likelihood = likelihood_of(likelihood, num_classes=C)
    _refuse(likelihood, REGRESSION, "numbers, and here targets are classes")
    needed = 2 if likelihood.num_latent is None else likelihood.num_latent
    if needed != C:
        raise ValueError(f"`likelihood` {type(likelihood).__name__} has {needed} classes, but `y` has {C}; 'auto' goes by `y`")
    outputs = () if likelihood.num_latent is None else (C,)
    return _start(X, w, weights, scale, likelihood, outputs, inducing, covariance, rng, **choices)


def _start(
    X, w, weights, scale, likelihood, outputs, inducing, covariance, rng, *, posterior="whitened", mean=None, ard=True,
    chosen="kmeans", solver="auto", max_iter=100, batch_size=512, learning_rate=0.01, natural_step_size="auto", jitter=None,
):  # fmt: skip
    seeds = check.generator(rng).integers(2**62, size=2)
    rng, Xs = check.generator(int(seeds[0])), scale.X(X)
    kind = named("posterior", posterior, POSTERIORS)
    solver = solver_for(solver, likelihood, kind, len(X))
    rows = distinct.distinct(Xs, w)
    covariance = _covariance(covariance, rows, ard, rng)
    Z, all_rows = _inducing(inducing, kind, Xs, rows, covariance, chosen, scale, rng)
    if jitter is None and all_rows and solver == "lbfgs" and Xs.dtype == np.float64:
        jitter = JITTER
    mean = _mean(mean, Xs.shape[1], outputs, Xs.dtype)
    likelihood = _in(Xs.dtype, likelihood)
    fit = training(
        solver, likelihood, max_iter=max_iter, batch_size=batch_size, learning_rate=learning_rate,
        natural_step_size=natural_step_size, jitter=jitter, seed=int(seeds[1]), rows=len(X), at_rows=all_rows,
    )  # fmt: skip
    if weights is not None:
        fit["weights"] = weights
    if solver == "lbfgs":
        return Start(COLLAPSED[kind](covariance, Z, likelihood.variance, mean=mean), fit, scale)
    q = posterior_of(kind, covariance, Z, outputs[0] if outputs else None, len(X) if w is None else w.sum(), jitter)
    return Start(SVGP(covariance, Z, q, likelihood, mean), fit, scale)


def training(solver, likelihood, *, max_iter, batch_size, learning_rate, natural_step_size, jitter, seed, rows, at_rows=False):
    """The arguments of ``fs.fit`` for a solver: "lbfgs", "adam" or "natural".

    rows : int
        How many there are.
    at_rows : bool
        The inducing inputs are all distinct rows. The collapsed bound, that of an exact GP but for the jitter, then needs no
        gradient in them, and they stay.
    """
    if isinstance(natural_step_size, str):
        named("natural_step_size", natural_step_size, ("auto",))
        natural_step_size = NATURAL_STEP
    elif not (isinstance(natural_step_size, Schedule) or callable(natural_step_size)):
        size = check.scalar("natural_step_size", natural_step_size)
        if not 0 < size <= 1:
            raise ValueError(f"`natural_step_size` must be above 0 and at most 1, got {size:g}; 'auto' is {NATURAL_STEP}")
    fit = {} if jitter is None else {"jitter": jitter}
    if solver == "lbfgs":
        return fit | {"steps": max_iter} | ({"fixed": ("inducing",)} if at_rows else {})
    fit |= {"epochs": max_iter, "batch_size": batch_size, "optimiser": adam(learning_rate, transform="log"), "rng": seed}
    if solver == "natural":
        ramp = min(RAMP, math.ceil(max_iter * max(1.0, rows / batch_size) / SHARE))
        fit["natural_step_size"] = natural_schedule(likelihood, natural_step_size, ramp)
    return fit


def keeping_noise(start, y):
    """The start; that of a collapsed bound has its noise fixed where all targets are equal: it would go to zero without end."""
    if isinstance(start.model, SVGP) or not constant(np.ptp(y, axis=0), y).all():
        return start
    log.warning("all %d targets are equal, which says nothing about their noise: it stays at its start", len(y))
    return replace(start, fit=start.fit | {"fixed": (*start.fit.get("fixed", ()), "noise_variance")})


def solver_for(solver, likelihood, kind, rows):
    """ "lbfgs", "adam" or "natural"; what "auto" stands for, and a ``ValueError`` where a solver cannot be.

    likelihood : Likelihood; kind : class of the posterior; rows : int
    """
    named("solver", solver, SOLVERS)
    collapses = isinstance(likelihood, Gaussian) and kind in COLLAPSED
    if solver == "auto":
        return "lbfgs" if collapses and rows <= COLLAPSED_ROWS else "natural" if kind.natural_fields else "adam"
    if solver == "lbfgs" and not collapses:
        posteriors = ", ".join(name for name, other in POSTERIORS.items() if other in COLLAPSED)
        raise ValueError(
            f"solver 'lbfgs' is for the collapsed bound, of likelihood 'gaussian' and posteriors {posteriors}; here they are "
            f"{type(likelihood).__name__} and {kind.__name__}: use solver 'natural', 'adam' or 'auto'"
        )
    if solver == "natural" and not kind.natural_fields:
        raise ValueError(f"solver 'natural': a {kind.__name__} posterior has no natural-gradient steps; use solver 'adam'")
    if solver == "adam" and kind.natural_by_default:
        raise ValueError(f"solver 'adam': a {kind.__name__} posterior is moved by natural-gradient steps alone; use 'natural'")
    return solver


def named(setting, value, table, record=None, more=()):
    """What a name in a setting stands for, or a record as it is; ``ValueError`` lists the names there are."""
    if record is not None and isinstance(value, record):
        return value
    if not isinstance(value, str) or value not in table:
        known = ", ".join(map(repr, (*more, *table)))
        or_record = "" if record is None else f", or a {record.__name__} of fastsvgp"
        raise ValueError(f"`{setting}` must be one of {known}{or_record}; got {value!r:.200}")
    return table[value] if isinstance(table, dict) else value


def likelihood_of(name, y=None, num_classes=None, weights=None):
    """The likelihood of a name, to start from: of noise for targets of variance 1, of counts as ``y`` has them."""
    kind = named("likelihood", name, REGRESSION | BINARY | MULTICLASS)
    if kind is Poisson:
        rate = float(np.mean(np.average(y, axis=0, weights=weights)))  # f = 0 is then the mean rate
        return Poisson(exposure=rate if rate > 0 else 1.0)
    if name in MULTICLASS:
        return kind(num_classes=num_classes)
    settings = {Gaussian: {"variance": NOISE}, StudentT: {"scale": NOISE**0.5}, Laplace: {"scale": NOISE**0.5}}
    return kind(**settings.get(kind, {}))


def posterior_of(kind, covariance, inducing, outputs, num_data, jitter=None):
    """A posterior to start from: at the prior, or with pseudo-observations that each stand for an equal share of the data.

    kind : class of the posterior; outputs : int or None; num_data : float
    """
    if kind not in (LikelihoodForm, Relaxed, InverseFreeWhitened):
        return at_prior(kind, covariance, inducing, outputs=outputs, jitter=jitter)
    M, dtype = len(inducing), inducing.dtype
    mean, eye = np.zeros((M,) if outputs is None else (outputs, M), dtype), np.eye(M, dtype=dtype)
    if kind is InverseFreeWhitened:
        return InverseFreeWhitened(mean, np.broadcast_to(eye, (*mean.shape, M)).copy(), eye)  # ``fit`` begins with the inverse
    variance = np.full(M, NOISE * M / num_data, dtype)
    return kind(mean, variance) if kind is LikelihoodForm else Relaxed(mean=mean, variance=variance, inverse_tril=eye)


def natural_schedule(likelihood, size, ramp=RAMP):
    """Gaussian noise bears the full step at once; elsewhere the first ones, far from the optimum, are kept small."""
    if isinstance(likelihood, Gaussian) or not isinstance(size, numbers.Real):
        return size
    return log_linear(min(1e-3, size), size, ramp)


def finished(model, X, y, jitter=None, posterior=None, weights=None, group=None):
    """``(model, jitter)`` to predict with, of a model that ``fit`` gave back.

    Of a collapsed bound it is the optimal SVGP, with a posterior of the class ``posterior``, if given. The jitter is the given
    one (or the default), or the smallest of 10, 100 and 1000 times that with which Kuu factorises: training may end where it
    takes more. After 0 come the multiples of the default. With a ``group`` all of its ranks are in this call.
    """
    amount = check.jitter_amount(jitter, X.dtype)
    if isinstance(model, QSGP):
        return model, amount  # nothing is factorised
    ranks = {} if group is None else {"group": group}
    for tried in (amount, *(more * (amount or check.DEFAULT_JITTER[X.dtype]) for more in (10, 100, 1000))):
        try:
            collapsed = isinstance(model, SGPR | OrthogonalSGPR)
            svgp = optimal_svgp(model, X, y, jitter=tried, weights=weights, **ranks) if collapsed else model
            if posterior is not None and not isinstance(svgp.posterior, posterior):
                svgp = convert(svgp, posterior, jitter=tried)
            predict_f(svgp, X[:1], jitter=tried)
            return svgp, tried
        except NotPositiveDefinite as error:
            failed = error
    raise failed


def _refuse(likelihood, kinds, what):
    if isinstance(likelihood, tuple(kinds.values())):
        raise ValueError(f"`likelihood` {type(likelihood).__name__} is for {what}; choose another")


def _scale(kind, X, y, inputs, targets, weights):
    scale = kind.of(X, y, targets, weights=weights)
    if not inputs:
        scale.x_mean, scale.x_scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return scale


def _in(dtype, tree):
    """A record whose arrays have this dtype; Python's numbers are weak."""
    return tree_map(lambda value: value if isinstance(value, (int, float)) else np.asarray(value, dtype)[()], tree)


def _covariance(covariance, rows, ard, rng):
    X, shares = rows
    kind = named("covariance", covariance, COVARIANCES, Covariance)
    if hasattr(covariance, "geometry"):
        raise TypeError("`covariance` is of images, whose inducing inputs are patches: see fastsvgp.patch_inducing")
    if not isinstance(covariance, str):
        covariance.check_dim(X.shape[1])
        return _in(X.dtype, covariance)
    scales = median_lengthscales(X, rng=rng, ard=ard) if len(X) > FEW else distinct.medians(X, shares, ard)
    return kind(variance=1.0, lengthscales=scales)


def sizes_for(name, asked, kind):
    """How many inducing inputs each set of a posterior of this kind gets: a number for all, or one for each."""
    each = isinstance(asked, tuple | list)
    sizes = [check.whole(name, size) for size in (asked if each else (asked,) * kind.num_sets)]
    if len(sizes) != kind.num_sets:
        takes = "one set of inducing inputs; give one number"
        if kind.num_sets > 1:
            takes = f"{kind.num_sets} sets of inducing inputs; give a number for each of them, or one for all"
        raise ValueError(f"`{name}` is {tuple(sizes)}, and the posterior, {kind.__name__}, has {takes}")
    return sizes


def _inducing(inducing, kind, X, rows, covariance, chosen, scale, rng):
    """``(inducing inputs, whether they are all distinct rows)``."""
    def in_units(name, Z):
        Z = check.inputs(name, Z)
        check.columns(Z, X.shape[1], name, "`X`")
        return np.ascontiguousarray(scale.X(Z), X.dtype)

    named("chosen", chosen, CHOICES)
    if isinstance(inducing, InducingPair):
        return InducingPair(in_units("inducing.Z", inducing.Z), in_units("inducing.O", inducing.O)), False
    if np.ndim(inducing) == 2:
        return in_units("inducing", inducing), False
    sizes, rows, num_sets = sizes_for("inducing", inducing, kind), rows[0], kind.num_sets
    if len(rows) < num_sets:
        raise ValueError(f"a posterior of {num_sets} sets of inducing inputs needs {num_sets} distinct rows; `X` has one sample")
    everything = sum(sizes) >= len(rows)
    if sum(sizes) > len(rows):
        log.info("%s inducing inputs were asked for; the %d distinct rows are used", " + ".join(map(str, sizes)), len(rows))
    if everything:
        return (rows if num_sets == 1 else InducingPair(rows[::2].copy(), rows[1::2].copy())), True
    asked = sizes[0] if num_sets == 1 else tuple(sizes)
    if chosen == "kmeans":
        return kmeans_inducing(rows, asked, rng=rng), False
    if chosen == "greedy":
        return greedy_variance_inducing(rows, asked, covariance, rng=rng), False
    some = rows[rng.choice(len(rows), sum(sizes), replace=False)]
    return (some if num_sets == 1 else InducingPair(some[: sizes[0]], some[sizes[0] :])), False


def _mean(mean, D, outputs, dtype):
    if mean is None:
        return None
    named("mean", mean, MEANS, Mean, more=(None,))
    if mean == "constant":
        return ConstantMean(np.zeros(outputs, dtype)[()])
    return LinearMean(np.zeros((*outputs, D), dtype), np.zeros(outputs, dtype)[()]) if mean == "linear" else _in(dtype, mean)
