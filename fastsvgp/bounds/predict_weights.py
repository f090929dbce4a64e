"""Predictions in weight space: block by block of the basis, whatever m is."""

import numpy as np

from .. import check, kernels, models
from ..kernels import verdicts
from ..records import Marginals
from .predict import NAMES, levels_of, total
from .weight_space import QSGP, checked_inputs

PANEL_NUMBERS = 2**21  # of one panel of features, inputs by functions: 16 MiB in float64
ROWS = 4096  # test inputs at a time


@verdicts.retried
def predict_f(model, Xs, *, full_cov=False, chunk_size=None):
    """As of an SVGP: mean and variance (N,), or the covariance (N, N). 2 (k + 2) m N flops and the features; N^2 m for that."""
    if not check.flag("full_cov", full_cov):
        _, _, f = _marginals(model, Xs, chunk_size)
        return f.mean, f.var
    model, X, _ = checked_inputs(model, Xs, "Xs")
    W, v = model.posterior.by_rows()
    out, _ = model.basis.products(X, W, None)
    cov = kernels.matmul(out[1:], out[1:], transpose_a=True) if len(W) > 1 else np.zeros((len(X), len(X)), X.dtype, like=X)
    units = np.arange(len(v) // model.basis.width, like=X)
    size = max(1, PANEL_NUMBERS // (len(X) * model.basis.width))
    for at in range(0, len(units), size):
        part = units[at : at + size]
        phi = model.basis.features(X, part)
        cov += kernels.matmul(phi * v[model.basis.functions(part)], phi, transpose_b=True)
    check.result(total(cov), model)
    return out[0], cov


@verdicts.retried
def predict_y(model, Xs, *, median=False, chunk_size=None):
    """As of an SVGP; with ``median`` as if f were its median."""
    model, _, f = _marginals(model, Xs, chunk_size, median=median)
    return model.likelihood.predict_mean_and_var(f)


@verdicts.retried
def predict_log_density(model, Xs, Ys, *, median=False, chunk_size=None):
    """As of an SVGP; with ``median`` as if f were its median."""
    model, Ys, f = _marginals(model, Xs, chunk_size, Ys, median=median)
    return model.likelihood.predict_log_density(Ys, f)


@verdicts.retried
def predict_cdf(model, Xs, Ys, *, chunk_size=None):
    """As of an SVGP."""
    model, Ys, f = _marginals(model, Xs, chunk_size, Ys)
    return model.likelihood.predict_cdf(Ys, f)


@verdicts.retried
def predict_quantiles(model, Xs, levels, *, chunk_size=None):
    """As of an SVGP."""
    levels = levels_of(levels)
    model, _, f = _marginals(model, Xs, chunk_size)
    q = model.likelihood.predict_quantiles(levels.ravel().tolist(), f)
    return q if levels.ndim else q[0]


@verdicts.retried
def sample_f(model, Xs, num_samples=1, *, rng=None):
    """Samples (num_samples, N) of the latent function: of its weights, so that they are functions, at any number of inputs.

    2 (k + 1) m flops a sample for the weights, which take num_samples m numbers, and 2 m N and the features.
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    model, X, _ = checked_inputs(model, Xs, "Xs")
    q = model.posterior
    noise = np.asarray(rng.standard_normal((num_samples, len(q.mean))).astype(X.dtype), like=X)
    W = q.mean + kernels.chevron_multiply(q.columns, q.diagonal, noise)
    out = np.concatenate([model.basis.products(X[at : at + ROWS], W, None)[0] for at in range(0, len(X), ROWS)], axis=1)
    check.result(total(out), model)
    return out


def _marginals(model, Xs, chunk_size, Ys=check.ABSENT, median=False):
    """The model and new targets, checked, and marginals (N,)."""
    model, X, dtype = checked_inputs(model, Xs, "Xs")
    if Ys is not check.ABSENT:
        Ys = check.targets(check.as_array("Ys", Ys), len(X), (), model.likelihood, dtype, NAMES)
    size = ROWS if chunk_size is None else check.whole("chunk_size", chunk_size)
    median, (W, v), means, variances = check.flag("median", median), model.posterior.by_rows(), [], []
    for at in range(0, len(X), size):
        out, squares = model.basis.products(X[at : at + size], W, v)
        means.append(out[0])
        variances.append(squares + np.square(out[1:]).sum(axis=0))
    f = Marginals(np.concatenate(means), np.concatenate(variances))
    check.result(total(f.var) + total(f.mean), model)
    return model, Ys, Marginals(f.mean, np.zeros_like(f.var)) if median else f


models.register(
    QSGP, predict_f=predict_f, predict_y=predict_y, predict_log_density=predict_log_density, predict_cdf=predict_cdf,
    predict_quantiles=predict_quantiles, sample_f=sample_f,
)  # fmt: skip
