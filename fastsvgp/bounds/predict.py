"""Predictions of an SVGP: the latent function, new targets, their log density, and joint samples.

Kuu is factorised once; test inputs go by in chunks, so no N x N matrix exists unless ``full_cov``
asks for it.
"""

from typing import Unpack

import numpy as np

from .. import check, kernels
from ..records import Marginals
from ..records.typed import (
    AnyRecord,
    Array,
    ArrayLike,
    OfFunctions,
    OfQuantiles,
    OfTargets,
    Record,
    Seed,
)
from ..runtime import deferred_checks
from ..runtime.edge import public_call
from .elbo import SVGP
from .posterior_passes import layer_pass

NAMES = ("Xs", "Ys")  # what messages call the arguments


@public_call(SVGP)
def predict_f(
    model: Record,
    Xs: ArrayLike,
    *,
    full_cov: bool = False,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfFunctions],
) -> tuple[Array, Array]:
    """Posterior mean and variance of the latent function.

    Parameters
    ----------
    model : SVGP
    Xs : (N, D) array
    full_cov : bool
        Return covariance matrices; then nothing is chunked.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.
    chunk_size : int, optional
        Test inputs at a time; by default as many as make an (M, chunk) array of 2^21 numbers; on a
        device of 2^18 for each of its multiprocessors.
    **others
        Only other kinds of model take these: a ``DeepGP`` ``num_samples`` and ``rng``, a ``QSGP``
        ``augmented``.

    Returns
    -------
    mean : (N,) or (N, P)
    var : (N,) or (N, P); covariance (N, N) or (P, N, N) with ``full_cov``

    Notes
    -----
    2 M^2 N flops an output (the first output; M^2 N each further one), and M^3 / 3. Handbook,
    appendix II. On a device the results stay there, and one copy to the host says whether all is
    well.

    Examples
    --------
    >>> mean, var = fs.predict_f(model, X)
    >>> mean.shape, var.shape
    ((40,), (40,))
    >>> mean, cov = fs.predict_f(model, X[:5], full_cov=True)
    >>> cov.shape
    (5, 5)
    """
    if not check.flag("full_cov", full_cov):
        _, _, f = _marginals(model, Xs, jitter, chunk_size)
        return trailing(f.mean), trailing(f.var)
    mean, cov, _ = _joint(model, Xs, jitter)
    return trailing(mean), cov


@public_call(SVGP)
def predict_y(
    model: Record,
    Xs: ArrayLike,
    *,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfTargets],
) -> tuple[Array, Array]:
    """Predictive mean and variance of new targets, noise included; class probabilities for multi-class likelihoods.

    Parameters
    ----------
    model, Xs, jitter, chunk_size
        As in ``predict_f``.
    **others
        As in ``predict_f``; a ``QSGP`` takes ``median`` too.

    Returns
    -------
    mean, var : (N,) or (N, P)
        For classes probabilities p (N, C), and p (1 - p).

    Examples
    --------
    >>> mean, var = fs.predict_y(fs.optimal_svgp(sgpr, X, Y), X)
    >>> bool((var > 0.1).all())
    True
    """
    model, _, f = _marginals(model, Xs, jitter, chunk_size)
    mean, var = model.likelihood.predict_mean_and_var(f)
    return trailing(mean), trailing(var)


@public_call(SVGP)
def predict_log_density(
    model: Record,
    Xs: ArrayLike,
    Ys: ArrayLike,
    *,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfTargets],
) -> Array:
    """Log predictive density log E_q(f) p(y | f) of each new target; its mean, negated, is the NLPD.

    On a device ``StudentT`` copies the largest residual to the host beside what ``predict_f`` does,
    once for every 2^15 targets: it decides on the nodes.

    Parameters
    ----------
    model, Xs, jitter, chunk_size
        As in ``predict_f``.
    Ys : (N,) or (N, P) array
        Labels (N,) for multi-class likelihoods. (N, 1) is (N,) where the posterior has no leading
        axis.
    **others
        As in ``predict_y``.

    Returns
    -------
    (N,) array
        For P outputs the sum over outputs.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X, Y)
    >>> round(float(-fs.predict_log_density(best, X, Y).mean()), 3)
    -0.163
    """
    model, Ys, f = _marginals(model, Xs, jitter, chunk_size, Ys)
    return model.likelihood.predict_log_density(Ys, f)


@public_call(SVGP)
def predict_cdf(
    model: Record,
    Xs: ArrayLike,
    Ys: ArrayLike,
    *,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfQuantiles],
) -> Array:
    """Predictive distribution function P(y <= Ys) of each new target, noise included: the likelihood's own, whatever its tails.

    For real targets these values are uniform where a model is calibrated.

    Parameters
    ----------
    model : SVGP
        Of a likelihood whose targets are numbers: Gaussian, Laplace, Student-t, Poisson.
    Xs : (N, D) array
    Ys : (N,) or (N, P) array
    jitter, chunk_size
        As in ``predict_f``.
    **others
        Only a ``DeepGP`` takes these: ``num_samples`` and ``rng``.

    Returns
    -------
    (N,) or (N, P)
        Each output by itself. Errors about 1e-12.

    Raises
    ------
    TypeError
        The targets are classes.

    Notes
    -----
    Closed forms for Gaussian and Laplace noise; some 60 nodes a target for Student-t (its scale
    mixture of normals) and Poisson (23 or 112, over the rate or over a gamma variable). On a device
    what decides on the nodes is copied to the host, some numbers for each piece of the data.

    Examples
    --------
    >>> fs.predict_cdf(fs.optimal_svgp(sgpr, X, Y), X[:1], Y[:1] + 10.0)
    array([1.])
    """
    model, Ys, f = _marginals(model, Xs, jitter, chunk_size, Ys)
    return trailing(model.likelihood.predict_cdf(Ys, f))


