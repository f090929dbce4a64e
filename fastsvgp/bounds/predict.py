"""Predictions of an SVGP: the latent function, new targets, their log density, and joint samples.

Kuu is factorised once. Test inputs are processed in chunks, so N x N matrices exist only with
``full_cov``.
"""

from typing import Literal, Unpack, overload

import numpy as np

from .. import check
from ..likelihoods.layout import laid_out
from ..records.inducing_sets import naming_repeated
from ..records.typed import (
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
from .at_inputs import joint, joint_samples, marginals, means, trailing, with_variance
from .elbo import SVGP


@overload
def predict_f(
    model: Record,
    Xs: ArrayLike,
    *,
    full_cov: bool = False,
    var: Literal[True] = True,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfFunctions],
) -> tuple[Array, Array]: ...


@overload
def predict_f(
    model: Record,
    Xs: ArrayLike,
    *,
    full_cov: Literal[False] = False,
    var: Literal[False],
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfFunctions],
) -> Array: ...


@public_call(SVGP)
def predict_f(
    model: Record,
    Xs: ArrayLike,
    *,
    full_cov: bool = False,
    var: bool = True,
    jitter: float | None = None,
    chunk_size: int | None = None,
    **others: Unpack[OfFunctions],
) -> tuple[Array, Array] | Array:
    """Predict the mean and variance of the latent function.

    Parameters
    ----------
    model : SVGP
    Xs : (N, D) array
        Test inputs.
    full_cov : bool
        Return covariance matrices, computed without chunks.
    var : bool
        False returns the mean alone, at the cost of the covariances with the inducing inputs.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.
    chunk_size : int, optional
        Number of test inputs per chunk; a smaller one takes less memory. Default: an (M, chunk)
        array has 2^21 numbers, on a device 2^18 per multiprocessor.
    **others
        Options of other kinds of model: a ``DeepGP`` takes ``num_samples`` and ``rng``, a ``QSGP``
        ``augmented``.

    Returns
    -------
    mean : (N,) or (N, P)
    var : (N,) or (N, P); covariance (N, N) or (P, N, N) with ``full_cov``; none with ``var=False``

    Notes
    -----
    2 M^2 N flops for the first output, M^2 N for each further one, and M^3 / 3. Handbook, appendix
    II. The mean alone takes 2 M N per output, except of ``Decoupled``, and of a posterior of your
    own without ``path_weights``. On a device the results stay there; the outcome of all checks is
    copied to the host once.

    Examples
    --------
    >>> mean, var = fs.predict_f(model, X)
    >>> mean.shape, var.shape
    ((40,), (40,))
    >>> mean, cov = fs.predict_f(model, X[:5], full_cov=True)
    >>> cov.shape
    (5, 5)
    >>> fs.predict_f(model, X, var=False).shape
    (40,)
    """
    if not with_variance(full_cov, var):
        return trailing(means(model, Xs, jitter, chunk_size))
    if not full_cov:
        _, _, f = marginals(model, Xs, jitter, chunk_size)
        return trailing(f.mean), trailing(f.var)
    mean, cov, _ = joint(model, Xs, jitter)
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
    """Predict the mean and variance of new targets, noise included.

    Multi-class likelihoods give class probabilities.

    Parameters
    ----------
    model, Xs, jitter, chunk_size
        As in ``predict_f``.
    **others
        As in ``predict_f``; a ``QSGP`` also takes ``median``.

    Returns
    -------
    mean, var : (N,) or (N, P)
        For classes: probabilities p (N, C) and p (1 - p).

    Examples
    --------
    >>> mean, var = fs.predict_y(fs.optimal_svgp(sgpr, X, Y), X)
    >>> bool((var > 0.1).all())
    True
    """
    model, _, f = marginals(model, Xs, jitter, chunk_size)
    mean, var = model.likelihood.predict_mean_and_var(laid_out(model.likelihood, f))
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
    """Compute the log predictive density log E_q(f) p(y | f) of each new target.

    Its negated mean is the NLPD. On a device ``StudentT`` and ``HeteroskedasticGaussian`` also copy
    a number of every 2^15 targets to the host, from which they choose their quadrature nodes, and
    ``TwoLatents`` two of every 2^12.

    Parameters
    ----------
    model, Xs, jitter, chunk_size
        As in ``predict_f``.
    Ys : (N,) or (N, P) array
        Labels (N,) for multi-class likelihoods. (N, 1) is read as (N,) if the posterior has no
        leading axis. If a target has several columns, a last axis holds them, as in ``elbo``.
    **others
        As in ``predict_y``.

    Returns
    -------
    (N,) array
        Summed over the outputs.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X, Y)
    >>> round(float(-fs.predict_log_density(best, X, Y).mean()), 3)
    -0.163
    """
    model, Ys, f = marginals(model, Xs, jitter, chunk_size, Ys)
    return model.likelihood.predict_log_density(Ys, laid_out(model.likelihood, f))


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
    """Compute the predictive distribution function P(y <= Ys) of each new target, noise included.

    The distribution is that of the likelihood, not a normal approximation. For real targets of a
    calibrated model these values are uniform.

    Parameters
    ----------
    model : SVGP
        With a likelihood of numeric targets, such as Gaussian, Laplace, Student-t or Poisson.
    Xs : (N, D) array
    Ys : (N,) or (N, P) array
        If a target has several columns, a last axis holds them, as in ``elbo``.
    jitter, chunk_size
        As in ``predict_f``.
    **others
        Options of a ``DeepGP``: ``num_samples`` and ``rng``.

    Returns
    -------
    (N,) or (N, P)
        One value per output. Errors about 1e-11.

    Raises
    ------
    TypeError
        The targets are classes.

    Notes
    -----
    Closed forms for Gaussian and Laplace noise; some 60 nodes per target for Student-t (its scale
    mixture of normals), ``HeteroskedasticGaussian`` and Poisson (23 or 112, over the rate or over a
    gamma variable); some 500 for ``TwoLatents``, with errors about 2e-6. On a device the numbers
    that determine the nodes are copied to the host, a few per chunk of the data.

    Examples
    --------
    >>> fs.predict_cdf(fs.optimal_svgp(sgpr, X, Y), X[:1], Y[:1] + 10.0)
    array([1.])
    """
    model, Ys, f = marginals(model, Xs, jitter, chunk_size, Ys)
    return trailing(model.likelihood.predict_cdf(Ys, laid_out(model.likelihood, f)))


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
    """Compute predictive quantiles of new targets, noise included.

    The distribution is that of the likelihood, not a normal approximation.
    ``low, high = predict_quantiles(model, Xs, (0.05, 0.95))`` is a 90 % prediction interval.

    Parameters
    ----------
    model : SVGP
        With a likelihood of numeric targets, such as Gaussian, Laplace, Student-t or Poisson.
    Xs : (N, D) array
    levels : number or sequence of K numbers
        Probabilities strictly between 0 and 1, on the host.
    jitter, chunk_size
        As in ``predict_f``.
    **others
        Options of a ``DeepGP``: ``num_samples`` and ``rng``.

    Returns
    -------
    (N,) or (N, P), with a leading axis of K if ``levels`` is a sequence
        For counts: the smallest count whose distribution function reaches the level.

    Raises
    ------
    TypeError
        The targets are classes.

    Notes
    -----
    The distribution function at a quantile equals the level to about 1e-12. Four to eight
    evaluations of ``predict_cdf`` per level; none for Gaussian noise. On a device each evaluation
    copies a few numbers to the host.

    Examples
    --------
    >>> fs.predict_quantiles(model, X[:2], (0.05, 0.5, 0.95)).shape
    (3, 2)
    """
    levels = levels_of(levels)
    model, _, f = marginals(model, Xs, jitter, chunk_size)
    f = laid_out(model.likelihood, f)
    q = model.likelihood.predict_quantiles(levels.ravel().tolist(), f)
    q = np.ascontiguousarray(q.swapaxes(1, -1), like=q) if q.ndim == 3 else q
    return q if levels.ndim else q[0]


def levels_of(levels) -> np.ndarray:
    """Convert the levels to an array of floats and check them."""
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
    """Draw joint samples of the latent function.

    ``sample_paths`` draws functions: values at any inputs, linear in their number, and gradients.

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
    N^3 / 3 flops per output for the factor of the predictive covariance.

    Examples
    --------
    >>> fs.sample_f(model, X, 3, rng=0).shape
    (3, 40)
    """
    num_samples, rng = check.whole("num_samples", num_samples), check.generator(rng)
    mean, cov, jitter = joint(model, Xs, jitter)
    with naming_repeated(check.as_array("Xs", Xs), "Xs"):
        return joint_samples(mean, cov, jitter, num_samples, rng)
