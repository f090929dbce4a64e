"""The search for classes and counts: posteriors by natural steps instead of collapsed ones.

A look scores the posterior of the minibatches at the temperature that held-out rows choose. At the
end natural steps on all rows continue it.

With f = c + g, c the constant mean, the temperature T multiplies g: the mean is c + T (m - c), the
variance T^2 v. A Gaussian process of T^2 times the variance with the same whitened q(u) has exactly
these marginals, because its factor of Kuu is T times as large.
"""

from dataclasses import replace as changed

import numpy as np

from ...bounds.objectives import elbo
from ...bounds.predict import predict_f
from ...covariances import Linear, Matern32, Sum
from ...inducing import kmeans, lengthscales, median_lengthscales, unique_rows
from ...means import ConstantMean
from ...records import Marginals, replace
from .candidates import (
    DEEP,
    LAST,
    RELU,
    WIDE,
    ByMinibatches,
    Minibatches,
    make_features,
    natural_steps,
    start_at_prior,
)
from .collapsed_posterior import rescale
from .plan import PlanMismatch
from .race import FAILURES, Race, reason
from .rows import groups_of, scale_inputs, scale_rows

M, BATCH = 128, 256
FEW = 300  # distinct rows up to which lengthscales use all pairs of rows
SUBSET = 20_000  # rows among which inducing inputs are chosen
NATURAL, RAMP = 0.2, 20  # natural step size, and steps until it is reached
LEAST = 1e-2  # natural step size of the first step
COST = 2.0  # of a step, relative to Gaussian noise: the likelihood has no closed form
RATE = 0.05  # step size of Adam without a network
# initial variance of a latent function: latent functions of separable classes are large, the log
# rate of counts is not
CLASSES, COUNTS = 10.0, 1.0
EVALUATIONS = 4000  # operations per marginal, of some 20 predictive densities
PART = 0.4  # of the time, for each of two candidates compared by their bounds
BOUND_ROWS = 10_000  # on which bounds are compared
MOST_AT_ONCE = 200  # steps of such a candidate
# natural steps on all rows: their batch, and their sizes, which fall
LARGE_BATCH, FIRST_STEP, LAST_STEP = 1024, 0.2, 0.02
TIMED, FEWEST, MOST = 3, 10, 300  # such steps: those timed to predict the cost, at least, at most
SEED = 4
ROUNDING = 0.01  # nats per row by which jitter may change densities
PRIOR_ROWS = 10  # weight of the prior of log T, standard normal, in rows
LARGEST = 3.0  # of log T
ROWS = 8192  # per chunk of predictions
# cross-validation: folds, natural steps per fold, the least that are worth taking, and those until
# the step size is reached, on all rows or on minibatches
FOLDS, FOLD_STEPS, FEWEST_FOLD_STEPS, FOLD_RAMP = 5, 40, 15, 5
WHOLE, MINIBATCH = 0.5, 0.2


def ramp(count):
    """Return the natural step size of step ``count``; it is small far from the optimum."""
    return NATURAL * (LEAST / NATURAL) ** max(1 - count / RAMP, 0.0)


class Candidate(ByMinibatches):
    """An SVGP trained by natural steps of q(u), and Adam for the other parameters.

    It has one constant mean per latent function.
    """

    settles = True

    def __init__(self, name, scale, rows, rng, covariance, Z, likelihood, rate, transform):
        mean = ConstantMean(np.zeros(likelihood.num_latent or ())[()])
        model = start_at_prior(covariance, Z, likelihood, mean)
        # a row of weight 2 costs as much as two equal rows
        few = len(rows) <= FEW
        counted = len(unique_rows.distinct(rows.X, rows.weights)[0]) if few else None
        trainer = Minibatches(model, rows, BATCH, rate, ramp, rng, transform, counted, COST)
        super().__init__(name, scale, rows, trainer)

    @property
    def model(self):
        return self._trainer.model

    @property
    def step_seconds(self):
        """The seconds that a step took."""
        return self._trainer.step_seconds

    def take_at_once(self, plan, seconds, most):
        """Train once with falling step sizes, for about ``seconds`` and at most ``most`` steps."""
        self._trainer.take_for(plan, self.name, seconds, lambda done: LAST**done, most)