@public_call(SVGP)
def predict_quantiles(
    model: Record,
    Xs: ArrayLike,
    levels: ArrayLike,
    *,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfQuantiles],
) -> Array:
    """Predictive quantiles of new targets, noise included: the likelihood's own, whatever its tails.

    ``low, high = predict_quantiles(model, Xs, (0.05, 0.95))`` is an interval that holds nine of ten
    new targets.

    Parameters
    ----------
    model : SVGP
        Of a likelihood whose targets are numbers: Gaussian, Laplace, Student-t, Poisson.
    Xs : (N, D) array
    levels : number or sequence of K numbers
        Strictly between 0 and 1, on the host.
    jitter, chunk_size
        As in ``predict_f``.
    **others
        Only a ``DeepGP`` takes these: ``num_samples`` and ``rng``.

    Returns
    -------
    (N,) or (N, P), with a leading axis of K where ``levels`` has one
        Counts: the smallest one whose distribution function reaches the level.

    Raises
    ------
    TypeError
        The targets are classes.

    Notes
    -----
    The level at a quantile is the one asked for to about 1e-12. Some four to eight evaluations of
    ``predict_cdf`` a level; none for Gaussian noise. On a device each evaluation copies a few
    numbers to the host.

    Examples
    --------
    >>> fs.predict_quantiles(model, X[:2], (0.05, 0.5, 0.95)).shape
    (3, 2)
    """
    levels = levels_of(levels)
    model, _, f = _marginals(model, Xs, jitter, chunk_size)
    q = model.likelihood.predict_quantiles(levels.ravel().tolist(), f)
    q = np.ascontiguousarray(q.swapaxes(1, -1), like=q) if q.ndim == 3 else q
    return q if levels.ndim else q[0]


def levels_of(levels) -> np.ndarray:
    """The levels as an array of floats, checked."""
    levels = check.as_array("levels", levels)
    if deferred_checks.on_device(levels) or levels.ndim > 1:
        raise ValueError(
            "`levels` must be a number or a sequence of numbers on the host, got an array of shape"
            f" {levels.shape}"
        )
    levels = levels.astype(np.float64)
    outside = levels.ravel()[~((levels.ravel() > 0) & (levels.ravel() < 1))]
    if outside.size:
        raise ValueError(
            f"`levels` must lie strictly between 0 and 1, got {outside[0]:g}; 0.05 is the 5 %"
            " quantile"
        )
    return levels


@public_call(SVGP)
def sample_f(
    model: Record,
    Xs: ArrayLike,
    num_samples: int = 1,
    *,
    rng: Seed = None,
    jitter: float | None = None,
) -> Array:
    """Joint samples of the latent function.

    Parameters
    ----------
    model : SVGP
    Xs : (N, D) array
    num_samples : int
    rng : None, int or numpy.random.Generator
    jitter : float, optional
        Added to the diagonals of Kuu and of the predictive covariance.

    Returns
    -------
    (num_samples, N) or (num_samples, N, P)

    Notes
    -----
    N^3 / 3 flops an output for the factor of the predictive covariance.

    Examples
    --------
    >>> fs.sample_f(model, X, 3, rng=0).shape
    (3, 40)
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    mean, cov, jitter = _joint(model, Xs, jitter)
    return joint_samples(mean, cov, jitter, num_samples, rng)


def joint_samples(mean, cov, jitter, num_samples, rng):
    """Samples (num_samples, N) or (num_samples, N, P) of Gaussians with a mean (..., N) and a covariance (..., N, N)."""
    factor = kernels.cholesky(cov, jitter)
    noise = np.asarray(
        rng.standard_normal((*mean.shape, num_samples)).astype(mean.dtype), like=mean
    )
    samples = mean[..., None] + kernels.multiply_triangular(factor, noise)  # (..., N, S)
    samples = np.moveaxis(samples, -1, 0).swapaxes(1, -1) if mean.ndim == 2 else samples.T
    return np.ascontiguousarray(samples, like=mean)


def _marginals(
    model, Xs, jitter, chunk_size, Ys=check.ABSENT
) -> tuple[AnyRecord, np.ndarray, Marginals]:
    """The model and new targets, checked, and marginals (..., N), chunk by chunk."""
    model, Xs, Ys, dtype = check.svgp(model, Xs, Ys, NAMES)
    layer = layer_pass(model, check.jitter_amount(jitter, dtype), len(Xs))
    size = max(1, kernels.chunk_numbers(Xs) // layer.num_inducing)
    size = size if chunk_size is None else check.whole("chunk_size", chunk_size)
    parts = [layer.forward(Xs[start : start + size])[0] for start in range(0, len(Xs), size)]
    check.report_clamped(layer.clamped)
    f = Marginals(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=-1)
            for name in ("mean", "var")
        )
    )
    check.result(total(f.var), model)
    return model, Ys, f


def _joint(model, Xs, jitter):
    """Mean (..., N), covariance (..., N, N), and the jitter that was added."""
    model, Xs, _, dtype = check.svgp(model, Xs, names=NAMES)
    jitter = check.jitter_amount(jitter, dtype)
    layer = layer_pass(model, jitter)
    mean, cov = layer.joint(Xs)
    check.report_clamped(layer.clamped)
    check.result(total(cov), model)
    return mean, cov, jitter


def total(array):
    """The sum of all entries, which is finite only where they are."""
    return np.add.reduce(array, axis=None, dtype=np.float64)


def trailing(array):
    """Outputs from the leading axis of the rooms to the trailing axis of users."""
    return np.ascontiguousarray(array.T, like=array) if array.ndim == 2 else array
