"""Predictions in weight space, in blocks of the basis, for any m.

Away from its inducing inputs an ``InducingBasis`` cannot vary: k_xz falls to 0, and the variance
with it. In an augmented model (Evans and Nair 2018, Proposition 4) a test input x gets its own
function, phi = k(., x), whose weight w is uncorrelated with the others in q, with mean 0 and
variance c^2. With data at X_n, Gaussian noise s^2 and the prior precision S of all m + 1 weights,
the bound depends on c only through

    from the data, -sum_n Var[f(X_n)] / (2 s^2):    -c^2 sum_n k(X_n, x)^2 / (2 s^2)
    from the prior, -tr(S Sigma) / 2:               -c^2 k(x, x) / 2 (Sigma has no entry between
                                                    w and the others)
    from log det C:                                 log c,

with its maximum at c^-2 = k(x, x) + sum_n k(X_n, x)^2 / s^2, for every value of the rest of q. As
phi(x) = k(x, x), the variance of f(x) gains

    k(x, x)^2 c^2 = k(x, x)^2 / (k(x, x) + sum_n k(X_n, x)^2 / s^2):

never negative, and the prior's k(x, x) far from the data. With Z = X and the optimal mu the best
mean of w is 0.
"""

import numpy as np

from .. import check, kernels, models
from ..bounds.at_inputs import NAMES, has_variance, total
from ..bounds.predict import levels_of
from ..likelihoods import Gaussian
from ..records import Marginals, replace
from ..runtime import tuning
from .bases import InducingBasis, RelevanceBasis
from .bases.base import BasisWeights
from .model import QSGP, check_columns, check_inputs

NUMBERS_EACH = 512  # numbers of a chunk per test input


