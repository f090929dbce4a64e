"""Draw the functions of a layer: weights of its prior features, and of its inducing variables.

With w ~ N(0, I), Phi(x) w is a function of the prior. Its inducing variables, with their jitter,
are u0 = Phi(Z) w + sqrt(jitter) e, e ~ N(0, I); ``path_weights`` of the posterior turns them into
the weights v of f(x) = Phi(x) w + k(x, Z) v. ``DecoupledWeights`` has M2 weights w_O for the mean
of the residuals of f(O), v_O = f(O) - K_ou (Kuu + jitter I)^-1 u, whose part of the mean of f is

    (K_xo - K_xu (Kuu + jitter I)^-1 K_uo) w_O:

a term k(x, O) w_O that all functions share, and a change of v. No matrix of M2 x M2 is formed.
"""

import numpy as np

from .. import check, kernels
from ..covariances import Covariance
from ..covariances.features.points import runs
from ..posteriors import DecoupledWeights, Whitened
from ..posteriors.base import PriorFactor, solve_vectors
from ..records.inducing_sets import naming_repeated, sets_of, stack_sets
from ..runtime.devices import copy_to, device_array
from ..sites.vgp import DataSites
from .layer_paths import KernelTerm, LayerPaths

FREQUENCIES = "own", "shared"
MOST_FEATURES = 10**9
SEEDS = 2**63  # of frequencies: each is smaller


class Draws:
    """Settings and random numbers of one call of ``sample_paths``, checked.

    Numbers are drawn in float64 on the host, so a seed gives the same functions in each dtype and
    on each device. ``begin`` names the dtype and the device, and checks ``jitter``.
    """

    def __init__(self, num_paths, num_features, frequencies, rng, jitter):
        self.count = check.whole("num_paths", num_paths)
        self.num_features = check.whole("num_features", num_features, 2)
        if self.num_features > MOST_FEATURES:
            raise ValueError(
                f"`num_features` must be at most {MOST_FEATURES}, got {self.num_features}; 1024 are"
                " the default"
            )
        if self.num_features % 2:
            raise ValueError(
                "`num_features` must be even, a cosine and a sine per frequency, got"
                f" {self.num_features}"
            )
        if not isinstance(frequencies, str) or frequencies not in FREQUENCIES:
            raise ValueError(
                '`frequencies` must be "own", those of each function, or "shared", the same for'
                f" all, got {frequencies!r:.60}"
            )
        self._shared, self._rng = frequencies == "shared", check.generator(rng)
        self.jitter = jitter

    def begin(self, model, dtype):
        """Draw numbers of this dtype from now on, on the device of the model; return ``self``."""
        self._dtype, self._device_like = dtype, device_array(model)
        self.jitter = check.jitter_amount(self.jitter, dtype)
        return self

    def normal(self, *shape):
        """Draw standard normal numbers."""
        return copy_to(self._rng.standard_normal(shape).astype(self._dtype), self._device_like)

    def seeds(self):
        """Draw the seed of all frequencies, or that of each function (S,)."""
        if self._shared:
            return int(self._rng.integers(0, SEEDS))
        return self._rng.integers(0, SEEDS, self.count, dtype=np.uint64)


def draw_layer(layer, draws, outputs, columns=None):
    """Return the ``LayerPaths`` of a checked layer, or model, with these axes of outputs.

    columns : of its inputs, if they do not follow from the inducing inputs
    """
    covariance, Z, P = layer.covariance, layer.inducing, outputs[0] if outputs else 1
    weigh = OWN.get(type(layer.posterior), joint_weights)
    seeds, D = draws.seeds(), covariance.num_columns(Z) if columns is None else columns
    features = covariance.features(draws.num_features, seeds, D)
    w = draws.normal(draws.count, P, features.size)
    with naming_repeated(Z):
        terms = weigh(layer, draws, features, w)
    seeds = seeds if isinstance(seeds, int) else tuple(seeds.tolist())
    settings = {"num_features": draws.num_features, "seeds": seeds, "outputs": outputs}
    return LayerPaths(covariance, terms, w, layer.mean, **settings)


def joint_weights(layer, draws, features, w):
    """Return the term of all inducing variables."""
    prior = PriorFactor(layer.covariance.Kuu(layer.inducing), draws.jitter)
    values = prior_values(layer.covariance, features, layer.inducing, w, draws)
    v = layer.posterior.path_weights(prior, values, draws.normal)
    return (KernelTerm(layer.inducing, functions_first(v)),)


def decoupled_weights(layer, draws, features, w):
    """Return the term of Z, and that of O, which all functions share."""
    (Z, O), covariance, q = sets_of(layer.inducing), layer.covariance, layer.posterior  # noqa: E741
    prior = PriorFactor(covariance.Kuu(Z), draws.jitter)
    of_u, w_O = Whitened(q.mean_u, q.scale_tril_u), q.weights_v.reshape(-1, len(O))
    v = of_u.path_weights(prior, prior_values(covariance, features, Z, w, draws), draws.normal)
    shift = np.zeros((len(w_O), len(Z)), w_O.dtype, like=w_O)
    for _, rows in runs(O, len(Z)):
        shift += kernels.matmul(w_O[:, rows], covariance.Kuu(O[rows], Z))
    shift = solve_vectors(prior.L, solve_vectors(prior.L, shift), transpose=True)
    v -= shift[..., None]
    return KernelTerm(Z, functions_first(v)), KernelTerm(O, w_O[None].copy())


def site_weights(layer, draws, features, w):
    """Return the term of all data; ``layer.posterior`` are the ``DataSites`` of a ``VGP``."""
    u0 = features.multiply(layer.inducing, w)
    v = layer.posterior.path_weights(outputs_first(u0), draws.normal)
    return (KernelTerm(layer.inducing, functions_first(v), at_data=True),)


OWN = {DecoupledWeights: decoupled_weights, DataSites: site_weights}


def prior_values(covariance, features, inducing, w, draws):
    """Return u0 (P, M, S) of functions with the weights w (S, P, size), with their jitter.

    A covariance with inducing variables of its own has features that know them.
    """
    if type(covariance).Kuu is Covariance.Kuu:
        u0 = features.multiply(stack_sets(inducing), w)
    elif hasattr(features, "multiply_inducing"):
        u0 = features.multiply_inducing(inducing, w)
    else:
        raise TypeError(
            f"sample_paths: the features of {type(covariance).__name__} lack `multiply_inducing`,"
            " for its own inducing variables: draw joint values with sample_f"
        )
    if draws.jitter:
        u0 += draws.jitter**0.5 * draws.normal(*u0.shape)
    return outputs_first(u0)


def outputs_first(values):
    """Return values (S, P, M) as (P, M, S)."""
    return np.ascontiguousarray(values.transpose(1, 2, 0), like=values)


def functions_first(v):
    """Return weights (P, M, S) as (S, P, M)."""
    return np.ascontiguousarray(v.transpose(2, 0, 1), like=v)