def variance_of(likelihood):
    """Return the initial variance of a latent function."""
    return COUNTS if likelihood.counts else CLASSES


def inducing_among(X, weights, most, rng):
    """Return ``most`` k-means centres of the rows, or all distinct rows if there are no more."""
    distinct = unique_rows.distinct(X, weights)[0]
    if len(distinct) <= most:
        return distinct
    if len(distinct) > SUBSET:
        some = distinct[np.sort(rng.choice(len(distinct), SUBSET, replace=False))]
        distinct = unique_rows.distinct(some)[0]  # many rows are not compared above
        if len(distinct) <= most:
            return distinct
    return kmeans(distinct, most, rng=rng)


def lengthscales_of(rows):
    """Return median distances (D,) of the distinct rows in each input."""
    distinct, shares = unique_rows.distinct(rows.X, rows.weights)
    if len(distinct) > FEW:
        return median_lengthscales(distinct, rng=0)
    return lengthscales.all_pairs_lengthscales(distinct, shares, True)


class LinearModel(Candidate):
    """Bayesian logistic or log-linear regression, with one weight variance per input."""

    def __init__(self, name, scale, rows, rng, likelihood):
        D = rows.X.shape[1]
        covariance = Linear(np.full(D, variance_of(likelihood) / D))
        Z = inducing_among(rows.X, rows.weights, min(M, 2 * D), rng)
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, RATE, "log")


class PlainSVGP(Candidate):
    """A process on inputs: a linear part plus a Matern 3/2 with one lengthscale per input."""

    def __init__(self, name, scale, rows, rng, likelihood):
        D, variance = rows.X.shape[1], variance_of(likelihood)
        smooth = Matern32(variance, lengthscales_of(rows))
        covariance = Sum((Linear(variance / D), smooth))
        Z = inducing_among(rows.X, rows.weights, M, rng)
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, RATE, "log")


class DeepSVGP(Candidate):
    """A process with an ARD squared-exponential covariance on the features of a network."""

    def __init__(self, name, scale, rows, rng, likelihood, architecture):
        covariance, Z = make_features(rows, architecture, M, rng, variance_of(likelihood))
        rate = architecture.rate
        super().__init__(name, scale, rows, rng, covariance, Z, likelihood, rate, "softplus")


