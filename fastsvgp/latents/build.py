"""Initial models with several latent functions, from the data."""

from collections.abc import Callable

import numpy as np

from .. import check
from ..bounds.at_prior import at_prior
from ..check import weights as weighing
from ..covariances import RBF, Covariance
from ..inducing import kmeans, median_lengthscales, principal_components
from ..layers.layer import Layer
from ..likelihoods import Gaussian, Likelihood
from ..means import ConstantMean
from ..posteriors import Posterior, Whitened
from ..records.typed import ArrayLike, Seed
from ..runtime import devices
from ..runtime.deferred_checks import on_device
from ..runtime.edge import public_call
from ..runtime.thresholds import MOST_LATENTS
from .model import MultiGP, check_multi_gp

NOISE = 0.1  # share of the variance of a column that is noise at the start
SHORTEST = 0.25  # lengthscales of the layers are from the median distance down to this part of it
EXTRA = 0.1  # size of random columns of the mixing beyond the principal directions


@public_call(checks=False, blas_threads=False)
def multi_gp(
    X: ArrayLike,
    Y: ArrayLike,
    num_latents: "int | str",
    M: int = 100,
    *,
    likelihood: Likelihood | None = None,
    covariance: Callable[..., Covariance] = RBF,
    posterior: type[Posterior] = Whitened,
    weights: ArrayLike | None = None,
    rng: Seed = None,
) -> MultiGP:
    """Build a model of several outputs to start training from.

    The mixing starts at the first principal directions of the columns of Y, times their standard
    deviations, and the lengthscales of the layers differ: equal columns of a mixing over equal
    latent functions are a saddle point that no gradient leaves.

    Parameters
    ----------
    X : (N, D) array
        Inputs, standardised.
    Y : (N, P) or (N,) array
        Targets.
    num_latents : int or "separate"
        Number of latent functions that a mixing (P, num_latents) combines; "separate" gives every
        output functions of its own and no mixing. Of a likelihood of several functions per output
        the first are mixed, and the others are separate.
    M : int
        Inducing inputs, by k-means; all layers share them. At most the number of rows. They are
        rows of X if the covariance has columns of codes.
    likelihood : Likelihood, optional
        Default: Gaussian noise of a tenth of the mean variance of the columns.
    covariance : type or function
        Called as ``covariance(variance=1.0, lengthscales=...)`` for each layer.
    posterior : type
        Any that ``at_prior`` makes for one set of inducing inputs.
    weights : (N,) or (N, P) array, optional
        As in ``elbo``. Targets of weight 0 are not read, so NaN there marks a missing output.
    rng : None, int or Generator

    Returns
    -------
    MultiGP
        In the dtype of X and on its device, every posterior at its prior. Its mean is the column
        means; of a further function of each output the log of a tenth of the column's variance.

    Raises
    ------
    ValueError, TypeError
        As ``inducing.kmeans``, and what ``elbo`` refuses in the data.

    Examples
    --------
    >>> multi = fs.layers.multi_gp(X, np.stack([Y, -Y, Y**2], axis=1), num_latents=2, M=6, rng=0)
    >>> multi.mixing.shape, len(multi.latents), multi.mean.value.shape
    ((3, 2), 2, (3,))
    """
    Y = _first_column(Y, likelihood)
    rng, X = check.generator(rng), check.inputs("X", X)
    _check_parts(likelihood, covariance, posterior)
    dtype, targets = check.common_dtype(X, names=("X",)), _columns(Y, X, weights)
    if likelihood is not None and check.num_columns(likelihood) == 1:
        seen = targets[~np.isnan(targets)]
        likelihood.check_targets(np.where(np.isnan(targets), seen[0], targets), "Y")
    of_counts = getattr(likelihood, "counts", False)
    latent = np.log(targets + 0.5) if of_counts else targets
    means, deviations = np.nanmean(latent, axis=0), np.nanstd(latent, axis=0)
    deviations = np.where(deviations > 0, deviations, 1.0)
    if likelihood is None:
        likelihood = Gaussian(float(NOISE * np.mean(deviations**2)))
    K, P = likelihood.latents_per_output, targets.shape[1]
    classes = likelihood.num_latent
    count = _count(num_latents, classes, P)
    W = None if count is None else mixing_directions(latent - means, deviations, count, rng)
    with_codes = _call(covariance, np.ones(X.shape[1]))  # their columns are known without data
    M = min(check.whole("M", M), len(X))
    Z = kmeans(X, M, rng, covariance=with_codes)
    lengthscales = median_lengthscales(X, rng)
    factors = np.ones(classes or P) if count is None else lengthscale_factors(count)
    factors = [*factors, *[1.0] * ((K - 1) * P)]
    latents = []
    for factor in factors:
        own = _call(covariance, float(factor) * lengthscales)
        latents.append(Layer(own, None, at_prior(posterior, own, Z)))
    mixing = None if W is None else W if K == 1 else (W, *[np.eye(P)] * (K - 1))
    values = None
    if classes is None:
        more = np.log(NOISE * np.square(deviations))
        values = np.concatenate([means, *[more] * (K - 1)])
    model = MultiGP(
        tuple(latents),
        likelihood,
        _like(mixing, X, dtype),
        None if values is None else ConstantMean(_like(np.squeeze(values)[()], X, dtype)),
        Z,
    )
    check_multi_gp(model)
    return model


