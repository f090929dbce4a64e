"""Doubly stochastic evidence lower bound of a deep GP, and its predictions: those of a ``Chain``.

    sum over data and S draws of E_q(f) log p(y | f) / S, at the last layer's marginals given the
    draws of those below, minus sum over layers of KL[q(u) || p(u)]

For given draws it is an ordinary function of the parameters, and the gradient is exact for the
value. Over draws it is an unbiased estimate of the bound of Salimbeni and Deisenroth (2017), eq.
(17).

Predictions are mixtures of S Gaussians with equal weights: given the draws of the hidden layers,
the last layer is Gaussian at each row. Their draws are quasi-random points of N(0, I) over the
outputs of all hidden layers, the same for every row, so a row's prediction depends on that row
alone.

A bound takes 2 M^2 S B flops per output and layer, the first layer B rows in place of S B; with a
gradient three times as many. Layers below all fields of ``wrt`` only run forward.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import check, models
from ..bounds import objectives, predict, predictor  # noqa: F401, what they register is shared
from ..bounds.protocol import KINDS, ModelKind, Turn
from ..bounds.svgp import SVGP
from ..records import replace
from .chain_pass import Chain
from .draws import hidden_draws, hidden_points
from .layer import DeepGP, check_deep, check_parts

NOT_OF_LAST = (
    "the last layer of this DeepGP is ParallelLayers, which take no natural steps here; use a"
    " Layer, or train it with a first-order optimiser (fastsvgp.adam)"
)


@dataclass(frozen=True)
class DrawOptions:
    """Options of a bound of a ``DeepGP``.

    Parameters
    ----------
    draws : tuple of arrays (S, B, P)
        Standard normal numbers for each hidden layer. Default: new ones. With a group whose
        ``rows`` are "all" they are those of all B rows, and each rank takes its own.
    num_samples : int
        S, draws per row. For even S the second half is the negative of the first.
    """

    draws: Sequence[Any] | None = None
    num_samples: int = 2


@dataclass(frozen=True)
class PointOptions:
    """Options of predictions of a ``DeepGP``.

    Parameters
    ----------
    num_samples : int
        S, a power of two: number of quasi-random points, common to all rows.
    rng : int, numpy.random.Generator or None
        Seed of the points; None is one fixed set of points.
    """

    num_samples: int = 32
    rng: Any = None


class OfDeepGP(ModelKind):
    """The bound of a ``DeepGP``."""

    checked = staticmethod(check_deep)

    def quantities(self, model, X, dtype, rng, options, partition=None):
        if X is None:
            return {}
        given = DrawOptions(**options)
        draws = hidden_draws(model, X, given.draws, given.num_samples, rng, partition)
        return {"draws": draws}

    def points(self, model, X, options):
        given = PointOptions(**options)
        return {"draws": hidden_points(model, X, given.num_samples, given.rng)}

    def check_joint(self):
        raise ValueError(
            "predict_f: the outputs of a deep GP at several inputs are not jointly Gaussian: leave"
            " `full_cov` out; sample_f(model, Xs) draws whole functions"
        )

    def begin(self, model, jitter, columns=0, need=(), draws=()):
        return Chain(model, jitter, columns, need, draws)

    def gradient(self, model, bars, likelihood_bar):
        return DeepGP(bars, likelihood_bar)

    def check_natural(self, function, model):
        check_parts(model)
        if not hasattr(model.layers[-1], "posterior"):
            raise TypeError(f"{function}: {NOT_OF_LAST}")
        check.natural(function, model.layers[-1].posterior)

    def turns(self, call, shares=False):
        """Yield a step of the last layer, which is an SVGP on the draws of the layers below.

        So a step of 1 on all data with Gaussian noise reaches its optimum given them.
        """
        model = call.model
        *below, last = model.layers

        def place(posterior):
            return replace(model, layers=(*below, replace(last, posterior=posterior)))

        yield Turn(call.begin(self, ("natural_step",)), place)


KINDS[DeepGP] = OfDeepGP()
models.share(DeepGP, SVGP, "elbo", "elbo_and_grad", "data_term_and_grad", options=DrawOptions)
models.share(DeepGP, SVGP, "kl_term_and_grad", options=models.NoOptions)
models.share(DeepGP, SVGP, "predictor", "sample_f")
models.share(
    DeepGP,
    SVGP,
    "predict_f",
    "predict_y",
    "predict_log_density",
    "predict_cdf",
    "predict_quantiles",
    options=PointOptions,
)
models.register(
    DeepGP, instead="fs.fit trains it, on old and new rows together, and fs.predict_y predicts"
)