class ClassesAndCounts(Race):
    """A search for counts, or classes with codes 0 ... C - 1."""

    def __init__(self, likelihood, *others):
        super().__init__(likelihood, *others)
        self.metric = "RMSE" if likelihood.counts else "accuracy"

    def rehearsal_candidates(self):
        networks = [self._make(DeepSVGP)("", "raw", one) for one in (WIDE, RELU)]
        return [self._make(LinearModel)("", "raw"), self._make(PlainSVGP)("", "raw"), *networks]

    def _score_at(self, candidate):
        model, y, weights = candidate.model, self.held_out.y, self.held_out.weights
        f = latent(model, candidate.scale.X(self.held_out.X))
        T = temperature_of(model, f, y, weights)
        f_at_T = temper_marginals(f, constant_of(model), T)
        density = model.likelihood.predict_log_density(y, f_at_T)
        self._plan.did(f.mean.size * (4 * len(model.inducing) ** 2 + EVALUATIONS), 10)
        score = float(np.average(density, weights=weights))
        return score, _error(model.likelihood, f_at_T, y, weights), (T,)

    def _candidates(self):
        plain, inputs = self._better_inputs(self._make(PlainSVGP))
        linear = self._make(LinearModel)(f"linear, {inputs} inputs", inputs)
        networks = (WIDE, RELU, DEEP) if self._takes_networks else ()
        return [
            plain,
            linear,
            *(self._make(DeepSVGP)(f"network {one.name}, {inputs} inputs", inputs, one)
              for one in networks),
        ]  # fmt: skip

    def _first(self, candidates):
        """Return the look at the linear model or the process on inputs, by their bounds."""
        plain_and_linear = candidates[:2]
        bounds = {one: self._bound(look) for one in plain_and_linear if (look := self._last(one))}
        return self._last(max(bounds, key=bounds.get)) if bounds else None

    def _make(self, kind):
        def make(name, inputs, *more):
            return kind(name, *self._data(inputs), self._rng(), self._likelihood, *more)

        return make

    def _run_without_race(self):
        """Train a linear model and a process on raw inputs; the larger bound is the answer."""
        why = self._too_brief if self._brief else "few distinct rows"
        self.say(f"linear and plain, compared by their bounds: {why}")
        found = {}
        for kind, name in ((LinearModel, "linear"), (PlainSVGP, "plain")):
            candidate = self._make(kind)(f"{name}, raw inputs", "raw")
            try:
                candidate.take_at_once(self._plan, PART * self._plan.seconds, MOST_AT_ONCE)
                found[candidate] = self._bound(candidate)
            except PlanMismatch:
                raise
            except FAILURES as error:
                self.error = error
                self.say(f"{candidate.name}: failed ({reason(error)})")
                continue
            self.say(f"{candidate.name}, {candidate.steps} steps: bound {found[candidate]:.4g}")
        if not found:
            raise self.error
        candidate = max(found, key=found.get)
        # set before the cross-validation, which can be interrupted
        self.best = self._look_of(candidate, self._plan.spent, np.nan, np.nan, (1.0,))
        self.best = changed(self.best, factors=(self._cross_validate(candidate),))

    def _cross_validate(self, candidate):
        try:
            groups = groups_of(self.rows.X, np.random.default_rng(0))  # of unscaled inputs
            return cross_validated_temperature(
                candidate.model, candidate.rows, groups, self._plan, candidate.step_seconds
            )
        except PlanMismatch:
            raise
        except FAILURES as error:
            self.say(f"cross-validation: failed ({reason(error)})")
            return 1.0

    def _bound(self, one):
        """Return the bound of the model of a candidate or look on at most ``BOUND_ROWS`` rows."""
        inputs = next(name for name, scale in self._scales.items() if scale is one.scale)
        rows = self._data(inputs)[1].draw(BOUND_ROWS, np.random.default_rng(2))
        self._plan.did(8 * one.model.posterior.mean.size * len(one.model.inducing) * len(rows))
        return elbo(one.model, rows.X, rows.y, weights=rows.weights, num_data=len(self.rows))

    # --- from the best look to a model of all rows ---

    def answer(self, interrupted):
        look = self.best
        if not self.looks:
            return self._apply_temperature(look.model, look), look
        if not interrupted:
            look = self._last_word(
                look, lambda one: densities(one.model, one.scale, self.last, *one.factors)
            )
        model = look.model if interrupted else self._train_on_all(look)
        model = self._apply_temperature(model, look)
        self.say(f"model: {look.candidate}, {len(model.inducing)} inducing inputs, all rows")
        return model, look

    def _train_on_all(self, look):
        """Train the posterior of the look on all rows; return it unchanged if a step fails."""
        rows = scale_rows(self.whole, look.scale)
        rng, began = np.random.default_rng(SEED), self._plan.spent
        try:
            model = self._steps(look.model, rows, rng, TIMED, (1.0, 1.0))
            each = max((self._plan.spent - began) / TIMED, 1e-6)
            left = self._plan.left / each
            count = self._plan.count("last natural steps", np.clip(left, FEWEST, MOST))
            return self._steps(model, rows, rng, count, (1.0, LAST_STEP / FIRST_STEP))
        except PlanMismatch:
            raise
        except FAILURES as error:
            self.say(f"posterior of all rows: failed ({reason(error)})")
            return look.model

    def _steps(self, model, rows, rng, count, sizes):
        """Take ``count`` natural steps on minibatches.

        Step sizes go log-linearly from ``sizes[0]`` to ``sizes[1]`` times ``FIRST_STEP``.
        """
        batch, M = min(LARGE_BATCH, len(rows)), len(model.inducing)
        flops = 8 * M * model.posterior.mean.size * (batch + M)
        first, last = sizes
        falling = [
            FIRST_STEP * first * (last / first) ** (step / max(count - 1, 1))
            for step in range(count)
        ]
        return natural_steps(model, rows, falling, batch, rng, self._plan, flops)

    def _apply_temperature(self, model, look):
        """Put the temperature into the model, unless its jitter then changes predictions."""
        (T,) = look.factors
        if T == 1.0:
            return model
        rows = self.rows if self.held_out is None else self.held_out
        try:
            other = temper(model, T)
            change = densities(other, look.scale, rows) - densities(model, look.scale, rows, T)
            if np.average(np.abs(change), weights=rows.weights) < ROUNDING:
                one = "cross-validation multiplies", "held-out rows multiply"
                self.say(f"{one[self.held_out is not None]} the latent functions by {T:.2g}")
                return other
        except FAILURES as error:
            self.say(f"temperature {T:.2g}: failed ({reason(error)})")
        return model


