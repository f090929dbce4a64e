"""Predictions of a deep GP: mixtures over quasi-random draws of its hidden layers.

Given the draws of the hidden layers, the last layer is Gaussian at each row, so a prediction is a
mixture of S Gaussians with equal weights. The draws are points of N(0, I) over the outputs of all
hidden layers, the same for every row: a row's prediction depends only on that row.
"""

from contextlib import nullcontext
from itertools import accumulate

import numpy as np

from .. import check, kernels, models
from ..bounds.at_inputs import NAMES, joint_samples, total, trailing
from ..bounds.layer_pass import MEANS
from ..bounds.predict import levels_of
from ..likelihoods.layout import laid_out, of_unit
from ..records.inducing_sets import naming_repeated
from .bound import repeated
from .chain_pass import Chain
from .layer import DeepGP, checked, naming_layer, widths

HALVINGS = 54  # of the bracket of a quantile: float64 has 53 bits


def predict_f(
    model,
    Xs,
    *,
    full_cov=False,
    var=True,
    jitter=None,
    chunk_size=None,
    num_samples=32,
    rng=None,
):
    """Predict as for an SVGP: mean and variance (N,) or (N, P) of the mixture over hidden draws.

    With ``var=False`` the mean alone: the draws need the variances of the hidden layers, so this
    saves those of the last layer.

    ``num_samples`` is S, a power of two: the number of quasi-random points, common to all rows
    (``kernels.normal_points`` with this ``rng``: the same for the same seed, and for None).

    There is no ``full_cov``, because the joint distribution over rows is not Gaussian; ``sample_f``
    draws whole functions. 2 M^2 S N flops per output and layer (the first layer has only N rows).
    """
    if check.flag("full_cov", full_cov):
        raise ValueError(
            "predict_f: the outputs of a deep GP at several inputs are not jointly Gaussian: leave"
            " `full_cov` out; sample_f(model, Xs) draws whole functions"
        )
    if not check.flag("var", var):
        mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng, top=(MEANS,))
        return mixture.means()
    mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng)
    return mixture.gathered(lambda f, _: mixture.moments(f.mean, f.var))


def predict_y(model, Xs, *, jitter=None, chunk_size=None, num_samples=32, rng=None):
    """Predict as for an SVGP and as ``predict_f``: moments of new targets.

    Mean and variance, or class probabilities p and p (1 - p).
    """
    mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng)
    likelihood = mixture.model.likelihood
    return mixture.gathered(
        lambda f, _: mixture.moments(*likelihood.predict_mean_and_var(laid_out(likelihood, f)))
    )


def predict_log_density(model, Xs, Ys, *, jitter=None, chunk_size=None, num_samples=32, rng=None):
    """Evaluate as for an SVGP and as ``predict_f``: (N,), of all outputs of a row jointly."""
    mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng, Ys)
    likelihood = mixture.model.likelihood

    def log_density(f, y):
        logs = mixture.by_sample(
            likelihood.predict_log_density(mixture.repeated(y), laid_out(likelihood, f))
        )
        # finite, also if all are -inf
        top = np.maximum(logs.max(axis=0), np.finfo(logs.dtype).min)
        with np.errstate(divide="ignore"):
            return (top + np.log(mixture.average(np.exp(logs - top))),)

    return mixture.gathered(log_density)[0]


def predict_cdf(model, Xs, Ys, *, jitter=None, chunk_size=None, num_samples=32, rng=None):
    """Evaluate as for an SVGP and as ``predict_f``: each output separately."""
    mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng, Ys)
    return mixture.gathered(lambda f, y: (mixture.cdf(y, f),))[0]


def predict_quantiles(model, Xs, levels, *, jitter=None, chunk_size=None, num_samples=32, rng=None):
    """Predict as for an SVGP and as ``predict_f``: quantiles of the mixture, by bisection.

    The quantiles of the mixture's parts bracket them. Up to 54 evaluations of ``predict_cdf`` per
    level.
    """
    levels = levels_of(levels)
    mixture = Mixture(model, Xs, jitter, chunk_size, num_samples, rng)
    found = mixture.gathered(lambda f, _: mixture.quantiles(levels.ravel().tolist(), f))
    return np.stack(found) if levels.ndim else found[0]


