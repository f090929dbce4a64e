"""Predictions: the latent function, new targets, their log density, and joint samples.

Kuu is factorised once. Test inputs are processed in chunks, so N x N matrices exist only with
``full_cov``.
"""

from typing import Literal, Unpack, overload

import numpy as np

from .. import check
from ..errors import NotPositiveDefinite
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
from .at_inputs import AtInputs, has_variance, join, total, trailing
from .layer_pass import MEANS
from .protocol import kind_of
from .svgp import SVGP


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
    Xs : (N, D) array, or GaussianInputs
        Test inputs. At uncertain ones the moments are those over the inputs too.
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
        Options of other kinds of model: a ``DeepGP`` takes ``num_samples``, a power of two, and
        ``rng`` (of the quasi-random draws of its hidden layers, over which it averages), a
        ``MultiGP`` ``full_output_cov``, a ``QSGP`` ``augmented``.

    Returns
    -------
    mean : (N,) or (N, P)
    var : (N,) or (N, P); covariance (N, N) or (P, N, N) with ``full_cov``; none with ``var=False``
        With ``full_output_cov`` covariances (N, J, J) over the functions at each row.

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
    if check.flag("full_cov", full_cov):
        kind_of(model).check_joint()
    across = check.flag("full_output_cov", others.pop("full_output_cov", False))
    name = "full_output_cov" if across else "full_cov"
    if not has_variance(across or full_cov, var, name):
        at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size, need=(MEANS,), **others)
        return trailing(at.means())
    if across:
        return _joint_outputs(model, Xs, full_cov, jitter, chunk_size)
    if full_cov:
        at = AtInputs(model, Xs, jitter=jitter, joint=True)
        mean, cov = at.layer.joint(at.X)
        at.check_results(total(cov))
        return trailing(mean), cov
    at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size, **others)
    return at.gather(lambda f, _: at.mixture.moments(f.mean, f.var))


def _joint_outputs(model, Xs, full_cov, jitter, chunk_size):
    """Return means (N, J), and covariances (N, J, J) over the functions at each row."""
    if full_cov:
        raise ValueError(
            "predict_f: `full_cov` and `full_output_cov` together are a covariance of J N numbers;"
            " give one of them, or draw with sample_f"
        )
    at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size)
    means, covs = zip(*(at.layer.joint_outputs(at.X[rows]) for rows in at.slices), strict=True)
    cov = np.concatenate(covs)
    at.check_results(total(cov))
    return trailing(join(means)), cov


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

    Multi-class likelihoods give class probabilities. For intervals, and for targets that are not
    normally distributed, see ``predict_quantiles``.

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
    at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size, **others)
    return at.gather(lambda f, _: at.mixture.targets(f))


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
    at = AtInputs(model, Xs, Ys, jitter=jitter, chunk_size=chunk_size, **others)
    return at.gather(lambda f, y: (at.mixture.log_density(y, f),))[0]


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
    at = AtInputs(model, Xs, Ys, jitter=jitter, chunk_size=chunk_size, **others)
    return at.gather(lambda f, y: (at.mixture.cdf(y, f),))[0]


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
    at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size, **others)
    wanted = levels.ravel().tolist() or [0.5]  # no levels: the shapes of one
    found = at.gather(lambda f, _: at.mixture.quantiles(wanted, f))
    return np.stack(found)[: levels.size] if levels.ndim else found[0]


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
    at = AtInputs(model, Xs, jitter=jitter, joint=True)
    try:
        samples = at.layer.sample(at.X, num_samples, at.jitter, rng, "Xs")
    except NotPositiveDefinite:
        check.finite_fields(at.model)  # the cause, if one is not
        raise
    at.check_results(total(samples))
    return samples
