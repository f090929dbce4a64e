"""``fs.condition``: ``new_rows`` has the derivation, ``reproject`` that of inducing inputs."""

from typing import Any

from .. import check, models
from ..bounds.mixture import Mixture
from ..bounds.svgp import SVGP
from ..latents.bound import MultiGP
from ..latents.model import axes_of, counts_of, layers_of
from ..records import replace
from ..records.typed import ArrayLike, RecordT
from ..runtime.edge import public_call
from .new_rows import posteriors_after, read_arguments, refuse_posterior
from .reproject import reproject


@public_call(SVGP)
def condition(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    jitter: float | None = None,
    inducing: ArrayLike | None = None,
) -> RecordT:
    """Condition a trained model on new rows, without the old ones.

    Each new row enters q(u) as a Gaussian site; parameters stay, and inducing inputs unless
    ``inducing`` is given. The model given is not changed, so a call on hypothetical rows is a
    fantasy.

    Parameters
    ----------
    model : SVGP, MultiGP or Mixture of these
        With ``Whitened``, ``Marginal``, ``AbsorbedDualSites`` or ``DualSites`` posteriors. A
        ``MultiGP`` has one latent function per output: ``mixing`` is None.
    X : (N, D) array
        New inputs.
    Y : (N,) or (N, P) array
        New targets, as in ``elbo``.
    weights : (N,) or (N, P) array, optional
        Non-negative weight of each row or target, as in ``elbo``: it multiplies the precision.
    jitter : float, optional
        As in ``elbo``: use that of the training.
    inducing : (M2, D) array, optional
        New inducing inputs, for an ``SVGP`` whose inducing inputs are rows of X: those of the model
        and more, where the new rows lie beyond them. Leaving one of the old rows out discards what
        it told: a warning says so.

    Returns
    -------
    SVGP, MultiGP or Mixture
        Of the same class of posterior. The shares of a mixture stay.

    Raises
    ------
    ValueError, NotPositiveDefinite
        As ``elbo``.
    TypeError
        As ``elbo``. Another posterior; a mixing; ``inducing`` with a covariance that does not take
        rows of X.

    Warns
    -----
    UserWarning
        ``inducing`` leaves out rows of the inducing inputs of the model.
    RuntimeWarning
        The sites of the new rows still move after 500 steps.

    Notes
    -----
    With Gaussian noise the result is that of all rows at once, in any order and any batches, if the
    inducing inputs and parameters are fixed. Other likelihoods take E-steps at the new rows only,
    so the result depends on the batches: the sites of earlier rows stay as they were. Those that
    sample take the same draws at each step.

    3 M^2 N + 4/3 M^3 flops per function for Gaussian noise, and 2 M^2 N + 2/3 M^3 for each E-step
    of others; memory for three (M, N) arrays. Source: Bui, Nguyen and Turner, "Streaming
    Sparse Gaussian Process Approximations" (2017); Adam et al. 2021 for the E-step.

    Examples
    --------
    >>> best = fs.optimal_svgp(sgpr, X[:30], Y[:30])
    >>> both = fs.condition(best, X[30:], Y[30:])
    >>> round(fs.elbo(both, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """
    given: Any = model
    check.parts(given)
    refuse_posterior("condition", given.posterior)
    if inducing is not None:
        given = reproject("condition", given, inducing, jitter)
    given, batch, jitter = read_arguments(given, X, Y, weights, jitter)
    axes = given.posterior.check_size(*given.covariance.num_inducing(given.inducing))
    (posterior,) = posteriors_after("condition", given, [given], axes, None, batch, jitter)
    return replace(given, posterior=posterior)


def condition_functions(model, X, Y, *, weights=None, jitter=None):
    """Take in new rows by a ``MultiGP``: each function has sites of its own."""
    model.check_parts()
    if model.mixing is not None:
        raise TypeError(
            "condition: a MultiGP with a `mixing` shares latent functions between outputs, and a"
            " site of one output would couple them; use separate ones (mixing None), or fs.fit"
        )
    for layer in model.latents:
        refuse_posterior("condition", layer.posterior)
    model, batch, jitter = read_arguments(model, X, Y, weights, jitter)
    axes = axes_of(model, sum(counts_of(model)))
    after = posteriors_after("condition", model, layers_of(model), axes, model.mean, batch, jitter)
    latents = tuple(
        replace(layer, posterior=q) for layer, q in zip(model.latents, after, strict=True)
    )
    return replace(model, latents=latents)


def condition_models(model, X, Y, *, weights=None, jitter=None, inducing=None):
    """Condition each model of a ``Mixture``; their shares stay."""
    given = {"weights": weights, "jitter": jitter, "inducing": inducing}
    return replace(model, models=tuple(condition(one, X, Y, **given) for one in model.models))


models.register(MultiGP, condition=condition_functions)
models.register(Mixture, condition=condition_models)
