"""A direction for steps of a posterior with a factor of an inverse: nearly the gradient of the form without one, for less."""

from .. import check
from ..distributed import reduce
from ..records import leaves, matches
from ..records.typed import ArrayLike, Group, Names, RecordT, Seed
from ..runtime.edge import public_call
from .elbo import SVGP, value_and_grad


@public_call(SVGP)
def likelihood_direction(
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
    """The evidence lower bound, and a direction for steps that is nearer to L-SVGP's gradient than its own, and cheaper.

    For a ``Relaxed`` posterior with L its ``inverse_tril``, T = L L' and S~ = diag(variance): the
    gradients of ``LikelihoodForm`` with P = 2 T - T (Kuu + S~) T in the place of the inverse. With
    d = ||L' (Kuu + S~) L - I||_F they are off by d^2 from the gradients of ``LikelihoodForm``,
    where the exact ones of the bound are off by d; they belong to no bound. There is none for
    ``inverse_tril``. Where d is not below 1 the direction is the exact gradient. Measured while
    training, the two differ by 7e-5 of their norm at d = 5e-4, and by 0.08 at d = 0.5.

    Parameters
    ----------
    model, X, Y, num_data, jitter, rng, wrt, weights, group
        As in ``elbo_and_grad``. With a ``group`` there is nothing for ``inverse_tril`` at any d.

    Returns
    -------
    value : float
    direction : SVGP

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``elbo_and_grad``; ``TypeError`` also where the posterior has no such direction.

    Notes
    -----
    (3 B + 3 M) M^2 flops. Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian
    Processes", section 3.

    Examples
    --------
    >>> q = fs.Relaxed(mean=np.zeros(6), variance=np.ones(6), inverse_tril=0.5 * np.eye(6))
    >>> relaxed, _ = fs.refresh_inverse(fs.replace(model, posterior=q))
    >>> value, direction = fs.likelihood_direction(relaxed, X, Y)
    >>> direction.posterior.inverse_tril is None
    True
    """
    return reduce.evaluate(
        "likelihood_direction", _direction, model, X, Y, lambda: [reduce.of_gradient(model, _but_inverse(model, wrt))],
        group=group, wrt=wrt, num_data=num_data, weights=weights, jitter=jitter, rng=rng, with_inverse=group is None,
    )  # fmt: skip


def _direction(model, X, Y, scale, *, wrt=None, with_inverse, **options):
    check.parts(model)
    wrt = wrt if with_inverse else _but_inverse(model, wrt)
    if "likelihood" not in model.posterior.directions:
        kind = type(model.posterior).__name__
        raise TypeError(
            f"likelihood_direction: a {kind} posterior has no such direction; its gradient is"
            " elbo_and_grad's"
        )
    return value_and_grad(model, X, Y, scale, wrt=wrt, direction="likelihood", **options)


def _but_inverse(model, wrt):
    """The leaves below the names ``wrt``, without the factor of an inverse: what a direction always has."""
    wrt, left_out = check.names(wrt, model), f"posterior.{model.posterior.inverse_field}"
    return tuple(path for path, _, _ in leaves(model) if path != left_out and matches(path, wrt))
