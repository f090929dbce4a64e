"""Base class of both estimators: from settings to a start, and from training to attributes."""

import functools
import inspect
import numbers
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import ParamSpec

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.gaussian_process.kernels import Kernel
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import check, recipes
from ..bounds.mixture import Mixture
from ..bounds.predict import sample_f
from ..bounds.predictor import held_predictor, predictor
from ..bounds.svgp import SVGP
from ..exporting.write import write_source
from ..inducing import unique_rows
from ..latents.model import MultiGP
from ..likelihoods import Gaussian
from ..names import did_you_mean
from ..near.model import VIF
from ..posteriors.locate import posteriors_of
from ..recipes.beyond_range import inside, mean_function, with_covariance
from ..recipes.new_data import take_in
from ..records import is_record, leaves
from ..records.inducing_sets import stack_sets
from ..runtime.progress_bar import Progress
from .columns import explain_error, refuse_dates, refuse_other_shapes
from .effects import plot_effects
from .kernels import expand_to_layers, fixed_fields, from_kernel
from .model_search import names_of, warn_outside
from .sampling import draw
from .training import leave_out, merit, scatter, train, warn_if_poor

P = ParamSpec("P")
MEANT = {  # names in other packages, and the setting
    "M": "n_inducing",
    "alpha": "likelihood",
    "inducing_points": "inducing",
    "iterations": "max_iter",
    "kernel": "covariance",
    "length_scale": "covariance",
    "lengthscale": "covariance",
    "lengthscales": "covariance",
    "lr": "learning_rate",
    "n_iter": "max_iter",
    "noise": "likelihood",
    "optimizer": "solver",
    "seed": "random_state",
    "steps": "max_iter",
}
FLAGS = (
    "ard", "average", "early_stopping", "extrapolate", "normalize_X", "normalize_y", "warm_start",
)  # fmt: skip
SETTINGS_OF_TRAINING = (
    "solver",
    "max_iter",
    "batch_size",
    "learning_rate",
    "natural_step_size",
    "jitter",
)


def names_settings(init: Callable[P, None]) -> Callable[P, None]:
    """Decorator: the ``__init__`` of an estimator keeps its settings, and names an unknown one.

    The body of ``init`` is empty. ``inspect.signature`` shows its settings, from which scikit-learn
    reads them.
    """
    signature = inspect.signature(init)
    known = list(signature.parameters)[1:]

    @functools.wraps(init)
    def __init__(*args: P.args, **settings: P.kwargs) -> None:
        try:
            init(*args, **settings)  # for its errors
        except TypeError:
            unknown = [name for name in settings if name not in known]
            if not unknown:
                raise
            raise _no_setting(type(args[0]).__name__, unknown[0], known) from None
        given = signature.bind(*args, **settings)
        given.apply_defaults()
        vars(args[0]).update((name, given.arguments[name]) for name in known)

    return __init__


def _no_setting(estimator, name, known):
    meant = did_you_mean(name, known, "`", MEANT)
    where = f"; {estimator}().get_params() holds its settings"
    return TypeError(f"{estimator} has no setting `{name}`{meant or where}")