def _check_parts(likelihood, covariance, posterior):
    if likelihood is not None:
        check.parts(MultiGP((), likelihood), ("likelihood",))
        check.parameters(likelihood, prefix="likelihood.")
        likelihood.check_settings()
    if not callable(covariance):
        raise TypeError(
            "multi_gp: `covariance` must be a class such as fastsvgp.RBF, or a function, got"
            f" {type(covariance).__name__}"
        )
    if not (isinstance(posterior, type) and getattr(posterior, "starts_at_prior", False)):
        name = posterior.__name__ if isinstance(posterior, type) else type(posterior).__name__
        raise TypeError(
            "multi_gp: `posterior` must be a class that at_prior makes, such as"
            f" fastsvgp.Whitened, got {name}"
        )
    if posterior.num_sets > 1:
        raise TypeError(
            f"multi_gp: a {posterior.__name__} posterior takes {posterior.num_sets} sets of"
            " inducing inputs, and multi_gp makes one; make the MultiGP by hand"
        )


def _call(covariance, lengthscales):
    try:
        return covariance(variance=1.0, lengthscales=lengthscales)
    except TypeError as error:
        raise TypeError(
            "multi_gp: `covariance` is called with `variance` and `lengthscales`; give a function"
            f" that takes these two: {error}"
        ) from error


def _columns(Y, X, weights):
    """Return the targets (N, P) on the host, NaN where their weight is 0."""
    Y = check.as_array("Y", Y)
    if Y.ndim not in (1, 2) or 0 in Y.shape:
        raise ValueError(f"`Y` must have shape (N,) or (N, P), got {Y.shape}")
    if len(Y) != len(X):
        raise ValueError(
            f"`X` and `Y` must have the same number of rows, got {len(X)} and {len(Y)}"
        )
    if weights is None:
        check.finite("Y", Y)
    else:
        weights = weighing.shape_weights(weights, Y)
        weighing.check_values(weights)
        weights = _host(weights)
    Y = _host(Y).astype(np.float64).reshape(len(X), -1)
    if weights is not None:
        Y = np.where(weights.reshape(len(X), -1) > 0, Y, np.nan)
        if bad := [p for p in range(Y.shape[1]) if np.isnan(Y[:, p]).all()]:
            raise ValueError(
                f"`weights` leave no target in column {bad[0]} of `Y`: drop that output"
            )
    return Y


def _first_column(Y, likelihood):
    """Return the targets to start from: the first column, if a target has several."""
    if check.num_columns(likelihood) == 1:
        return Y
    Y = check.as_array("Y", Y)
    check.all_columns("Y", Y, likelihood)
    return Y[..., 0]


def _host(array):
    return array.get() if on_device(array) else np.asarray(array)


def _count(num_latents, classes, P):
    """Return the number of mixed functions; None for separate ones."""
    if isinstance(num_latents, str):
        if num_latents != "separate":
            raise ValueError(
                f'multi_gp: `num_latents` must be a number or "separate", got {num_latents!r:.80}'
            )
        return None
    count = check.whole("num_latents", num_latents)
    if count > MOST_LATENTS:
        raise ValueError(f"multi_gp: `num_latents` must be at most {MOST_LATENTS}, got {count}")
    if classes is not None:
        raise ValueError(
            'multi_gp: the functions of classes cannot be mixed: give `num_latents` as "separate"'
        )
    return count


def lengthscale_factors(count):
    """Return different factors on the lengthscales of functions that a mixing combines."""
    return np.geomspace(1.0, SHORTEST, count) if count > 1 else np.ones(1)


def mixing_directions(centred, deviations, count, rng):
    """Return principal directions (P, count) of the columns times their standard deviations.

    Missing targets count as the mean of their column. Columns beyond P are random and small.
    """
    directions, sizes = principal_components.principal_directions(np.nan_to_num(centred), count)
    W, kept = directions.T * sizes, len(sizes)
    scale = float(np.sqrt(np.mean(np.square(deviations))))
    floor = np.sqrt(np.square(W).sum(axis=0)) < EXTRA * scale  # of rank below ``count``
    more = EXTRA * scale * rng.standard_normal((len(deviations), count))
    more[:, :kept][:, ~floor] = W[:, ~floor]
    return more


def _like(values, X, dtype):
    """Move numbers of the host to the dtype and the device of X."""
    if values is None:
        return None
    if isinstance(values, tuple):
        return tuple(_like(value, X, dtype) for value in values)
    return devices.copy_to(np.asarray(values, dtype), X)[()]
