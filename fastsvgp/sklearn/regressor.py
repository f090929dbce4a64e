"""``SVGPRegressor``, the scikit-learn regressor."""

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from .. import check, recipes
from ..bounds.predict import (
    predict_f,
    predict_log_density,
    predict_quantiles,
    predict_y,
)
from ..likelihoods import Censored, Gaussian
from ..names import COUNTS, POSITIVE, PROPORTIONS
from ..near.model import VIF
from ..runtime.thresholds import INDUCING
from .base import SVGPEstimator, names_settings
from .columns import (
    check_numbers,
    describe_shape,
    like_those_fitted,
    refuse_other_columns,
    split_missing,
)
from .effects import ADDED
from .model_search import changed_settings, check_budget, merge_with_split, run_search, seed_of
from .training import add_near_rows, check_neighbours

ABOVE_ZERO = COUNTS | POSITIVE | PROPORTIONS


class SVGPRegressor(RegressorMixin, SVGPEstimator):
    """Sparse variational Gaussian process regression.

    With one target and default settings, ``recipes.search`` chooses covariance, scaling and
    training by their scores on held-out rows. ``time_budget``, ``extrapolate``, ``average``,
    ``random_state`` and ``verbose`` can differ from their defaults; any other setting, for example
    ``solver="natural"``, turns the search off.

    Parameters
    ----------
    time_budget : float, optional
        Seconds for the search. By default the search does the same work on every machine: that of
        min(60, 8 + N / 500) seconds at 4e10 operations per second.
    extrapolate : bool
        Keep ranks and networks out of the search, so that a process on the inputs themselves
        extrapolates. By default the variance of a searched model grows outside the training range,
        ranks and networks keep their value at its border, and predictions warn of rows far outside.
        A model by settings extrapolates anyway.
    average : bool
        With at most 300 rows the search averages a process over 16 draws of its parameters, because
        one point estimate is too sure: ``model_`` is then a ``Mixture``. False keeps one model, and
        a model by settings is one.
    covariance : str, Covariance or sklearn.gaussian_process.kernels.Kernel
        "rbf", "matern12", "matern32" or "matern52", with initial variance 1 and lengthscales from
        the distances in the data; with more than 1000 rows and few relevant inputs, also from their
        relevance. A fastsvgp record or a scikit-learn kernel (see ``from_kernel``) is the initial
        covariance in standardised units: X and y divided by their standard deviations, unless
        ``normalize_X`` and ``normalize_y`` are False. Parameters that a kernel has "fixed" are held
        fixed.
    likelihood : str or Likelihood
        "gaussian", "student-t" or "laplace" (robust to outliers), "heteroskedastic" (Gaussian noise
        whose variance is a second function of X); "poisson", "negative-binomial" or
        "zero-inflated-poisson" for counts; "gamma" or "exponential" for positive numbers, "beta"
        for numbers between 0 and 1. Those of targets with two columns, y (N, 2): "binomial" (y,
        trials), "known-noise" (y, variance of its noise), "censored" (y, side: 0 seen, 1 at least
        y, -1 at most y). A record is in standardised units; one of counts with
        ``exposure="column"`` has the columns y, exposure.
    target : {None, "log"}
        "log" models log y with Gaussian noise, for positive y. Predictions are those of y: mean and
        standard deviation of its log-normal distribution, its quantiles, samples and densities.
    n_latents : None, int or "separate"
        Several targets share one covariance by default. A number of latent functions, each with a
        covariance of its own, makes the targets learnt linear combinations of them; "separate"
        gives every target its own covariance.
    neighbours : None or int
        Number of near rows of each row, 20 for example: after the training ``recipes.near_rows``
        trains a ``VIF``, in which inducing inputs have the trend and near rows the detail. It holds
        the training rows. Not with ``n_latents``.
    n_inducing : int, or pair of int
        Number of inducing inputs, at most the number of distinct rows of X. A pair is for
        posteriors with two sets; one number then applies to both. Time and memory grow with its
        square.
    inducing : str or (M, D) array
        "kmeans", "greedy" (greedy variance), "random" rows, or the inducing inputs in the units of
        X.
    posterior : str
        "whitened", "marginal", "likelihood_form", "relaxed", "inverse_free_whitened",
        "absorbed_dual_sites", "dual_sites", "whitened_orthogonal", "orthogonal", "decoupled" or
        "decoupled_weights".
    mean : None, str or Mean
        None for 0 in standardised units, "constant", "linear", or a record. None is "constant" for
        "heteroskedastic", because the noise needs a constant, and for likelihoods whose function is
        the log of a mean or log odds, except "poisson".
    ard : bool
        Use one lengthscale per column, if ``covariance`` is a name.
    solver : str
        "lbfgs": L-BFGS on the bound of all rows at the optimal posterior, which has a closed form
        for Gaussian noise without ``n_latents``, and else is found by natural-gradient steps.
        "natural": minibatches, with natural-gradient steps for the posterior and Adam for all other
        parameters. "adam": minibatches, with Adam for all parameters. "auto": chosen by
        ``recipes.solver_for`` from the likelihood, the posterior, and the numbers of rows, of
        inducing inputs and of rows per minibatch. Minibatches train if one of their settings below
        is given; a solver that does not use it warns.
    max_iter : int, optional
        Number of epochs, or of iterations of "lbfgs". Default 100 epochs and at least 2000 steps,
        or 200 iterations. A training that ends short of convergence warns.
    batch_size, learning_rate : int, float
        Rows per minibatch, and step size of Adam. The weights of "decoupled_weights" start at 30
        times this step size, and end at 3 times.
    natural_step_size : float, schedule or "auto"
        Step size of natural-gradient steps, in (0, 1].
    n_restarts_optimizer : int
        Number of additional trainings from random initial hyperparameters. The model with the best
        bound, or held-out log density, is kept.
    normalize_X, normalize_y : bool
        Standardise X or y; counts, positive numbers and proportions are never standardised.
    jitter : float, optional
        Number added to the diagonal of Kuu. Default 1e-6 in float64 (1e-7 if all rows are inducing
        inputs of "lbfgs"), 1e-4 in float32.
    early_stopping : bool
        Hold out ``validation_fraction`` of the rows. Stop when their mean log density has not
        improved by ``tol`` (relative to its size if that is above 1) for ``n_iter_no_change``
        epochs or iterations, and keep the best model.
    validation_fraction, n_iter_no_change, tol : float, int, float
        See ``early_stopping``. Without it, "lbfgs" stops when ``n_iter_no_change`` iterations have
        raised the bound by less than ``tol`` per row, and minibatches after ``max_iter`` epochs.
    warm_start : bool
        Continue from ``model_`` at the next ``fit``, in its units, on the rows passed to it, which
        can be new. Covariance, inducing inputs, likelihood and posterior are those of ``model_``.
    random_state : None, int or RandomState
        Seed of all random choices.
    verbose : int or bool
        0 or False shows nothing. Other values show a tqdm bar on a terminal (if tqdm is installed),
        or else lines on stderr.

    Attributes
    ----------
    model_ : SVGP, MultiGP, VIF or Mixture
        Model of standardised data; ``scale_.X``, ``scale_.y`` and ``scale_.back`` convert.
    jitter_ : float
        Jitter of predictions.
    inducing_ : (M, D) array
        Inducing inputs in the units of X, with two sets stacked; the features (M, F) of a network.
    plan_, story_ : dict, tuple of str
        Decisions of the search that depended on time, and one line per look or decision; None and
        empty without a search.
    lower_bound_ : float
        Bound on all training rows, in nats of standardised targets.
    lower_bounds_ : (n,) array
        Bound per epoch (averaged over its batches) or iteration; of a search only the last one.
    n_iter_ : int
        Number of epochs or iterations; of a search the largest number of steps of a candidate.
    scale_ : recipes.Scale
        Scaling of X and y.
    n_features_in_, feature_names_in_
        As in other estimators.

    Notes
    -----
    There is no ``partial_fit``, because the bound is scaled by the size of the whole data set. For
    data larger than memory use ``fastsvgp.fit``. Several targets (N, P) share the inducing inputs,
    and the noise unless it is "heteroskedastic"; some can be NaN. With ``n_latents`` or
    "heteroskedastic" ``model_`` is a ``MultiGP``. The variance of a function that is mixed stays
    fixed, because the mixing has its scale. After Ctrl-C the estimator holds the model so far (in a
    search, from the first look on), and ``KeyboardInterrupt`` is raised again.

    Examples
    --------
    >>> import numpy as np
    >>> from fastsvgp.sklearn import SVGPRegressor
    >>> X = np.linspace(0, 6, 200)[:, None]
    >>> model = SVGPRegressor(n_inducing=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """

    @names_settings
    def __init__(
        self,
        covariance="matern32",
        *,
        time_budget=None,
        extrapolate=False,
        average=True,
        likelihood="gaussian",
        target=None,
        n_latents=None,
        neighbours=None,
        n_inducing=INDUCING,
        inducing="kmeans",
        posterior="whitened",
        mean=None,
        ard=True,
        solver="auto",
        max_iter=None,
        batch_size=512,
        learning_rate=0.01,
        natural_step_size="auto",
        n_restarts_optimizer=0,
        normalize_X=True,
        normalize_y=True,
        jitter=None,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        tol=1e-4,
        warm_start=False,
        random_state=None,
        verbose=0,
    ): ...

    _settings_of_start = (*SVGPEstimator._settings_of_start, "normalize_y", "target")
    _shapes_of_y = "(N,), or (N, P) for P targets"

    def _recipe(self, *data, **settings):
        return recipes.regression(*data, latents=self.n_latents, **settings)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = len(recipes.columns_of(self.likelihood)) == 1
        tags.target_tags.positive_only = (
            isinstance(self.likelihood, str) and self.likelihood in ABOVE_ZERO
        ) or self.target is not None
        return tags

    def fit(self, X, y, sample_weight=None, groups=None, time=None):
        """Fit to X (N, D) and targets y (N,) or (N, P), with non-negative weights (N,) of rows.

        With a likelihood of C columns of targets, y is (N, C). One of several targets can be NaN in
        some rows, where it has weight 0: minibatches then train. The model is for rows like those
        given, unless whole groups will be new (``groups``) or the future (``time``): a column of X,
        by name or number, or (N,) values. Then the search holds out rows of this kind; see
        ``recipes.Split``.
        """
        y, there = split_missing(y)
        X, y = self._validate_rows(X, y, reset=not (self.warm_start and hasattr(self, "model_")))
        y = check_numbers(y)
        warm = self.warm_start and hasattr(self, "model_")
        columns = recipes.columns_of(self.model_.likelihood if warm else self.likelihood)
        if len(columns) > 1:
            return self._fit_columns(X, y, columns, sample_weight)
        if self.warm_start and hasattr(self, "model_") and y.shape[1:] != self._y_shape:
            raise ValueError(
                f"`y` has shape {y.shape}, but the model to continue from (warm_start=True) has"
                f" targets {describe_shape(self._y_shape)}"
            )
        self._y_shape = y.shape[1:]
        self._check_settings()
        self._check_target(y, sample_weight, warm)
        recipes.check_latents("n_latents", self.n_latents)
        budget = check_budget(self)
        if there is not None:
            return self._fit_holed(X, y, there, sample_weight)
        targets = y[:, 0] if self._y_shape == (1,) else y
        rows, split = merge_with_split(self, X, targets, sample_weight, groups, time)
        check_neighbours(self, len(rows[0]))
        if rows[1].ndim == 1 and not changed_settings(self):
            return run_search(self, *rows, seed_of(self.random_state), split=split)
        if budget is not None:
            raise ValueError(
                f"`time_budget` is for one target, but `y` has {rows[1].shape[1]}; leave it out"
            )
        return self._fit(*rows)

    def _fit_holed(self, X, y, there, sample_weight):
        """Fit several targets, some of which are missing: ``there`` (N, P) is False at these."""
        given = [name for name in ("early_stopping", "neighbours") if getattr(self, name)]
        if given or self.solver == "lbfgs":
            raise ValueError(
                f"`y` has missing targets, which {(given or ['solver=lbfgs'])[0]} cannot leave out;"
                " drop that setting, or these rows"
            )
        rows = there.any(axis=1)
        weights = _check_sample_weight(sample_weight, X, dtype=X.dtype, ensure_non_negative=True)
        rows &= weights > 0
        return self._fit(X[rows], y[rows], (there * weights[:, None])[rows].astype(X.dtype))

    def _add_detail(self, trained, X, y, weights, seed):
        if self.neighbours is None or isinstance(trained.model, VIF):
            return trained
        return add_near_rows(trained, X, y, weights, self.neighbours, seed, self.verbose)

    def partial_fit(self, X, y, sample_weight=None):
        """Take new rows into a fitted model, without the old ones; a first call is ``fit``.

        Rows enter by ``fastsvgp.condition``: with Gaussian noise exactly, whatever the batches.
        Scaling, covariance, noise and inducing inputs stay those of the first rows, which must
        therefore be typical: rows far outside their range give a warning. ``lower_bound_``,
        ``lower_bounds_``, ``n_iter_``, ``plan_`` and ``story_`` stay those of ``fit``.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        return self._take_in(*self._rows_like_those_fitted(X, y, sample_weight), sample_weight)

    def _check_target(self, y, weights, warm):
        """Check ``target``, and that y has logarithms, in the rows of y as they were given."""
        log = recipes.check_target(self.target) == "log"
        if warm and log != isinstance(self.scale_, recipes.LogScale):
            raise ValueError(
                f"`target` is {self.target!r}, but the model to continue from (warm_start=True) was"
                " trained with another one"
            )
        if log:
            recipes.check_log_target(Gaussian(), y, weights)

    def _fit_columns(self, X, y, columns, sample_weight):
        """Fit one target of several columns."""
        refuse_other_columns(y, columns)
        self._y_shape = ()
        self._check_settings()
        check_budget(self)
        return self._fit(*self._merge_rows(X, y, sample_weight))

    def predict(self, X, return_std=False, return_cov=False, include_noise=True):
        """Predict y.

        With neither ``return_std`` nor ``return_cov``, and noise that is added to the function, no
        variance is computed. That is faster, and can change the last digits of the mean.

        Parameters
        ----------
        X : (N, D) array
        return_std, return_cov : bool
            Also return standard deviations (N,) or (N, P), or covariances (N, N) or (N, N, P), but
            not both.
        include_noise : bool
            Whether they include the noise of new y, or describe the latent function only; with
            ``target="log"`` its exponential, and so does the mean.

        Returns
        -------
        mean : (N,) or (N, P)
        std or cov, if requested
        """
        if return_std and return_cov:
            raise ValueError(
                "`return_std` and `return_cov` cannot be combined; give one: the diagonal of cov is"
                " std squared"
            )
        Xs, options = self._ready(X), {"jitter": self.jitter_}
        added = isinstance(self.model_.likelihood, ADDED)
        if not added and (return_cov or return_std and not include_noise):
            raise ValueError(
                f"a {type(self.model_.likelihood).__name__} likelihood adds no noise to the"
                " function: give return_std=True with include_noise=True, or call"
                " fastsvgp.predict_f(model_, scale_.X(X))"
            )
        log = isinstance(self.scale_, recipes.LogScale)
        if added and not (log or return_std or return_cov):
            mean = self._drop_noise(predict_f(self._predictor, Xs, var=False, **options), 1)
            return self._reshape(self.scale_.back(mean))
        mean, var = predict_y(self._predictor, Xs, **options)
        if not return_cov:
            if not include_noise and (log or return_std):
                var = self._function(Xs)[1]
            mean, std = map(self._reshape, self.scale_.moments(mean, var))
            return (mean, std) if return_std else mean
        _, cov = self._function(Xs, full_cov=True)
        rows = np.arange(len(Xs))
        if include_noise:
            noise = var - self._function(Xs)[1]
            cov[..., rows, rows] += noise.T
        cov = np.moveaxis(cov, 0, -1) if cov.ndim == 3 else cov
        mean, cov = self.scale_.covariances(mean, cov)
        return self._reshape(mean), self._reshape(cov, lead=2)

    def _function(self, Xs, full_cov=False):
        """Predict the functions that y adds noise to: as ``predict_f``, without those of noise."""
        mean, var = predict_f(self._predictor, Xs, full_cov=full_cov, jitter=self.jitter_)
        return self._drop_noise(mean, 1), self._drop_noise(var, 0 if full_cov else 1)

    def _drop_noise(self, moment, axis):
        """Leave out the functions of noise, the last along ``axis``."""
        K = self.model_.likelihood.latents_per_output
        if K == 1:
            return moment
        P = moment.shape[axis] // K
        return moment.take(range(P) if P > 1 else 0, axis)

    def score(self, X, y, sample_weight=None):
        """Return R² of predictions at X (N, D), with weights (N,) of rows.

        Counts with trials or exposures are compared per unit, weighted by these; limits of
        censored targets are left out.
        """
        check.refuse_masked("y", y)
        check.refuse_masked("sample_weight", sample_weight)
        check_is_fitted(self)
        columns = recipes.columns_of(self.model_.likelihood)
        if len(columns) > 1:
            X, y = self._validate_rows(X, y)
            y = check_numbers(y)
            refuse_other_columns(y, columns)
            y, share = recipes.comparable_targets(self.model_.likelihood, y)
            sample_weight = share if sample_weight is None else share * sample_weight
        return super().score(X, y, sample_weight)

    def sample_y(self, X, n_samples=1, random_state=0):
        """Sample new y jointly at X (N, D), with noise: (N, n_samples) or (N, P, n_samples)."""
        y = self.scale_.back(self._draw(X, n_samples, random_state))
        y = self._reshape(y, lead=2)
        return np.moveaxis(y, 0, -1)

    def log_predictive_density(self, X, y):
        """Return the log predictive density (N,) of y, in its units, summed over targets.

        y as in ``fit``; at the limit of a censored target it is the log probability.
        """
        check_is_fitted(self)
        X, y = self._rows_like_those_fitted(X, y)
        likelihood = self.model_.likelihood
        Xs, ys = self._units(self.scale_, X, y)
        Xs = Xs.astype(self._dtype, copy=False)
        density = predict_log_density(self._predictor, Xs, ys, jitter=self.jitter_)
        units = self.scale_.log_units(y)
        # the probability of a limit has no units
        return density - (units * (y[:, 1] == 0) if isinstance(likelihood, Censored) else units)

    def _rows_like_those_fitted(self, X, y, weights=None):
        """Validate rows with targets for a fitted model; y (N, 1) becomes (N,)."""
        X, y = self._validate_rows(X, y)
        y = like_those_fitted(y, self.model_.likelihood, self._y_shape)
        if isinstance(self.scale_, recipes.LogScale):
            recipes.check_log_target(self.model_.likelihood, y, weights)
        return X, y[:, 0] if self._y_shape == (1,) else y

    def predict_quantiles(self, X, levels):
        """Predict quantiles of new y, noise included.

        Parameters
        ----------
        X : (N, D) array
        levels : number or sequence of K numbers
            Strictly between 0 and 1.

        Returns
        -------
        (N,) or (N, P), with a leading axis of K if ``levels`` is a sequence
        """
        Xs = self._ready(X)
        found = predict_quantiles(self._predictor, Xs, levels, jitter=self.jitter_)
        return self._reshape(self.scale_.back(found), lead=1 + np.ndim(levels))

    def _reshape(self, values, lead=1):
        """Give predictions the shape of y in ``fit``, which can be (N, 1)."""
        return values[..., None] if self._y_shape == (1,) and values.ndim == lead else values