def sample_f(model, Xs, num_samples=1, *, rng=None, jitter=None):
    """Draw as for an SVGP: whole functions, layer by layer.

    Each layer's outputs at all Xs are drawn jointly, given those of the layer below: (num_samples,
    N) or (num_samples, N, P). N^3 / 3 flops per output, for each sample in all layers but the
    first.
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    model, X, _, dtype = checked(model, Xs, names=NAMES)
    jitter = check.jitter_amount(jitter, dtype)
    passes = Chain(model, jitter).passes
    samples = _drawn(0, passes[0], X, jitter, num_samples, rng)
    for number, work in enumerate(passes[1:], start=1):
        samples = np.concatenate([_drawn(number, work, one, jitter, 1, rng) for one in samples])
    check.report_clamped(sum(work.clamped for work in passes))
    check.result(total(samples), model)
    return samples


def _drawn(number, work, X, jitter, num_samples, rng):
    maps = hasattr(work, "of_draws")  # its functions are drawn before they are mixed
    mean, cov = work.joint_latents(X) if maps else work.joint(X)
    naming_function = getattr(work, "naming_function", nullcontext)
    rows = None if number else X
    with naming_layer(number), naming_repeated(rows, "Xs"), naming_function():
        samples = joint_samples(mean, cov, jitter, num_samples, rng)
    if maps:
        return work.of_draws(samples, X)
    # a layer on patches has several rows per row of X
    return samples if samples.ndim == 2 else samples.reshape(num_samples, len(X), -1)


class Mixture:
    """Checked test inputs and common points: per chunk the last layer's marginals (..., S n).

    Attributes
    ----------
    model : DeepGP
        Checked.
    """

    def __init__(self, model, Xs, jitter, chunk_size, num_samples, rng, Ys=check.ABSENT, top=()):
        num_samples = check.whole("num_samples", num_samples, 2)
        if num_samples & (num_samples - 1):
            raise ValueError(
                f"`num_samples` must be a power of two, for quasi-random points, got {num_samples}"
            )
        self.model, self._X, self._Y, dtype = checked(model, Xs, Ys, NAMES)
        sizes = widths(self.model.layers)
        self._S = num_samples if sizes else 1
        self._points = _points(sizes, num_samples, rng, self._X)
        self._chain = Chain(self.model, check.jitter_amount(jitter, dtype), top=top)
        rows = max(
            1,
            kernels.chunk_numbers(self._X)
            // (self._S * max(M * each for M, each in self._chain.sizes)),
        )
        self._rows = rows if chunk_size is None else check.whole("chunk_size", chunk_size)

    def gathered(self, function):
        """Apply ``function(f, y)`` to all chunks and concatenate its arrays (..., n) to (N, ...).

        ``function`` returns a tuple; y is None without targets.
        """
        parts, seen = [], 0.0
        for rows, X, draws in self._chunks():
            y = None if self._Y is check.ABSENT else self._Y[..., rows]
            f, _ = self._chain.forward(X, draws)
            seen = seen + total(f.var)
            parts.append(function(f, y))
        return self._checked(parts, seen)

    def means(self):
        """Return the means (N,) or (N, P) of the mixture, for ``top=(MEANS,)``."""
        parts, seen = [], 0.0
        for _, X, draws in self._chunks():
            mean = self.average(self.by_sample(self._chain.means(X, draws)))
            seen = seen + total(mean)
            parts.append((mean,))
        return self._checked(parts, seen)[0]

    def _chunks(self):
        """Yield each chunk: its rows, its inputs, and the points of its draws."""
        for start in range(0, len(self._X), self._rows):
            rows = slice(start, start + self._rows)
            X = self._X[rows]
            shape = self._S, len(X)
            yield (
                rows,
                X,
                [np.broadcast_to(z[:, None], (*shape, z.shape[1])) for z in self._points],
            )

    def _checked(self, parts, seen):
        """Concatenate the arrays (..., n) of chunks to (N, ...); ``seen`` is finite if all are."""
        check.report_clamped(self._chain.clamped)
        check.result(seen, self.model)
        return tuple(trailing(np.concatenate(part, axis=-1)) for part in zip(*parts, strict=True))

    def by_sample(self, values):
        """Reshape (..., S n) of all draws to (S, ..., n)."""
        return np.moveaxis(values.reshape(*values.shape[:-1], self._S, -1), -2, 0)

    def repeated(self, y):
        """Repeat the targets for each draw."""
        return repeated(y, self._S)

    def average(self, values):
        """Average over the draws, the leading axis."""
        return values.sum(axis=0) / self._S

    def moments(self, mean, var):
        """Return the mean and variance of the mixture, from those of its parts."""
        mean, var = self.by_sample(mean), self.by_sample(var)
        centre = self.average(mean)
        return centre, self.average(var) + self.average(np.square(mean - centre))

    def cdf(self, y, f):
        """Return the distribution function of the mixture at targets (..., n)."""
        likelihood = self.model.likelihood
        p = likelihood.predict_cdf(self.repeated(y), laid_out(likelihood, f))
        return self.average(self.by_sample(p))

    def quantiles(self, levels, f):
        """Return one array (..., n) per level.

        P(y <= q) reaches the level at the largest of the parts' quantiles, and not below the
        smallest. That bracket is bisected, for counts down to one of them and for other numbers to
        their rounding. The upper end is returned.
        """
        likelihood, found = self.model.likelihood, []
        counts = likelihood.counts
        of_parts = likelihood.predict_quantiles(levels, laid_out(likelihood, f))
        for parts, level in zip(of_parts, levels, strict=True):
            parts = self.by_sample(parts)
            low, high = parts.min(axis=0), parts.max(axis=0)
            for _ in range(HALVINGS):
                if not (low < high).any():
                    break
                middle = np.floor(0.5 * (low + high)) if counts else low + 0.5 * (high - low)
                reached = self.cdf(of_unit(likelihood, middle), f) >= level
                low, high = np.where(reached, low, middle + counts), np.where(reached, middle, high)
            found.append(high)
        return tuple(found)


def _points(sizes, num, rng, X):
    """Return points (S, P) per hidden layer, parts of one array (S, sum of P)."""
    if not sizes:
        return []
    points = kernels.normal_points(sum(sizes), num, rng, like=X).astype(X.dtype)
    return [points[:, end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


models.register(
    DeepGP,
    predict_f=predict_f,
    predict_y=predict_y,
    predict_log_density=predict_log_density,
    predict_cdf=predict_cdf,
    predict_quantiles=predict_quantiles,
    sample_f=sample_f,
)
