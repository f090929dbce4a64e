"""Initial deep GPs, built from the data layer by layer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .. import check, kernels
from ..bounds.at_prior import at_prior
from ..covariances import RBF, Covariance
from ..inducing import kmeans, median_lengthscales, pca_mean
from ..likelihoods import Likelihood
from ..means import IdentityMean, LinearMean
from ..posteriors import LikelihoodForm, Posterior, Relaxed, Whitened
from ..posteriors.gaussian_factor import GaussianFactor
from ..posteriors.orthogonal import OrthogonalSets
from ..posteriors.pseudo_targets import PseudoData, add_noise
from ..records import is_record, leaves, replace_at, tree_map
from ..records.typed import ArrayLike, Seed
from ..runtime import devices
from ..runtime.edge import public_call
from .layer import DeepGP, Layer, check_deep

KINDS = GaussianFactor, OrthogonalSets, PseudoData
WIDEST = 30
ROWS = 20_000  # number of rows that are pushed through the mean functions
NARROW = 1e-2  # factor of a hidden layer relative to the prior's
NOISE = 0.1  # of M pseudo-observations for N data, in the last layer


@public_call(checks=False, blas_threads=False)
def deep_gp(
    X: ArrayLike,
    likelihood: Likelihood,
    num_layers: int,
    M: int | tuple[int, int],
    *,
    width: int | None = None,
    covariance: Callable[..., Covariance] = RBF,
    posterior: type[Posterior] = Whitened,
    rng: Seed = None,
) -> DeepGP:
    """Build a deep GP to start training from.

    Hidden layers begin as their mean functions with little noise: the identity, or the principal
    components of their inputs if the layer is narrower. So the model begins as one layer on the
    inputs (or on their components), and training makes it deep.

    Parameters
    ----------
    X : (N, D) array
        Inputs, standardised.
    likelihood : Likelihood
        With classes, the last layer has one output per class; else one without a leading axis.
    num_layers : int
    M : int, or (M, M2)
        Inducing inputs of each layer, by k-means, pushed through the mean functions below. Two
        numbers for the two sets of a ``WhitenedOrthogonal`` or ``Orthogonal`` posterior.
    width : int, optional
        Outputs of the hidden layers; default min(D, 30).
    covariance : type or function
        Called as ``covariance(variance=1.0, lengthscales=...)`` for each layer, with the median
        distances of the layer's inputs.
    posterior : type
        ``Whitened``, ``Marginal``, ``LikelihoodForm``, ``Relaxed``; with two sets
        ``WhitenedOrthogonal``, ``Orthogonal``.
    rng : None, int or Generator

    Returns
    -------
    DeepGP
        In the dtype of X and on its device. Training usually keeps the mean functions of hidden
        layers fixed.

    Raises
    ------
    ValueError, TypeError
        As ``inducing.kmeans``; another posterior; an object that is not a covariance or a
        likelihood.

    Notes
    -----
    Factors of hidden layers are 1e-2 of the prior's (S~ = 1e-4 in the form of a likelihood), those
    of the last layer are the prior's (S~ = 0.1 M / N). Source: Salimbeni and Deisenroth 2017;
    Cortinovis et al., S5.

    Examples
    --------
    >>> deep = fs.layers.deep_gp(X, gaussian, num_layers=2, M=6, rng=0)
    >>> len(deep.layers)
    2
    """
    num_layers, rng = check.whole("num_layers", num_layers), check.generator(rng)
    if not (isinstance(posterior, type) and issubclass(posterior, KINDS)):
        name = posterior.__name__ if isinstance(posterior, type) else type(posterior).__name__
        raise TypeError(
            "deep_gp: `posterior` must be a class with a factor or a noise that can be made small,"
            f" such as fastsvgp.Whitened, LikelihoodForm or WhitenedOrthogonal, got {name}"
        )
    if not callable(covariance):
        raise TypeError(
            "deep_gp: `covariance` must be a class such as fastsvgp.RBF, got a"
            f" {type(covariance).__name__}"
        )
    if isinstance(M, (tuple, list)) != (posterior.num_sets == 2):
        takes = "(M, M2), for two sets" if posterior.num_sets == 2 else "one number"
        raise TypeError(
            f"deep_gp: `M` must be {takes} of inducing inputs with a {posterior.__name__}"
            f" posterior, got {M!r:.100}"
        )
    inducing: Any = kmeans(X, M, rng)
    rows, layers = _some_rows(X, rng), []
    D = rows.shape[1]
    width = min(D, WIDEST) if width is None else check.whole("width", width)
    for number in range(num_layers):
        hidden = number < num_layers - 1
        own = _call(covariance, median_lengthscales(rows, rng))
        mean = _mean(rows, width, rng) if hidden else None
        q = _posterior(
            posterior,
            own,
            inducing,
            width if hidden else getattr(likelihood, "num_latent", None),
            hidden,
            len(X),  # type: ignore[arg-type]
        )
        layers.append(Layer(own, inducing, q, mean))
        if hidden:
            push = partial(_push, mean)
            rows, inducing = (
                push(rows),
                (tree_map(push, inducing) if is_record(inducing) else push(inducing)),
            )
    model = DeepGP(tuple(layers), likelihood)
    check_deep(model)
    return model


def _call(covariance, lengthscales):
    try:
        return covariance(variance=1.0, lengthscales=lengthscales)
    except TypeError as error:
        name = getattr(covariance, "__name__", type(covariance).__name__)
        raise TypeError(
            "deep_gp: `covariance` is called as covariance(variance=1.0, lengthscales=...), which"
            f" {name} does not take ({error}); give fastsvgp.RBF, fastsvgp.Matern52, or a function"
            " of these two that returns a covariance"
        ) from error


def _some_rows(X, rng):
    """Return random rows of X, checked."""
    N = len(X)
    rows = np.sort(rng.choice(N, min(N, ROWS), replace=False))
    rows = check.inputs("X", X[devices.copy_to(rows, X)])
    return rows.astype(check.common_dtype(rows), copy=False)


def _mean(X, P, rng):
    """Return a mean function of P outputs that keeps as much of X (N, D) as it can.

    For P of D or more it keeps all of X and adds zeros.
    """
    D = X.shape[1]
    if P == D:
        return IdentityMean()
    if P < D:
        return pca_mean(X, P, rng)
    return LinearMean(*(devices.copy_to(a.astype(X.dtype), X) for a in (np.eye(P, D), np.zeros(P))))


def _push(mean, X):
    return np.ascontiguousarray(mean(X).T, like=X)


def _posterior(kind, covariance, inducing, outputs, hidden, num_data):
    """Return the first posterior of a layer.

    In a hidden layer it is close to the prior mean with a small variance, in the last layer the
    prior.
    """
    if not issubclass(kind, PseudoData):
        q = at_prior(kind, covariance, inducing, outputs)
        trils = (
            [(path, value) for path, field, value in leaves(q) if field == "tril"] if hidden else []
        )
        for path, value in trils:
            q = replace_at(q, path, NARROW * value)
        return q
    M, batch = len(inducing), () if outputs is None else (outputs,)
    mean = np.zeros((*batch, M), inducing.dtype, like=inducing)
    variance = kernels.full(M, NARROW**2 if hidden else NOISE * M / num_data, inducing)
    if kind is LikelihoodForm:
        return LikelihoodForm(mean, variance)
    jitter = check.jitter_amount(None, inducing.dtype)
    return Relaxed(
        mean,
        variance,
        kernels.cholesky_of_inverse(add_noise(covariance.Kuu(inducing), variance, jitter)),
    )
