"""A model at test inputs: means, marginals and joint moments, chunk by chunk, and joint draws."""

import numpy as np

from .. import check, kernels
from ..posteriors.base import covariance_factor
from ..records import Marginals
from ..records.typed import AnyRecord
from .layer_pass import MEANS
from .model_kinds import kind_of

NAMES = ("Xs", "Ys")  # names of the arguments in messages


def joint_samples(mean, cov, jitter, num_samples, rng):
    """Draw samples (num_samples, N) or (num_samples, N, P) of Gaussians.

    mean (..., N); cov (..., N, N)
    """
    factor = covariance_factor(cov, jitter)
    noise = np.asarray(
        rng.standard_normal((*mean.shape, num_samples)).astype(mean.dtype), like=mean
    )
    samples = mean[..., None] + kernels.multiply_triangular(factor, noise)  # (..., N, S)
    samples = np.moveaxis(samples, -1, 0).swapaxes(1, -1) if mean.ndim == 2 else samples.T
    return np.ascontiguousarray(samples, like=mean)


def marginals(
    model, Xs, jitter, chunk_size, Ys=check.ABSENT
) -> tuple[AnyRecord, np.ndarray, Marginals]:
    """Return the checked model, the checked targets, and marginals (..., N), chunk by chunk."""
    layer, model, Xs, Ys, _ = begin_pass(model, jitter, Xs, Ys)
    parts = [layer.forward(X)[0] for X in chunks(layer, Xs, chunk_size)]
    check.report_clamped(layer.clamped)
    f = Marginals(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("mean", "var")
        )
    )
    check.result(total(f.var), model)
    return model, Ys, f


def with_variance(full_cov, var, name="full_cov"):
    """Return whether a prediction has a variance or, with ``full_cov``, a covariance."""
    if check.flag(name, full_cov) and not check.flag("var", var):
        raise ValueError(
            f"predict_f: `{name}` asks for covariances, `var=False` for none: leave one out"
        )
    return check.flag("var", var)


def means(model, Xs, jitter, chunk_size):
    """Return the means (..., N) alone, chunk by chunk."""
    layer, model, Xs, *_ = begin_pass(model, jitter, Xs, need=(MEANS,))
    mean = np.concatenate([layer.means(X) for X in chunks(layer, Xs, chunk_size)], axis=-1)
    check.result(total(mean), model)
    return mean


def chunks(layer, Xs, chunk_size):
    """Return the chunks of Xs for a pass, of the requested or the default size."""
    size = max(1, kernels.chunk_numbers(Xs) // layer.num_inducing)
    size = size if chunk_size is None else check.whole("chunk_size", chunk_size)
    return [Xs[start : start + size] for start in range(0, len(Xs), size)]


def begin_pass(model, jitter, Xs, Ys=check.ABSENT, need=(), columns=None):
    """Check the arguments and begin a pass: ``(pass, model, Xs, Ys, jitter)``.

    ``columns`` as of a ``LayerPass``; default the rows of Xs.
    """
    kind = kind_of(model)
    model, Xs, Ys, dtype = kind.checked(model, Xs, Ys, NAMES)
    jitter = check.jitter_amount(jitter, dtype)
    columns = len(Xs) if columns is None else columns
    layer = kind.begin(model, dtype, columns, need, jitter=jitter, rng=None)
    return layer, model, Xs, Ys, jitter


def joint(model, Xs, jitter):
    """Return mean (..., N), covariance (..., N, N), and the jitter that was added."""
    layer, model, Xs, _, jitter = begin_pass(model, jitter, Xs, columns=0)
    mean, cov = layer.joint(Xs)
    check.report_clamped(layer.clamped)
    check.result(total(cov), model)
    return mean, cov, jitter


def total(array):
    """Sum all entries in float64; the sum is finite only if they are."""
    return np.add.reduce(array, axis=None, dtype=np.float64)


def trailing(array):
    """Move the outputs from the leading axis, inside the package, to the trailing axis of users."""
    return np.ascontiguousarray(array.T, like=array) if array.ndim == 2 else array