# --- the temperature ---


def latent(model, X):
    """Predict marginals of f at X in chunks of rows, outputs first."""
    chunks = [predict_f(model, X[at : at + ROWS]) for at in range(0, len(X), ROWS)]
    mean, var = (np.concatenate(parts).T for parts in zip(*chunks, strict=True))
    return Marginals(mean, var)


def constant_of(model):
    """Return the constant mean with an axis for rows."""
    return np.asarray(model.mean.value)[..., None]


def temper_marginals(f, constant, T):
    """Return the marginals of c + T (f - c)."""
    return Marginals(constant + T * (f.mean - constant), T**2 * f.var)


def temperature_of(model, f, y, weights):
    """Return the temperature that maximises the held-out log density, with a prior around 1."""
    from scipy.optimize import minimize_scalar

    total, constant = len(y) if weights is None else weights.sum(), constant_of(model)

    def loss(log_T):
        f_at_T = temper_marginals(f, constant, np.exp(log_T))
        density = model.likelihood.predict_log_density(y, f_at_T)
        return 0.5 * PRIOR_ROWS * log_T**2 / total - np.average(density, weights=weights)

    found = minimize_scalar(loss, bounds=(-LARGEST, LARGEST), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def temper(model, T):
    """Return the model whose g is T times that of ``model``, up to jitter."""
    return replace(model, covariance=rescale(model.covariance, T**2))


def densities(model, scale, rows, T=1.0):
    """Return the log density (N,) of the targets of rows under the model at temperature T."""
    f = latent(model, scale_inputs(rows.X, scale))
    return model.likelihood.predict_log_density(rows.y, temper_marginals(f, constant_of(model), T))


def _error(likelihood, f, y, weights):
    """Return the error rate of classes, or the RMSE of counts."""
    mean, _ = likelihood.predict_mean_and_var(f)
    if likelihood.counts:
        return float(np.sqrt(np.average(np.square(mean - y), weights=weights)))
    guessed = mean.argmax(axis=0) if mean.ndim == 2 else mean > 0.5
    return float(np.average(guessed != y, weights=weights))


# --- without held-out rows: cross-validation at the hyperparameters ---


def cross_validated_temperature(model, rows, groups, plan, step_seconds):
    """Return the temperature that is best for predictions of f on held-out folds.

    The posterior for each fold starts at the prior and takes natural steps on minibatches of the
    other folds. ``groups`` (N,) numbers the input rows; equal ones are in one fold. If the time
    left allows too few steps, which take ``step_seconds`` each, the temperature is 1.
    """
    steps = plan.count(
        "cross-validation: steps",
        lambda: min(max(plan.left, 0) / (FOLDS * step_seconds), FOLD_STEPS),
    )
    if steps < FEWEST_FOLD_STEPS:
        return 1.0
    fold = groups % FOLDS
    mean, var = (np.zeros((*model.posterior.mean.shape[:-1], len(rows))) for _ in range(2))
    for k in np.unique(fold):
        seen = rows.some(fold != k)
        if not len(seen):
            return 1.0
        start = start_at_prior(model.covariance, model.inducing, model.likelihood, model.mean)
        f = latent(_train(start, seen, plan, steps), rows.X[fold == k])
        mean[..., fold == k], var[..., fold == k] = f.mean, f.var
    return temperature_of(model, Marginals(mean, var), rows.y, rows.weights)


def _train(model, rows, plan, steps):
    rng, M = np.random.default_rng(1), len(model.inducing)
    flops = COST * 8 * model.posterior.mean.size * M * (min(M, BATCH) + M)
    largest = WHOLE if len(rows) <= BATCH else MINIBATCH
    rising = [largest * min(1.0, (step + 1) / FOLD_RAMP) for step in range(steps)]
    return natural_steps(model, rows, rising, BATCH, rng, plan, flops, COST)
