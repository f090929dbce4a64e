"""An approximate ascent direction for posteriors with an inverse factor."""

from .. import check
from ..check.scale import DataScale
from ..distributed.reduce import call_on_ranks
from ..records import leaves, matches
from ..records.typed import ArrayLike, Group, Names, RecordT, Seed
from ..runtime.edge import public_call
from .relay import value_and_grad
from .svgp import SVGP


@public_call(SVGP)
def lsvgp_direction(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    weights: ArrayLike | None = None,
    wrt: Names | None = None,
    group: Group | None = None,
) -> tuple[float, RecordT]:
    """Compute the evidence lower bound and an approximate ascent direction.

    The direction is closer to the L-SVGP gradient than the exact R-SVGP gradient is, and cheaper.
    For a ``Relaxed`` posterior with L its ``inverse_tril``, T = L L' and S~ = diag(variance), it is
    the gradient of ``LikelihoodForm`` with P = 2 T - T (Kuu + S~) T in place of the inverse. With
    d = ||L' (Kuu + S~) L - I||_F it differs by d^2 from the gradient of ``LikelihoodForm``; the
    exact gradient of the bound differs by d. The direction is not the gradient of any bound and has
    no entry for ``inverse_tril``. If d is not below 1 the direction is the exact gradient. Measured
    while training, the two differ by 7e-5 of their norm at d = 5e-4, and by 0.08 at d = 0.5.

    Parameters
    ----------
    model, X, Y, num_data, jitter, rng, wrt, weights, group
        As in ``elbo_and_grad``. With a ``group`` there is no entry for ``inverse_tril`` at any d.

    Returns
    -------
    value : float
    direction : SVGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``elbo_and_grad``; ``TypeError`` also if the posterior has no such direction.

    Notes
    -----
    (3 B + 3 M) M^2 flops. Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian
    Processes", section 3.

    Examples
    --------
    >>> q = fs.posteriors.Relaxed(mean=np.zeros(6), variance=np.ones(6),
    ...     inverse_tril=0.5 * np.eye(6))
    >>> relaxed, _ = fs.optim.update_inverse_factor(fs.replace(model, posterior=q))
    >>> value, direction = fs.bounds.lsvgp_direction(relaxed, X, Y)
    >>> direction.posterior.inverse_tril is None
    True
    """
    options: dict = dict(weights=weights, jitter=jitter, rng=rng, wrt=wrt)
    if group is not None:
        options["with_inverse"] = False
        return call_on_ranks("lsvgp_direction", _direction, model, X, Y, group, num_data, options)
    return _direction(model, X, Y, DataScale(num_data), **options)


def _direction(model, X, Y, scale, *, wrt=None, with_inverse=True, **options):
    check.parts(model)
    wrt = wrt if with_inverse else _exclude_inverse(model, wrt)
    if "likelihood" not in model.posterior.directions:
        kind = type(model.posterior).__name__
        raise TypeError(
            f"lsvgp_direction: a {kind} posterior has no such direction; its gradient is"
            " elbo_and_grad's"
        )
    return value_and_grad(model, X, Y, scale, wrt=wrt, direction="likelihood", **options)


def _exclude_inverse(model, wrt):
    """Return the leaves below the names ``wrt`` without the inverse factor."""
    wrt, left_out = check.names(wrt, model), f"posterior.{model.posterior.inverse_field}"
    return tuple(path for path, _, _ in leaves(model) if path != left_out and matches(path, wrt))