def predict_f(model, Xs, *, full_cov=False, var=True, augmented=False, chunk_size=None):
    """Predict as for an SVGP: mean and variance (N,), or the covariance (N, N).

    2 (k + 2) m N flops and the features, 2 m N with ``var=False``; N^2 m for the covariance.

    ``augmented``, for an ``InducingBasis`` and Gaussian noise: each test input gets its own
    function, so the variance grows to the prior's away from the data, and is nowhere less. True if
    the data are at the inducing inputs, as in the paper; else the inputs of the data, an array (n,
    D). 4 n N flops and covariances more. The mean is unchanged. It excludes ``full_cov``, because
    each test input has its own model.
    """
    if not has_variance(full_cov, var):
        return _marginals(model, Xs, chunk_size, augmented=augmented, var=False)[2].mean
    if not full_cov:
        _, _, f = _marginals(model, Xs, chunk_size, augmented=augmented)
        return f.mean, f.var
    if not isinstance(augmented, (bool, np.bool_)) or augmented:
        raise ValueError(
            "predict_f: `augmented` gives each test input its own model, so `full_cov` does not"
            " exist: leave one of them out"
        )
    model, X, _ = check_inputs(model, Xs, "Xs")
    W, v = model.posterior.to_rows()
    out, _ = model.basis.products(X, BasisWeights(W))
    cov = (
        kernels.matmul(out[1:], out[1:], transpose_a=True)
        if len(W) > 1
        else np.zeros((len(X), len(X)), X.dtype, like=X)
    )
    units = np.arange(len(v) // model.basis.width, like=X)
    size = max(1, tuning.current.feature_panel_numbers // (len(X) * model.basis.width))
    for at in range(0, len(units), size):
        part = units[at : at + size]
        phi = model.basis.features(X, part)
        cov += kernels.matmul(phi * v[model.basis.functions(part)], phi, transpose_b=True)
    check.result(total(cov), model)
    return out[0], cov


def predict_y(model, Xs, *, median=False, augmented=False, chunk_size=None):
    """Predict as for an SVGP. ``median``: use the median of f for f. ``augmented`` as in
    ``predict_f``.
    """
    model, _, f = _marginals(model, Xs, chunk_size, median=median, augmented=augmented)
    return model.likelihood.predict_mean_and_var(f)


def predict_log_density(model, Xs, Ys, *, median=False, augmented=False, chunk_size=None):
    """Evaluate as for an SVGP. ``median`` and ``augmented`` as in ``predict_y``."""
    model, Ys, f = _marginals(model, Xs, chunk_size, Ys, median=median, augmented=augmented)
    return model.likelihood.predict_log_density(Ys, f)


def predict_cdf(model, Xs, Ys, *, chunk_size=None):
    """Evaluate as for an SVGP."""
    model, Ys, f = _marginals(model, Xs, chunk_size, Ys)
    return model.likelihood.predict_cdf(Ys, f)


def predict_quantiles(model, Xs, levels, *, chunk_size=None):
    """Predict as for an SVGP."""
    levels = levels_of(levels)
    model, _, f = _marginals(model, Xs, chunk_size)
    q = model.likelihood.predict_quantiles(levels.ravel().tolist(), f)
    return q if levels.ndim else q[0]


def sample_f(model, Xs, num_samples=1, *, rng=None):
    """Draw samples (num_samples, N) of the latent function, at any number of inputs.

    The weights are drawn, so the samples are functions. 2 (k + 1) m flops per sample for the
    weights, which take num_samples m numbers, and 2 m N and the features.
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    model, X, _ = check_inputs(model, Xs, "Xs")
    q = model.posterior
    noise = np.asarray(rng.standard_normal((num_samples, len(q.mean))).astype(X.dtype), like=X)
    W = q.mean + kernels.chevron_multiply(q.columns, q.diagonal, noise)
    size, weights = _rows_at_once(X), BasisWeights(W)
    out = np.concatenate(
        [model.basis.products(X[at : at + size], weights)[0] for at in range(0, len(X), size)],
        axis=1,
    )
    check.result(total(out), model)
    return out


def _rows_at_once(X):
    return kernels.chunk_numbers(X) // NUMBERS_EACH


def _marginals(model, Xs, chunk_size, Ys=check.ABSENT, median=False, augmented=False, var=True):
    """Return the model and new targets, checked, and marginals (N,); without ``var`` means alone.

    ``augmented`` does not change means.
    """
    model, X, dtype = check_inputs(model, Xs, "Xs")
    data = _data_of(model, augmented, dtype)
    if Ys is not check.ABSENT:
        Ys = check.targets(check.as_array("Ys", Ys), len(X), (), model.likelihood, dtype, NAMES)
    size = _rows_at_once(X) if chunk_size is None else check.whole("chunk_size", chunk_size)
    median, means, variances = check.flag("median", median), [], []
    W, v = model.posterior.to_rows()
    weights = BasisWeights(W, v) if var else BasisWeights(W[:1])
    for at in range(0, len(X), size):
        out, squares = model.basis.products(X[at : at + size], weights)
        means.append(out[0])
        if var:
            variances.append(squares + np.square(out[1:]).sum(axis=0))
            if data is not None:
                variances[-1] += _gain(model, X[at : at + size], data)
    mean, variance = np.concatenate(means), np.concatenate(variances) if var else None
    check.result(total(mean) + (total(variance) if var else 0.0), model)
    return model, Ys, Marginals(mean, np.zeros_like(variance) if median else variance)


def _data_of(model, augmented, dtype):
    """Return None, or a basis whose inducing inputs are those of the data, from ``augmented``."""
    if isinstance(augmented, (bool, np.bool_)) and not augmented:
        return None
    basis, likelihood = model.basis, type(model.likelihood)
    if (
        not isinstance(basis, InducingBasis)
        or isinstance(basis, RelevanceBasis)
        or likelihood is not Gaussian
    ):
        raise TypeError(
            "`augmented` is for a fastsvgp.qsgp.InducingBasis and a Gaussian likelihood, where the"
            f" variance of one more function is known; this model has a {type(basis).__name__} and"
            f" a {likelihood.__name__}: leave it out"
        )
    if isinstance(augmented, (bool, np.bool_)):
        return basis
    if not hasattr(augmented, "shape"):
        raise TypeError(
            "`augmented` must be True, False or the inputs of the data (n, D), got"
            f" {augmented!r:.200}"
        )
    inputs = check.inputs("augmented", augmented)
    check_columns(basis, inputs, "augmented")
    return replace(basis, inducing=inputs.astype(dtype, copy=False))


def _gain(model, X, data):
    """Return k(x, x)^2 c^2 (N,) of the derivation above."""
    count = data.num_functions()
    nothing, ones = np.zeros((1, count), X.dtype, like=X), kernels.full(count, 1.0, X)
    own, (_, squares) = data.covariance.kff(X), data.products(X, BasisWeights(nothing, ones))
    precision = own + squares / model.likelihood.variance
    # a linear covariance can be 0 at x
    return own * own / np.maximum(precision, np.finfo(precision.dtype).tiny)


def predictor(model, X=None, Y=None, *, jitter=None, dtype=None):
    """Return the model as it is: its predictions factorise nothing."""
    if any(value is not None for value in (X, Y, jitter, dtype)):
        raise TypeError(
            "predictor: a QSGP is returned as it is: leave `X`, `Y`, `jitter` and `dtype` out"
        )
    return model


models.register(
    QSGP,
    predictor=predictor,
    predict_f=predict_f,
    predict_y=predict_y,
    predict_log_density=predict_log_density,
    predict_cdf=predict_cdf,
    predict_quantiles=predict_quantiles,
    sample_f=sample_f,
)
