"""The bound and predictions from covariance blocks, for user-defined covariances in any form."""

from typing import Any, Unpack

import numpy as np

from .. import check, models
from ..check import weights as weighing
from ..covariances.base import Covariance
from ..likelihoods.base import LikelihoodT
from ..likelihoods.layout import laid_out, stack_latents
from ..posteriors import Posterior
from ..posteriors.base import PosteriorT
from ..records import Blocks, private_record
from ..records.typed import Array, ArrayLike, Random, Seed
from ..runtime import deferred_checks
from ..runtime.edge import public_call
from .at_inputs import total, trailing
from .gradient_sums import scale_bars
from .layer_pass import LayerParts, LayerPass


@public_call()
def elbo_and_grad_from_blocks(
    blocks: Blocks,
    posterior: PosteriorT,
    likelihood: LikelihoodT,
    Y: ArrayLike,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    **random: Unpack[Random],
) -> tuple[float, tuple[Blocks, PosteriorT, LikelihoodT]]:
    """Compute the bound and its gradient from covariance blocks of a user-defined covariance.

    Parameters
    ----------
    blocks : Blocks
        ``Kuu`` (M, M), ``Kuf`` (M, B), ``kff`` (B,), without jitter.
    posterior : Posterior
    likelihood : Likelihood
    Y : (B,) or (B, P)
    num_data, jitter, rng, weights, **random
        As in ``elbo``.

    Returns
    -------
    value : float
    bars : (Blocks, posterior record, likelihood record)
        Gradients of the value; ``Kuu`` symmetric.

    Examples
    --------
    >>> blocks = covariance.blocks(Z, X)
    >>> value, bars = fs.bounds.elbo_and_grad_from_blocks(blocks, model.posterior, gaussian, Y)
    >>> blocks_bar, q_bar, gaussian_bar = bars
    >>> round(value - fs.elbo(model, X, Y), 9) + 0.0, blocks_bar.Kuf.shape
    (0.0, (6, 40))
    """
    models.check_options("elbo_and_grad_from_blocks", Blocks, random, OPTIONS, "random")

    def cast(Y):
        Y = check.as_array("Y", Y)
        found, given, dtype, outputs = _check(blocks, _Model(posterior, likelihood), Y)
        given.likelihood.check_settings()
        return (
            found,
            given,
            check.targets(Y, found.Kuf.shape[1], outputs, given.likelihood, dtype),
            dtype,
        )

    w = {}
    if weights is None:
        blocks, given, Y, dtype = cast(Y)
    else:
        (blocks, given, Y, dtype), weights = weighing.through(
            lambda _, Y: cast(Y), None, Y, weights, columns := check.num_columns(likelihood)
        )
        weighing.check_likelihood(likelihood)
        w = {"weights": weighing.laid_out(weights, Y, dtype, columns)}
    B = blocks.Kuf.shape[1]
    scale = check.data_scale(num_data, B)
    random = check.draw(random, given, dtype, rng, len(blocks.Kuu))
    covariance = GivenBlocks(blocks)
    layer = LayerPass(
        LayerParts(covariance, given.posterior),
        check.jitter_amount(jitter, dtype),
        B,
        NEED,
        **random,
    )
    f, rows = layer.forward(None)
    check.report_clamped(layer.clamped)
    f = laid_out(given.likelihood, f)
    ell, f_bar, likelihood_bar = scale_bars(
        scale, *given.likelihood.expected_log_prob(Y, f, rng, **w)
    )
    kl = layer.kl()
    layer.pull(rows, stack_latents(given.likelihood, f_bar))
    posterior_bar = layer.finish(-1.0).posterior
    return check.result(ell - kl, given), (Blocks(**covariance.bars), posterior_bar, likelihood_bar)


