"""Functions drawn from the posterior of a model: ``sample_paths``, for each kind of model."""

from collections.abc import Callable
from typing import Unpack

import numpy as np

from .. import check, models
from ..bounds.at_inputs import total
from ..bounds.protocol import kind_of
from ..bounds.svgp import SVGP
from ..hilbert.model import BasisSVGP
from ..latents.model import (
    MultiGP,
    axes_of,
    check_functions,
    check_multi_gp,
    layers_of,
    naming_latent,
)
from ..latents.parallel_layers import ParallelLayers
from ..layers.convolutional import ConvolutionalLayer
from ..layers.layer import DeepGP, Layer, check_deep, naming_layer
from ..posteriors.base import gaussian_draws
from ..records.typed import OfPaths, Record, Seed
from ..runtime.edge import public_call
from .composed_paths import ChainedPaths, MixedPaths, PatchPaths
from .draws import Draws, draw_layer
from .record import Paths
from .sine_paths import SinePaths


@public_call(SVGP)
def sample_paths(
    model: Record,
    num_paths: int = 1,
    *,
    num_features: int = 1024,
    frequencies: str = "own",
    rng: Seed = None,
    jitter: float | None = None,
    **others: Unpack[OfPaths],
) -> Paths:
    """Draw functions from the posterior of the latent function.

    ``sample_f`` draws values at given inputs. These are functions: they can be evaluated anywhere,
    again and again, and have gradients, at a cost linear in the points.

    Parameters
    ----------
    model : SVGP
        With a covariance that has random features: see ``Covariance.features``.
    num_paths : int
        S, the number of functions.
    num_features : int
        Random features of the prior, a cosine and a sine per frequency: even. A covariance that
        needs fewer has its own number.
    frequencies : {"own", "shared"}
        "own": each function has its own. Means and covariances over functions are then those of
        the posterior, for any number of features; those of a ``DeepGP`` only in the limit of many,
        because a layer above depends on more than two moments. "shared": one set for all
        functions, which is faster at shared points. Given the frequencies, covariances are off by
        an error that shrinks as one over the root of the number of features.
    rng : None, int or numpy.random.Generator
        A seed gives the same functions again.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.
    **others
        Options of other kinds of model: a ``SiteSVGP`` and a ``VGP`` take ``site_inputs``, the
        inputs of their sites.

    Returns
    -------
    Paths

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``. ``TypeError`` also if the covariance has no random features.

    Notes
    -----
    Per output, with m features: M^3 / 3 flops and 3 M^2 S for ``Whitened``; 2 m M S for the prior
    at the inducing inputs. A ``LikelihoodForm``, ``Relaxed`` or ``InverseFreeWhitened`` posterior
    does not factorise Kuu. Source: Wilson et al. 2020 and 2021; docs/pathwise.md has the formulas.

    Examples
    --------
    >>> paths = fs.sample_paths(model, 3, rng=0)
    >>> values, slopes = paths.and_grad(np.zeros((3, 1, 1)))
    >>> values.shape, slopes.shape
    ((3, 1), (3, 1, 1))
    """
    draws = Draws(num_paths, num_features, frequencies, rng, jitter)
    return check_paths(*FUNCTIONS[type(model)](model, draws, **others))


def check_paths(functions, model):
    """Return checked ``Paths``."""
    check.result(sum(total(value) for value in functions.weight_arrays()), model)
    return Paths(functions)


def outputs_of(layer):
    """Return the axes of the outputs of a layer with one posterior, () or (P,)."""
    return layer.posterior.check_size(*layer.covariance.num_inducing(layer.inducing))


def functions_of_svgp(model, draws):
    """Return the functions, and the checked model."""
    model, _, _, dtype = check.svgp(model)
    return draw_layer(model, draws.begin(model, dtype), outputs_of(model)), model


def functions_of_multi(model, draws):
    """Draw as for an SVGP: the latent functions are drawn, and then mixed."""
    model, _, _, dtype = check_multi_gp(model)
    return _mix(model, draws.begin(model, dtype)), model


def functions_of_deep(model, draws):
    """Draw as for an SVGP: a function of each layer, at the values of those below."""
    model, _, _, dtype = check_deep(model)
    draws.begin(model, dtype)
    layers = []
    for number, layer in enumerate(model.layers):
        with naming_layer(number):
            layers.append(_layer(layer, draws))
    return ChainedPaths(tuple(layers)), model


def _layer(layer, draws):
    """Return the functions of a layer of a deep GP."""
    if isinstance(layer, ParallelLayers):
        return _mix(layer, draws)
    if not isinstance(layer, Layer | ConvolutionalLayer):
        raise TypeError(
            f"sample_paths: a {type(layer).__name__} has no paths: draw joint values with sample_f"
        )
    functions = draw_layer(layer, draws, outputs_of(layer))
    if isinstance(layer, Layer):
        return functions
    names = "image_shape", "patch_shape", "stride"
    return PatchPaths(functions, **{name: getattr(layer, name) for name in names})


def _mix(model, draws):
    """Return the functions of a ``MultiGP`` or of ``ParallelLayers``."""
    _, J = check_functions(model)
    latents = []
    for number, layer in enumerate(layers_of(model)):
        with naming_latent(number):
            latents.append(draw_layer(layer, draws, outputs_of(layer)))
    return MixedPaths(tuple(latents), model.mixing, model.mean, outputs=axes_of(model, J))


def functions_of_basis(model, draws):
    """Draw as for an SVGP: the weights of the basis, which need no random features."""
    model, *_, dtype = kind_of(model).checked(model)
    draws.begin(model, dtype)
    q = model.posterior
    v = gaussian_draws(q.mean, q.scale_tril, draws.count, draws.normal)
    log_density = model.covariance.log_spectral_density(model.basis.squared_frequencies())
    weights = np.moveaxis(v, -1, 0) * np.exp(log_density / 2)
    weights = np.ascontiguousarray(weights.astype(dtype))
    return SinePaths(model.basis, weights, model.mean, outputs=q.mean.shape[:-1]), model


# for each kind of model, from the model, ``Draws`` and options
FUNCTIONS: dict[type, Callable[..., tuple]] = {
    SVGP: functions_of_svgp,
    MultiGP: functions_of_multi,
    DeepGP: functions_of_deep,
    BasisSVGP: functions_of_basis,
}
for kind in (MultiGP, DeepGP, BasisSVGP):
    models.share(kind, SVGP, "sample_paths")
