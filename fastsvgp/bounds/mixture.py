"""A mixture of trained models: their predictive distributions, averaged.

With shares w_k, and m_k, v_k the moments of model k,

    mean c = sum_k w_k m_k,    variance sum_k w_k (v_k + (m_k - c)^2),
    density sum_k w_k p_k,     distribution function sum_k w_k F_k.

Reverse, with a and b the cotangents of mean and variance: the second is stationary in c, so

    m_bar_k = w_k (a + 2 (m_k - c) b),    v_bar_k = w_k b.
"""

import numpy as np

from .. import check, models
from ..records import is_record, record, replace, static
from ..records.typed import Record
from .at_inputs import bisect
from .predict import (
    levels_of,
    predict_cdf,
    predict_f,
    predict_log_density,
    predict_quantiles,
    predict_y,
    sample_f,
)
from .predict_vjp import predict_f_and_vjp
from .predictor import predictor


@record
class Mixture:
    """Trained models whose predictive distributions are averaged.

    Every function that predicts takes it: moments are those of the mixture, densities and
    distribution functions are averages, quantiles are those of the averaged distribution function.
    Inputs and targets have the units of the models, which are the same for all.

    Parameters
    ----------
    models : tuple of records
        Of any kinds.
    shares : tuple of float
        Positive; they add up to 1.

    Examples
    --------
    >>> both = fs.Mixture((model, fs.optimal_svgp(sgpr, X, Y)), shares=(0.25, 0.75))
    >>> mean, var = fs.predict_y(both, X)
    >>> mean.shape
    (40,)
    """

    models: tuple[Record, ...]
    shares: tuple[float, ...] = static()

    def __post_init__(self):
        shares = self.shares
        if not isinstance(self.models, tuple | list) or not all(map(is_record, self.models)):
            raise TypeError(
                f"Mixture: `models` must be a tuple of models, got {self.models!r:.80}; put one"
                " model into a tuple, too"
            )
        right = isinstance(shares, tuple | list) and len(shares) == len(self.models) > 0
        if not (right and min(shares) > 0 and abs(sum(shares) - 1) < 1e-9):
            raise ValueError(
                f"Mixture: `shares` must be positive, add up to 1, and be as many as the"
                f" {len(self.models)} models, got {shares!r:.80}"
            )

    @property
    def covariance(self):
        """That of the first model, which stands for all where one is described."""
        return self.models[0].covariance

    @property
    def inducing(self):
        """Those of the first model."""
        return self.models[0].inducing

    @property
    def likelihood(self):
        """That of the first model; all have targets of the same kind."""
        return self.models[0].likelihood


def average(shares, values):
    """Return the weighted sum of arrays."""
    return sum(w * value for w, value in zip(shares, values, strict=True))


def moments(shares, means, variances):
    """Return mean and variance of the mixture."""
    centre = average(shares, means)
    spread = [v + np.square(m - centre) for m, v in zip(means, variances, strict=True)]
    return centre, average(shares, spread)


def _each(function, model, *args, **options):
    return [function(one, *args, **options) for one in model.models]


def _predict_f(model, Xs, *, full_cov=False, var=True, jitter=None, chunk_size=None):
    options = {"jitter": jitter, "chunk_size": chunk_size}
    if not var:
        return average(model.shares, _each(predict_f, model, Xs, var=False, **options))
    means, covs = zip(*_each(predict_f, model, Xs, full_cov=full_cov, **options), strict=True)
    if not full_cov:
        return moments(model.shares, means, covs)
    centre = average(model.shares, means)
    off = [(m - centre).T for m in means]
    apart = [o[..., :, None] * o[..., None, :] for o in off]
    return centre, average(model.shares, [c + a for c, a in zip(covs, apart, strict=True)])


def _predict_y(model, Xs, *, jitter=None, chunk_size=None):
    found = _each(predict_y, model, Xs, jitter=jitter, chunk_size=chunk_size)
    return moments(model.shares, *zip(*found, strict=True))


def _predict_log_density(model, Xs, Ys, *, jitter=None, chunk_size=None):
    logs = np.stack(_each(predict_log_density, model, Xs, Ys, jitter=jitter, chunk_size=chunk_size))
    top = np.maximum(logs.max(axis=0), np.finfo(logs.dtype).min)  # finite, also if all are -inf
    with np.errstate(divide="ignore"):
        return top + np.log(average(model.shares, np.exp(logs - top)))


def _predict_cdf(model, Xs, Ys, *, jitter=None, chunk_size=None):
    options = {"jitter": jitter, "chunk_size": chunk_size}
    return average(model.shares, _each(predict_cdf, model, Xs, Ys, **options))


def _predict_quantiles(model, Xs, levels, *, jitter=None, chunk_size=None):
    levels, options = levels_of(levels), {"jitter": jitter, "chunk_size": chunk_size}
    of_models = np.stack(_each(predict_quantiles, model, Xs, np.atleast_1d(levels), **options))
    likelihoods = [one.likelihood for one in model.models]
    if any(check.num_columns(one) > 1 for one in likelihoods):
        raise TypeError("quantiles of a Mixture need targets of one column; ask its models")
    counts = any(one.counts for one in likelihoods)
    found = [
        bisect(low, high, level, lambda y: _predict_cdf(model, Xs, y, **options), counts)
        for low, high, level in zip(
            of_models.min(axis=0), of_models.max(axis=0), np.atleast_1d(levels), strict=True
        )
    ]
    return np.stack(found) if levels.ndim else found[0]


def _sample_f(model, Xs, num_samples=1, *, rng=None, jitter=None):
    """Draw the model of each sample, then the samples of each model."""
    count, rng = check.whole("num_samples", num_samples), check.generator(rng)
    drawn = rng.choice(len(model.models), count, p=np.asarray(model.shares) / sum(model.shares))
    samples = None
    for k, one in enumerate(model.models):
        at = np.flatnonzero(drawn == k)
        if len(at):
            own = sample_f(one, Xs, len(at), rng=rng, jitter=jitter)
            samples = np.empty((count, *own.shape[1:]), own.dtype) if samples is None else samples
            samples[at] = own
    return samples


def _predictor(model, X=None, Y=None, *, jitter=None, dtype=None):
    """Return the mixture of the predictors of its models."""
    given = () if X is None and Y is None else (X, Y)
    made = _each(predictor, model, *given, jitter=jitter, dtype=dtype)
    return replace(model, models=tuple(made))


def _predict_f_and_vjp(model, Xs, *, jitter=None):
    found = _each(predict_f_and_vjp, model, Xs, jitter=jitter)
    means, variances, pullbacks = zip(*found, strict=True)
    centre, var = moments(model.shares, means, variances)

    def vjp(mean_bar, var_bar):
        """Pull cotangents of mean and variance back to the inputs (N, D). ``None`` is zero."""
        a = 0.0 if mean_bar is None else mean_bar
        total = 0.0
        for w, m, back in zip(model.shares, means, pullbacks, strict=True):
            b = 0.0 if var_bar is None else 2 * (m - centre) * var_bar
            total = total + back(w * (a + b) + 0 * m, None if var_bar is None else w * var_bar)
        return total

    return centre, var, vjp


models.register(
    Mixture,
    instead="a Mixture only predicts: train its models",
    predict_f=_predict_f,
    predict_y=_predict_y,
    predict_log_density=_predict_log_density,
    predict_cdf=_predict_cdf,
    predict_quantiles=_predict_quantiles,
    sample_f=_sample_f,
    predictor=_predictor,
    predict_f_and_vjp=_predict_f_and_vjp,
)
