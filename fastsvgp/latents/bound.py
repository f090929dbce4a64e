"""The bound and the predictions of a ``MultiGP``: those of an SVGP, through a ``LatentPass``.

    sum over data of E_q(f) log p(y | f) - sum over layers of KL[q(u) || p(u)]

For a likelihood that reads one function per output this is the bound for any mixing: the
expectation of each datum involves one function, whose marginal is exact. A likelihood of several
functions takes them to be independent, so each has latents of its own (``model.check_multi_gp``).
"""

from dataclasses import dataclass

import numpy as np

from .. import check, models
from ..bounds import objectives, predict, predict_vjp, predictor  # noqa: F401, what they register is shared
from ..bounds.protocol import KINDS, Functions, ModelKind
from ..bounds.svgp import SVGP
from ..uncertain import input_covariance  # noqa: F401, as above
from .latent_pass import LatentPass
from .mixing import Mixing
from .model import MultiGP, axes_of, check_multi_gp, counts_of, layers_of, naming_latent
from .turns import turns


class OfMultiGP(ModelKind):
    """The bound of a ``MultiGP``."""

    checked = staticmethod(check_multi_gp)
    turns = staticmethod(turns)

    def quantities(self, model, X, dtype, rng, options, partition=None):
        """Return, for each layer, those of the names that it has; ``TypeError`` if none has one.

        ``each`` of an earlier call is returned as it is.
        """
        if "each" in options:
            return options
        options = {name: value for name, value in options.items() if value is not None}
        layers, each = layers_of(model), []
        for layer in layers:
            own = {n: v for n, v in options.items() if n in layer.posterior.random_quantities}
            each.append(check.draw(own, layer, dtype, rng))
        for name in options:
            if not any(name in of_layer for of_layer in each):
                check.random_names((name,), layers[0].posterior)
        return {"each": each} if options else {}

    def begin(self, model, jitter, columns=0, need=(), **quantities):
        return LatentPass(model, jitter, columns, need, **quantities)

    def gradient(self, model, bars, likelihood_bar):
        if bars is None:
            return MultiGP(None, likelihood_bar)
        return MultiGP(bars.latents, likelihood_bar, bars.mixing, bars.mean, bars.inducing)

    def functions(self, model):
        counts = counts_of(model)
        mixing = None
        if model.mixing is not None:
            mixing = Mixing(model.mixing).mix_values(np.eye(sum(counts)))
        axes = axes_of(model, sum(counts) if mixing is None else len(mixing))
        return Functions(layers_of(model), mixing, model.mean, axes)

    def check_natural(self, function, model):
        model.check_parts()
        for number, layer in enumerate(model.latents):
            with naming_latent(number):
                check.natural(function, layer.posterior)


@dataclass(frozen=True)
class FunctionOptions:
    """Option of ``predict_f`` for a ``MultiGP``.

    Parameters
    ----------
    full_output_cov : bool
        Return the covariances (N, J, J) over the functions at each row.
    """

    full_output_cov: bool = False


KINDS[MultiGP] = OfMultiGP()
models.share(
    MultiGP,
    SVGP,
    "elbo",
    "elbo_and_grad",
    "data_term_and_grad",
    "kl_term_and_grad",
    "predict_y",
    "predict_log_density",
    "predict_cdf",
    "predict_quantiles",
    "predict_f_and_vjp",
    "predictor",
    "sample_f",
    "input_covariance",
)
models.share(MultiGP, SVGP, "predict_f", options=FunctionOptions)