@public_call()
def predict_from_blocks(
    blocks: Blocks, posterior: Posterior, *, full_cov: bool = False, jitter: float | None = None
) -> tuple[Array, Array]:
    """Predict mean and variance of the latent function from covariance blocks.

    Parameters
    ----------
    blocks : Blocks
        ``Kuu`` (M, M), and ``Kuf`` (M, N), ``kff`` (N,) of new inputs, without jitter; with
        ``full_cov`` also ``Kff`` (N, N).
    posterior : Posterior
    full_cov : bool
        Return covariance matrices.
    jitter : float, optional
        Added to the diagonal of Kuu, as in the bound: use the same.

    Returns
    -------
    mean : (N,) or (N, P)
        Mean functions are not included: add your own.
    var : (N,) or (N, P); covariance (N, N) or (P, N, N) with ``full_cov``

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo_and_grad_from_blocks``.

    Notes
    -----
    2 M^2 N flops for the first output, M^2 N for each further one, and M^3 / 3.

    Examples
    --------
    >>> mean, var = fs.bounds.predict_from_blocks(covariance.blocks(Z, X), model.posterior)
    >>> np.allclose(var, fs.predict_f(model, X)[1])
    True
    """
    full_cov = check.flag("full_cov", full_cov)
    blocks, given, dtype, _ = _check(blocks, _Model(posterior), full_cov=full_cov)
    layer = LayerPass(
        LayerParts(GivenBlocks(blocks), given.posterior),
        check.jitter_amount(jitter, dtype),
        0 if full_cov else len(blocks.kff),
    )
    if full_cov:
        mean, var = layer.joint(None)
    else:
        f, _ = layer.forward(None)
        mean, var = f.mean, f.var
    check.report_clamped(layer.clamped)
    check.result(total(var), given)
    return trailing(mean), var if full_cov else trailing(var)


NEED = "covariance", "posterior"
OPTIONS = frozenset(("num_data", "jitter", "rng", "weights"))


class GivenBlocks(Covariance):
    """Given blocks as a covariance; their cotangents are stored in ``bars``."""

    def __init__(self, blocks):
        self._blocks, self.bars = blocks, {}

    def Kuu(self, inducing):
        return self._blocks.Kuu

    def Kuf(self, inducing, X):
        return self._blocks.Kuf

    def kff(self, X):
        return self._blocks.kff

    def Kff(self, X):
        return self._blocks.Kff

    def Kuu_vjp(self, K_bar, K, inducing, other, need):
        self.bars["Kuu"] = K_bar
        return None, None, None

    def Kuf_vjp(self, K_bar, K, inducing, X, need):
        self.bars["Kuf"] = K_bar
        return None, None, None

    def kff_vjp(self, k_bar, X, need):
        self.bars["kff"] = k_bar
        return None, None


@private_record
class _Model:
    """The parts of a model without covariance and inducing inputs."""

    posterior: Any
    likelihood: Any = None


def _check(blocks, given, Y=None, full_cov=False):
    """Return ``(blocks, given, dtype, leading axes of the posterior)``, all in one dtype."""
    if not isinstance(blocks, Blocks):
        raise TypeError(
            f"`blocks` must be fastsvgp.records.Blocks(Kuu, Kuf, kff), got {type(blocks).__name__}"
        )
    if full_cov and blocks.Kff is None:
        raise TypeError(
            "`full_cov` needs `blocks.Kff`, the covariances (N, N) of the function at new inputs,"
            " and it is None"
        )
    check.parts(given, ("posterior",) if Y is None else ("posterior", "likelihood"))
    deferred_checks.defer(blocks.Kuu)
    fields = ("Kuu", "Kuf", "kff", "Kff") if full_cov else ("Kuu", "Kuf", "kff")
    names = tuple(f"blocks.{name}" for name in fields)
    for name, field in zip(names, fields, strict=True):
        if getattr(blocks, field) is None:
            raise TypeError(f"`{name}` is None; give the array")
    arrays = [
        check.as_array(name, getattr(blocks, field))
        for name, field in zip(names, fields, strict=True)
    ]
    M, B = arrays[1].shape if arrays[1].ndim == 2 else (None, None)
    shapes = dict(zip(fields, ((M, M), (M, B), (B,), (B, B)), strict=False))
    if M is None or any(
        array.shape != shape for array, shape in zip(arrays, shapes.values(), strict=True)
    ):
        wanted = "Kuu (M, M), Kuf (M, B), kff (B,)" + (
            ", Kff (B, B) for full_cov" if full_cov else ""
        )
        raise ValueError(
            f"`blocks` must hold {wanted}, got {', '.join(str(array.shape) for array in arrays)}"
        )
    for name, array in zip(names, arrays, strict=True):
        check.finite(name, array)
    if Y is not None:
        check.one_device(*zip(names, arrays, strict=True), ("Y", Y))
        arrays, names = [*arrays, *((Y,) if Y.dtype.kind == "f" else ())], (*names, "Y")
    given, dtype = check.parameters(given, *arrays, names=names)
    outputs = given.posterior.check_size(*given.posterior.set_sizes(M))
    return (
        Blocks(*(np.ascontiguousarray(b, dtype, like=b) for b in arrays[: len(fields)])),
        given,
        dtype,
        outputs,
    )
