"""Starts: their settings, and ``begin``, which makes the initial model."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from .. import check
from ..bounds.svgp import SVGP
from ..covariances import Covariance
from ..errors import refuse_unknown
from ..inducing import (
    greedy_variance,
    kmeans,
    lengthscales,
    median_lengthscales,
    unique_rows,
)
from ..likelihoods import Likelihood
from ..records import tree_map
from ..records.inducing_sets import InducingPair
from ..records.typed import ArrayLike, Seed
from ..runtime import tuning
from ..runtime.thresholds import INDUCING
from . import guesses, several, target_values
from .names import (
    BINARY,
    CHOICES,
    COVARIANCES,
    MULTICLASS,
    ORDERED,
    POSTERIORS,
    REGRESSION,
    cast_arrays,
    classes_of,
    likelihood_of,
    look_up,
    mean_of,
    plain,
    posterior_of,
)
from .relevance import as_numbers, units_on_ranks
from .routine import check_natural_step, keeping_noise, seed_of, steps_of, training
from .scaling import ClassScale, ColumnScale, LogScale, Scale, keeping_codes, usable_rows
from .settings import Choices, Course, Inducing, Method, Settings
from .solvers import COLLAPSED, collapses, number_of, sizes_for, solver_of
from .target_values import check_log_target, check_target

log = logging.getLogger("fastsvgp")

FEW = 300  # distinct rows up to which lengthscales are medians over all pairs of them
# if all rows are inducing inputs, in float64: the bound loses up to N jitter / (2 noise)
JITTER = 1e-7

POSITIONAL = "inducing", "covariance"  # options that can be passed by position


@dataclass(frozen=True)
class Start:
    """Initial model, scaling and training arguments.

    Attributes
    ----------
    model : SVGP, MultiGP, SGPR or OrthogonalSGPR
        In standardised units. ``fs.optimal_svgp`` converts a trained SGPR to an SVGP that predicts.
    fit : dict
        The arguments of ``fs.fit`` other than model and data.
    scale : Scale
        ``scale.X(X)`` and ``scale.y(y)`` convert data to the units of the model;
        ``scale.back(mean, var)`` converts predictions to the units of y.
    """

    model: Any
    fit: dict
    scale: Scale


def regression(
    X: ArrayLike, y: ArrayLike, inducing: Inducing = INDUCING,
    covariance: str | Covariance = "matern32", *,
    likelihood: str | Likelihood = "gaussian", normalize_X: bool = True, normalize_y: bool = True,
    target: str | None = None,
    weights: ArrayLike | None = None, rng: Seed = None, **choices: Unpack[Choices],
) -> Start:  # fmt: skip
    """Make a start for real-valued targets, counts, positive numbers or proportions.

    Parameters
    ----------
    X : (N, D) array
    y : (N,) or (N, P) array
        P targets share covariance, noise and inducing inputs, unless ``latents`` is given. A
        likelihood of several ``target_columns`` reads them from the last axis: (N, C) or (N, P, C).
    inducing : int, pair of int, or (M, D) array
        Number of inducing inputs. Posteriors with two sets take a pair, or one number for both
        sets. If the number reaches that of the distinct rows, all of these are the inducing inputs.
        An array is in the units of X.
    covariance : str or Covariance
        "rbf", "matern12", "matern32" or "matern52": with variance 1 and lengthscales from the
        distances in the data; with more than 1000 rows and few relevant inputs, also from
        relevances. A record is used as it is, in standardised units.
    likelihood : str or Likelihood
        Real-valued targets: "gaussian", "student-t", "laplace", "heteroskedastic" (Gaussian noise
        that varies), "known-noise" (columns y, known variance), "censored" (columns y, side). Not
        standardised: the counts of "poisson", "negative-binomial", "zero-inflated-poisson" and
        "binomial" (columns y, trials); the positive numbers of "gamma" and "exponential"; the
        proportions of "beta". A record is in the units of the model.
    normalize_X, normalize_y : bool
        Whether to standardise.
    target : {None, "log"}
        "log" for a model of log y, with Gaussian noise; ``scale.back(mean, var)`` has the moments
        of y, and ``scale.back`` of quantiles those of y.
    weights : (N,) array, optional
        Non-negative weight of each row: weight 2 counts as two equal rows, weight 0 drops the row.
    rng : None, int or Generator
    **choices
        ``posterior``: "whitened", "marginal", "likelihood_form" or another class of
        ``fastsvgp.posteriors`` in this spelling. ``mean``: None,
        "constant", "linear", or a record; None is "constant" for likelihoods of f = log of a mean
        or log odds, except "poisson". ``ard``: one lengthscale per column, or one for all.
        ``chosen``: how inducing inputs are chosen, "kmeans", "greedy" (greedy variance) or
        "random". ``solver``: "lbfgs" on all rows, with the posterior at its optimum, "adam",
        "natural" (natural-gradient steps of the posterior, Adam for the rest), or "auto": L-BFGS
        for Gaussian noise and up to 1000 rows, and up to 5000 rows with at least 1000 inducing
        inputs or all rows; for other likelihoods, and with ``latents``, if also all rows fit into
        one batch and natural steps move the whole posterior. ``max_iter``: epochs, or iterations of
        L-BFGS; None is 100 epochs and at least 2000 steps, or 200 iterations. ``batch_size``,
        ``learning_rate``, ``natural_step_size`` (a number, a schedule, or "auto") of minibatches:
        "auto" takes minibatches if one is not the default, but for a batch of all rows.
        ``jitter``. ``latents``: None, or covariances of their own for several latent functions,
        which makes a ``MultiGP``: their number, for a learnt linear mixing of them, or "separate"
        for one per function.

    Returns
    -------
    Start

    Raises
    ------
    ValueError, TypeError
        Unknown names (the message lists the known ones); NaN, infinity, or values too large to be
        squared; a solver that does not support the likelihood or posterior.

    Notes
    -----
    O(N D), and the choice of inducing inputs: see ``inducing.kmeans``. Relevances cost 25
    iterations of L-BFGS on an exact Gaussian process with 1000 rows, a few seconds.

    Examples
    --------
    >>> start = fs.recipes.regression(X, Y, inducing=10, rng=0)
    >>> trained, info = fs.fit(start.model, start.scale.X(X), start.scale.y(Y), **start.fit)
    >>> type(trained).__name__, trained.inducing.shape
    ('SGPR', (10, 1))
    """
    _check_options(regression, choices)
    kind = look_up("likelihood", likelihood, REGRESSION, Likelihood)
    example = plain(kind) if isinstance(likelihood, str) else likelihood
    rows = X, y, w = usable_rows(X, y, weights, likelihood=example)
    guesses.check_targets(example, y)
    real = target_values.is_standardised(example)
    if check_target(target) == "log":
        check_log_target(example, y)
        scale = _scale(LogScale, X, y, normalize_X, normalize_y, w)
    else:
        scale = _scale_of_targets(example, X, y, normalize_X, normalize_y and real, w)
    if isinstance(likelihood, str):
        likelihood = likelihood_of(likelihood, y, weights=w)
    _refuse(likelihood, BINARY | MULTICLASS, "classes, and here targets are numbers")
    settings = Settings(inducing, covariance, **choices)
    return keeping_noise(_start(rows, weights, scale, likelihood, settings, rng), y)


def classification(
    X: ArrayLike, y: ArrayLike, inducing: Inducing = INDUCING,
    covariance: str | Covariance = "matern32", *,
    likelihood: str | Likelihood = "auto", normalize_X: bool = True,
    weights: ArrayLike | None = None, rng: Seed = None, **choices: Unpack[Choices],
) -> Start:  # fmt: skip
    """Make a start for classes.

    Parameters
    ----------
    X : (N, D) array
    y : (N,) array
        Labels of at least two classes.
    likelihood : str or Likelihood
        "bernoulli-probit" or "bernoulli-logit" for two classes, "softmax" or "robustmax"; "auto" is
        the first for two classes, and "softmax" for more. "ordinal": classes with an order, that of
        the sorted labels.
    inducing, covariance, normalize_X, weights, rng, **choices
        As of ``regression``.

    Returns
    -------
    Start
        ``scale.y`` converts labels to codes, ``scale.back`` codes to labels; ``scale.classes`` are
        the labels.

    Raises
    ------
    ValueError, TypeError
        As ``regression``; or ``y`` has one class only.

    Examples
    --------
    >>> start = fs.recipes.classification(X, np.where(Y > 0, "above", "below"), inducing=10, rng=0)
    >>> start.scale.classes.tolist()
    ['above', 'below']
    """
    _check_options(classification, choices)
    check.refuse_masked("y", y)
    rows = X, y, w = usable_rows(X, np.asarray(y), weights, labels=True)
    scale = _scale(ClassScale, X, y, normalize_X, False, w)
    C, usual = scale.set_classes(y)
    if isinstance(likelihood, str) and likelihood == "auto":
        likelihood = usual
    kinds = BINARY | MULTICLASS | ORDERED
    look_up("likelihood", likelihood, kinds, Likelihood, more=("auto",))
    if isinstance(likelihood, str):
        likelihood = likelihood_of(likelihood, scale.y(y), num_classes=C, weights=w)
    _refuse(likelihood, REGRESSION, "numbers, and here targets are classes")
    needed = classes_of(likelihood)
    if needed != C:
        raise ValueError(
            f"`likelihood` {type(likelihood).__name__} has {needed} classes, but `y` has {C};"
            " 'auto' chooses by `y`"
        )
    settings = Settings(inducing, covariance, **choices)
    return _start(rows, weights, scale, likelihood, settings, rng)


def _check_options(recipe, choices):
    known = *POSITIONAL, *recipe.__kwdefaults__, *Choices.__annotations__
    refuse_unknown(recipe.__name__, choices, known)


def _start(rows, weights, scale, likelihood, settings, rng):
    """Make a start from checked data.

    rows : (X, y, weights) from ``usable_rows``; weights : as the caller gave them
    settings : Settings
    """
    X, y, w = rows
    scale = keeping_codes(scale, settings.covariance, X.shape[1])
    seed, kind = seed_of(rng), look_up("posterior", settings.posterior, POSTERIORS)
    inducing = settings.inducing
    number = number_of(inducing, kind, X)
    solver = solver_of(settings, likelihood, kind, len(X), number, settings.latents)
    course = course_of(settings, solver, len(X))
    if np.ndim(inducing) == 2 or isinstance(inducing, InducingPair):
        inducing = _scale_inducing(inducing, X, scale)
    parts = replace(settings, inducing=inducing)
    method = Method(
        solver=solver, likelihood=likelihood, kind=kind, jitter=settings.jitter, seed=seed
    )
    model, at_rows, jitter = begin(scale.X(X), scale.y(y), parts, method, weights=w)
    method, fixed = replace(method, jitter=jitter), several.fixed_variances(model)
    fit = training(method, course, model, at_rows=at_rows, fixed=fixed)
    return Start(model, fit if weights is None else fit | {"weights": weights}, scale)


def course_of(settings, solver, rows):
    """Return the ``Course`` for this number of rows; ``settings`` can be an estimator."""
    return Course(
        steps=steps_of(solver, settings.max_iter, rows, settings.batch_size),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        natural_step_size=check_natural_step(settings.natural_step_size),
    )


def begin(X, Y, parts, method, *, weights=None, group=None, informed=True):
    """Make the initial model for standardised data.

    Parameters
    ----------
    X : (N, D) array
    Y : (N,) or (N, P) array
        Standardised targets, counts, or codes of classes.
    parts : Settings
        Its inducing inputs are in standardised units.
    method : Method
    weights : (N,) array, optional
        Positive.
    group : group of ``fs.distributed``, optional
        Its ranks have the same data; rank 0 computes relevances and broadcasts them.
    informed : bool
        Whether to compute relevances of the inputs if there are enough rows; False if a checkpoint
        has the lengthscales.

    Returns
    -------
    model : SVGP, MultiGP, SGPR or OrthogonalSGPR
    at_rows : bool
        Whether the inducing inputs are all distinct rows.
    jitter : float or None
        As in ``method``, or a smaller default if the bound is that of an exact Gaussian process.
    """
    likelihood, kind, jitter = method.likelihood, method.kind, method.jitter
    inducing = parts.inducing
    rng, rows = np.random.default_rng([method.seed, 1]), unique_rows.distinct(X, weights)
    covariance = _covariance(parts.covariance, rows, parts.ard, rng)
    check.codes(covariance, X)
    look_up("chosen", parts.chosen, CHOICES)
    by_number = not isinstance(inducing, InducingPair) and np.ndim(inducing) < 2
    at_rows = by_number and sum(sizes := sizes_for("inducing", inducing, kind)) >= len(rows[0])
    informed = informed and isinstance(parts.covariance, str) and parts.ard and not at_rows
    units = 1.0
    if informed and len(X) > tuning.current.relevance_rows and X.shape[1] > 1:
        units = units_on_ranks(group, covariance, X, as_numbers(likelihood, Y), weights, rng)
        covariance = replace(covariance, lengthscales=units)
    Z = (
        _inducing(sizes, rows[0], at_rows, covariance, parts.chosen, units, rng)
        if by_number
        else inducing
    )
    if jitter is None and at_rows and method.solver == "lbfgs" and X.dtype == np.float64:
        jitter = JITTER
    likelihood = cast_arrays(X.dtype, likelihood)
    method = replace(method, likelihood=likelihood, jitter=jitter)
    if several.needs_latents(parts.latents, likelihood):
        model = several.model_of(Y, weights, parts, method, (covariance, Z), rng)
    else:
        model = _single_layer(X, Y, weights, parts, method, (covariance, Z))
    return model, at_rows, jitter


def _single_layer(X, Y, weights, parts, method, found):
    """Make an SVGP, or a model with a collapsed bound; ``found`` as in ``several.model_of``."""
    (covariance, Z), likelihood, kind = found, method.likelihood, method.kind
    latent = likelihood.num_latent
    outputs = check.axes_of_targets(Y, likelihood) if latent is None else (latent,)
    offset, chosen = guesses.offset(likelihood, Y, weights), parts.mean
    if offset is None:
        offset = np.zeros(outputs)
    elif chosen is None:
        chosen = "constant"
    mean = mean_of(chosen, X.shape[1], offset.astype(X.dtype)[()])
    if method.solver == "lbfgs" and collapses(likelihood, kind):
        return COLLAPSED[kind](covariance, Z, likelihood.variance, mean=mean)
    q = posterior_of(
        kind,
        covariance,
        Z,
        outputs[0] if outputs else None,
        len(X) if weights is None else weights.sum(),
        method.jitter,
    )
    return SVGP(covariance, Z, q, likelihood, mean)


def _refuse(likelihood, kinds, what):
    if isinstance(likelihood, tuple(kinds.values())):
        raise ValueError(f"`likelihood` {type(likelihood).__name__} is for {what}; choose another")


def _scale_of_targets(likelihood, X, y, inputs, targets, weights):
    """Return the scale of targets of one column, or of several."""
    if check.num_columns(likelihood) == 1:
        return _scale(Scale, X, y, inputs, targets, weights)
    scale = _scale(ColumnScale, X, y[..., 0], inputs, targets, weights)
    return replace(scale, squared=target_values.squared_columns(likelihood))


def _scale(kind, X, y, inputs, targets, weights):
    scale = kind.fit(X, y, targets, weights=weights)
    if not inputs:
        scale.x_mean, scale.x_scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return scale


def _covariance(covariance, rows, ard, rng):
    X, shares = rows
    kind = look_up("covariance", covariance, COVARIANCES, Covariance)
    if hasattr(covariance, "geometry"):
        raise TypeError(
            "`covariance` is of images, whose inducing inputs are patches: see"
            " fastsvgp.inducing.patches"
        )
    if not isinstance(covariance, str):
        covariance.check_dim(X.shape[1])
        return cast_arrays(X.dtype, covariance)
    scales = (
        median_lengthscales(X, rng=rng, ard=ard)
        if len(X) > FEW
        else lengthscales.all_pairs_lengthscales(X, shares, ard)
    )
    return kind(variance=1.0, lengthscales=scales)


def _scale_inducing(inducing, X, scale):
    """Convert inducing inputs from the units of X to those of the model."""

    def rescale(name, Z):
        Z = check.inputs(name, Z)
        check.columns(Z, X.shape[1], name, "`X`")
        return np.ascontiguousarray(scale.X(Z), X.dtype)

    if isinstance(inducing, InducingPair):
        return InducingPair(rescale("inducing.Z", inducing.Z), rescale("inducing.O", inducing.O))
    return rescale("inducing", inducing)


def _inducing(sizes, rows, everything, covariance, chosen, units, rng):
    """Choose inducing inputs among the distinct rows; clusters use distances in ``units``."""
    num_sets = len(sizes)
    if len(rows) < num_sets:
        raise ValueError(
            f"a posterior of {num_sets} sets of inducing inputs needs {num_sets} distinct rows; `X`"
            " has one sample"
        )
    if sum(sizes) > len(rows):
        log.info(
            "%s inducing inputs were requested; the %d distinct rows are used",
            " + ".join(map(str, sizes)),
            len(rows),
        )
    if everything:
        return rows if num_sets == 1 else InducingPair(rows[::2].copy(), rows[1::2].copy())
    requested = sizes[0] if num_sets == 1 else tuple(sizes)
    if chosen == "kmeans" and covariance.code_columns(rows.shape[1]):
        return kmeans(rows, requested, rng=rng, covariance=covariance)
    if chosen == "kmeans":
        Z = kmeans(rows / units, requested, rng=rng)
        return Z * units if num_sets == 1 else tree_map(lambda one: one * units, Z)
    if chosen == "greedy":
        return greedy_variance(rows, requested, covariance, rng=rng)
    some = rows[rng.choice(len(rows), sum(sizes), replace=False)]
    return some if num_sets == 1 else InducingPair(some[: sizes[0]], some[sizes[0] :])
