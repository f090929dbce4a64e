"""From a trained SVGP to a VIF: near rows for the detail that its inducing inputs leave out."""

from .. import check
from ..bounds.svgp import SVGP
from ..near.model import VIF
from ..optim.first_order import adam
from ..optim.schedules import cosine
from ..records.typed import ArrayLike, Seed
from ..train import fit
from ..train.info import FitInfo

BATCH = 400  # rows of a step
LARGEST, LAST = 0.03, 0.001  # step sizes of Adam, which fall along a cosine
NATURAL = 0.1  # step size of q(u)


def near_rows(
    model: SVGP,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    neighbours: int = 20,
    steps: int = 450,
    weights: ArrayLike | None = None,
    rng: Seed = 0,
) -> tuple[VIF, FitInfo]:
    """Train a VIF that begins at a trained SVGP.

    Worth its time where rows are nearer to each other than a lengthscale, and inducing inputs leave
    more variance than the noise.

    Parameters
    ----------
    model : SVGP
        With a posterior that takes natural steps, and one latent function or Gaussian noise.
    X : (N, D) array
    Y : (N,) or (N, P) array
    neighbours : int
        Near rows of each row, fewer than N.
    steps : int
        Steps of 400 rows, or all: a natural step of q(u), and one of Adam, whose size falls.
    weights : (N,) array, optional
    rng : int, numpy.random.Generator or None
        Seed of the batches.

    Returns
    -------
    model : VIF
    info : FitInfo

    Raises
    ------
    ValueError, TypeError
        As ``fit``.

    Notes
    -----
    For each row of a batch its distinct near rows u, 5 to 13 with 20 neighbours, cost 6 u M^2
    flops a step.

    Examples
    --------
    >>> detailed, info = fs.recipes.near_rows(model, X, Y, neighbours=5, steps=20)
    >>> fs.elbo(detailed, X, Y) > fs.elbo(model, X, Y)
    True
    """
    if not isinstance(model, SVGP):
        raise TypeError(f"near_rows: `model` must be an SVGP, got {type(model).__name__}")
    check.parts(model)
    start = VIF(
        model.covariance, model.inducing, model.posterior, model.likelihood, model.mean,
        neighbours=neighbours,
    )  # fmt: skip
    sizes = cosine(LARGEST, LAST, "all")
    return fit(
        start, X, Y, weights=weights, steps=steps, batch_size=BATCH, natural_step_size=NATURAL,
        optimiser=adam(sizes), rng=rng,
    )  # fmt: skip