class SVGPEstimator(BaseEstimator):
    """Base class of ``SVGPRegressor`` and ``SVGPClassifier``."""

    _settings_of_start: tuple[str, ...] = ("posterior", "mean", "ard", "normalize_X")
    _shapes_of_y = "labels (N,)"

    # --- data -------------------------------------------------------------------------------------

    def _validate_rows(self, X, y="no_validation", reset=False):
        """Validate X, or X and y, with scikit-learn; X becomes float64 or float32.

        Masked arrays are refused first, because scikit-learn would drop the mask, and dates, which
        it would convert.
        """
        check.refuse_masked("X", X)
        check.refuse_masked("y", y)
        refuse_dates(X)
        refuse_other_shapes(y, self._shapes_of_y)
        options = {"dtype": [np.float64, np.float32], "reset": reset}
        try:
            both = {} if isinstance(y, str) else {"multi_output": True}
            return validate_data(self, X, y, **both, **options)
        except (TypeError, ValueError) as error:
            other = explain_error(error, X)
            if other is error:
                raise
            raise other from None

    def _standardise(self, X):
        return np.ascontiguousarray(self.scale_.X(X), self._dtype)

    @property
    def _predictor(self):
        """What predicts: no call of it factorises a matrix."""
        return held_predictor(self.model_, self.jitter_)

    @property
    def _dtype(self):
        return stack_sets(self.model_.inducing).dtype

    # --- fit --------------------------------------------------------------------------------------

    def _merge_rows(self, X, y, weights):
        """Drop rows of weight 0, and merge equal rows to one with the sum of their weights.

        Weights and repeated rows thus train to equal bits; otherwise L-BFGS can amplify differences
        in rounding to a thousandth. The weights are None if every row counts once.
        """
        if weights is not None:
            check.refuse_masked("sample_weight", weights)
            weights = _check_sample_weight(weights, X, dtype=X.dtype, ensure_non_negative=True)
            there = weights > 0
            if not there.any():
                raise ValueError(
                    "`sample_weight` is zero for all rows; at least one must be positive"
                )
            X, y, weights = X[there], y[there], weights[there]
        if len(X) > unique_rows.SORTED:
            return X, y, weights
        codes = np.unique(y, return_inverse=True)[1].reshape(len(y), -1)
        _, first, which = np.unique(
            np.column_stack([X, codes]), axis=0, return_index=True, return_inverse=True
        )
        if weights is None and len(first) == len(X):
            return X, y, None
        return X[first], y[first], np.bincount(which.ravel(), weights).astype(X.dtype)

    def _fit(self, X, y, weights, labels=None):
        """Train on validated X, y, and weights or None, with checked settings.

        Weights (N, P) are of each target: see ``SVGPRegressor._fit_holed``.

        Held-out rows are stratified by ``labels``.
        """
        restarts, fraction = self.n_restarts_optimizer, self.validation_fraction
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2 + restarts).tolist()
        if isinstance(self.random_state, numbers.Integral):
            seeds[1] = int(self.random_state)  # like --seed of the command line
        held_out = None
        if self.early_stopping:
            try:
                rows, others = train_test_split(
                    np.arange(len(X)), test_size=fraction, stratify=labels, random_state=seeds[0]
                )
            except ValueError as error:
                raise ValueError(
                    f"early_stopping=True with validation_fraction={fraction:g} cannot hold out"
                    f" rows of the {len(X)} given: {error}"
                ) from None
            held_out, X, y = (X[others], y[others]), X[rows], y[rows]
            weights, weights_held = (
                (None, None) if weights is None else (weights[rows], weights[others])
            )
        start, kind = self._start(X, y, weights, seeds[1])
        if np.ndim(weights) == 2:
            start = leave_out(start, y, weights, self.normalize_y)
        Xs, ys = self._units(start.scale, X, y)
        if self.early_stopping:
            held_out = *self._units(start.scale, *held_out), weights_held
        best, stopping = None, {"held_out": held_out, "patience": self.n_iter_no_change}
        stopping["tolerance"] = float(self.tol)
        first, fixed = start.model, start.fit.get("fixed", ())
        for run, seed in enumerate(seeds[1:]):
            if run:
                model = scatter(first, np.random.default_rng(seed), fixed)
                start = replace(start, model=model)
            with closing(Progress(start.fit["steps"], quiet=not self.verbose)) as progress:
                trained = train(start, Xs, ys, weights, kind, stopping, progress)
            if best is None or merit(trained) > merit(best):
                best = trained
            if trained.interrupted:
                break
        if not best.interrupted:
            best = self._add_detail(best, Xs, ys, weights, seeds[1])
        self.model_, self.jitter_, self.scale_ = best.model, best.jitter, start.scale
        self.lower_bound_, self.lower_bounds_, self.n_iter_ = (
            best.bound,
            best.bounds,
            max(1, len(best.bounds)),
        )
        self.inducing_ = self.scale_.X_back(stack_sets(best.model.inducing))
        self.plan_, self.story_ = None, ()
        # raised last, when the estimator can be used; this also ends a search over settings
        if trained.interrupted:
            raise KeyboardInterrupt
        warn_if_poor(best, Xs, ys, weights if np.ndim(weights) < 2 else weights.min(axis=1))
        return self

    def _add_detail(self, trained, X, y, weights, seed):
        """Train a further part of the model, if a setting asks for it."""
        return trained

    def _check_settings(self):
        """Check settings that no recipe checks, or that ``fastsvgp.fit`` has by other names."""
        if self.max_iter is not None:
            check.whole("max_iter", self.max_iter)
        for name in ("batch_size", "n_iter_no_change"):
            check.whole(name, getattr(self, name))
        check.whole("n_restarts_optimizer", self.n_restarts_optimizer, 0)
        if not isinstance(self.verbose, bool | np.bool_):
            check.whole("verbose", self.verbose, 0)
        for name, value in self.get_params(deep=False).items():
            if name in FLAGS:
                check.flag(name, value)
        if isinstance(self.inducing, str):
            recipes.sizes_for(
                "n_inducing",
                self.n_inducing,
                recipes.look_up("posterior", self.posterior, recipes.POSTERIORS),
            )
        elif np.ndim(self.inducing) != 2 and not is_record(self.inducing):
            names = ", ".join(map(repr, recipes.CHOICES))
            raise ValueError(
                f"`inducing` must be one of {names}, or an (M, D) array; got {self.inducing!r:.200}"
            )
        if check.scalar("tol", self.tol) < 0:
            raise ValueError(f"`tol` must be non-negative, got {self.tol:g}")
        check.positive(
            "learning_rate",
            check.scalar("learning_rate", self.learning_rate),
            "; try 0.01",
        )
        fraction = check.scalar("validation_fraction", self.validation_fraction)
        if not 0 < fraction < 1:
            raise ValueError(
                f"`validation_fraction` must be above 0 and below 1, got {fraction:g}; 0.1 holds"
                " out a tenth"
            )

    @staticmethod
    def _units(scale, X, y):
        """Scale data for the model, in the dtype of X."""
        y = np.asarray(scale.y(y))
        return np.ascontiguousarray(scale.X(X), X.dtype), (
            y.astype(X.dtype, copy=False) if y.dtype.kind == "f" else y
        )

    def _start(self, X, y, weights, seed):
        """Return ``(Start, class of the posterior)``, from the recipe or by ``warm_start``."""
        training = {name: getattr(self, name) for name in SETTINGS_OF_TRAINING}
        kind = recipes.look_up("posterior", self.posterior, recipes.POSTERIORS)
        if self.warm_start and hasattr(self, "model_"):
            start = self._warm_start(X, y, weights, seed)
            return self._fix_parameters(start), kind_of_posterior(self.model_)
        if np.ndim(weights) == 2:  # of targets, some of which are missing
            weights = weights.max(axis=1)
            if self.solver == "auto":
                training["solver"] = "natural"
        by_name = isinstance(self.inducing, str)
        if by_name:
            recipes.look_up("inducing", self.inducing, recipes.CHOICES)
        chosen = {"chosen": self.inducing} if by_name else {}
        settings = (
            {name: getattr(self, name) for name in self._settings_of_start} | training | chosen
        )
        covariance, likelihood = self._covariance_and_likelihood()
        start = self._recipe(
            X,
            y,
            self.n_inducing if by_name else self.inducing,
            covariance,
            likelihood=likelihood,
            weights=weights,
            rng=seed,
            **settings,
        )
        return self._fix_parameters(start), kind

    def _covariance_and_likelihood(self):
        """Return both settings; a scikit-learn kernel is translated, with its noise."""
        if not isinstance(self.covariance, Kernel):
            return self.covariance, self.likelihood
        covariance, noise = from_kernel(self.covariance)
        if noise is None:
            return covariance, self.likelihood
        if not (isinstance(self.likelihood, str) and self.likelihood == "gaussian"):
            raise ValueError(
                f"`covariance` {self.covariance} has a WhiteKernel, which is Gaussian noise, but"
                f" `likelihood` is {self.likelihood!r}; leave the WhiteKernel out"
            )
        return covariance, Gaussian(noise)

    def _fix_parameters(self, start):
        """Return the start, with the parameters that a scikit-learn kernel has "fixed" fixed."""
        if not isinstance(self.covariance, Kernel):
            return start
        names = fixed_fields(self.covariance)
        if isinstance(start.model, MultiGP):
            names = expand_to_layers(names, len(start.model.latents))
        elif not isinstance(start.model, SVGP):
            names = tuple(
                "noise_variance" if name == "likelihood.variance" else name for name in names
            )
        # a warm start can have another kernel
        there = {path for path, _, _ in leaves(start.model)}
        fixed = *start.fit.get("fixed", ()), *(name for name in names if name in there)
        return replace(start, fit=start.fit | {"fixed": fixed}) if fixed else start

    def _warm_start(self, X, y, weights, seed):
        """Return a start at ``model_``, in its units, with all of its parts."""
        model = self.model_
        if isinstance(model, Mixture):
            model = model.models[0]  # the largest share
        if isinstance(model, SVGP | VIF | MultiGP):  # rows can lie outside the range of a search
            model = with_covariance(model, inside(mean_function(model).covariance))
        if isinstance(model, VIF):
            model = replace(model, near=None)  # ``fit`` finds those of the new rows
        kind, latents = kind_of_posterior(model), getattr(model, "latents", None)
        inducing = 0 if model.inducing is None else len(stack_sets(model.inducing))
        likelihood = model.likelihood
        count = None if latents is None else len(latents)
        solver = "natural"
        if not isinstance(model, VIF):
            solver = recipes.solver_of(self, model.likelihood, kind, len(X), inducing, count)
        elif self.solver not in ("auto", solver):
            raise ValueError(
                f"`solver` {self.solver!r}: a VIF continues (warm_start=True) by natural steps;"
                " leave it out"
            )
        at_rows = solver == "lbfgs" and unique_rows.are_the_rows(
            model.inducing, self._standardise(X)
        )
        if solver == "lbfgs" and recipes.collapses(model.likelihood, kind, count):
            model = recipes.COLLAPSED[kind](
                model.covariance, model.inducing, model.likelihood.variance, mean=model.mean
            )
        method = recipes.Method(
            solver=solver,
            likelihood=likelihood,
            kind=kind,
            jitter=self.jitter,
            seed=seed,
        )
        course, fixed = recipes.course_of(self, solver, len(X)), recipes.fixed_variances(model)
        fit = recipes.training(method, course, model, at_rows=at_rows, fixed=fixed)
        return recipes.keeping_noise(
            recipes.Start(
                model, fit if weights is None else fit | {"weights": weights}, self.scale_
            ),
            y,
        )

    # --- new rows ---

    def _take_in(self, X, y, weights):
        """Condition the model on validated new rows; the scaling stays."""
        X, y, weights = self._merge_rows(X.astype(self._dtype, copy=False), y, weights)
        Xs, ys = self._units(self.scale_, X, y)
        given = {"weights": weights, "jitter": self.jitter_}
        self.model_ = take_in(self.model_, Xs, ys, self.scale_, names_of(self, Xs), **given)
        return self

    # --- predictions ------------------------------------------------------------------------------

    def _ready(self, X):
        """Return standardised inputs of a fitted model."""
        check_is_fitted(self)
        Xs = self._standardise(self._validate_rows(X))
        warn_outside(self, Xs)
        return Xs

    def export(self, path, *, dtype=None):
        """Write the fitted model as ``gp.c``, ``gp.py`` or ``gp.onnx``, which need no fastsvgp.

        It has inputs and predictions in the units of the data; see ``fastsvgp.export``. ``dtype``
        is that of a ``.onnx`` file, float64 or float32, by default that of the model.
        """
        check_is_fitted(self)
        made = predictor(self.model_, jitter=self.jitter_, dtype=dtype)
        write_source(made, path, self.scale_, getattr(self, "feature_names_in_", ()))

    def plot_effects(self, X, columns=None, *, axes=None):
        """Plot mean effects with 95 % bands, in the units of the data: see ``fastsvgp.effects``.

        Of a classifier they are effects on probabilities. Needs Matplotlib.

        Parameters
        ----------
        X : (N, D) array
            Rows, usually those of training.
        columns : sequence of numbers or names, optional
            Default: all of up to six columns, else the six with the largest Sobol' indices.
        axes : sequence of matplotlib Axes, optional
            One per column; new ones by default.

        Returns
        -------
        array of matplotlib Axes
        """
        return plot_effects(self, X, columns, axes)

    def _draw(self, X, n_samples, random_state):
        """Sample new targets jointly at X, in the units of the model."""
        Xs, seed = self._ready(X), check_random_state(random_state).randint(2**31 - 1)
        rng = np.random.default_rng(seed)
        f = sample_f(self._predictor, Xs, n_samples, rng=rng, jitter=self.jitter_)
        return draw(self.model_.likelihood, f, rng)


def kind_of_posterior(model):
    """Return the class of the posteriors of a fitted model, which all are of one class."""
    model = model.models[0] if isinstance(model, Mixture) else model
    return type(next(iter(posteriors_of(model).values())))
