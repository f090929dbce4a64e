"""Many natural-gradient steps of q(u) at one prior, which share the factor of Kuu.

The whitened state is cached between steps, and Lam if a step takes all data.

With u = L u', L = chol(Kuu), q(u') = N(m, B^-1) and B = I + A, m = B^-1 t, a step of size r is
(``posteriors.dual_sites_pass``)

    A <- (1 - r) A - r G_2,    t <- (1 - r) t + r (Lam a - G_2 m),    G_2 = Lam diag(2 b) Lam'

for every parameterisation of the posterior: its parameters are converted to A and t at the start,
and back at the end. A step computes Lam once per batch, W' Lam and G_2 per output, and factors of B
and of its successor.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from .. import check, models
from ..bounds.convert import KINDS, from_state, state_of
from ..bounds.relay import Batch, request_sums, sum_natural, sweep
from ..bounds.shared_pass import FixedPriorPass
from ..bounds.svgp import SVGP
from ..check import weights as weighing
from ..check.scale import DataScale
from ..latents.model import MultiGP, check_multi_gp
from ..latents.turns import factor_priors
from ..optim.natural.backtracking import (
    NaturalStepInfo,
    backtrack,
    check_value,
    non_decreasing,
)
from ..optim.natural.sites import SiteSteps
from ..optim.natural.step import natural_step, take_step
from ..posteriors.base import PriorFactor
from ..posteriors.dual_sites import DualTying, WhitenedState
from ..posteriors.gaussian_factor import GaussianFactor
from ..records import replace
from ..records.inducing_sets import naming_repeated
from ..records.typed import ArrayLike, RecordT, Rows, Seed
from ..runtime import tuning
from ..runtime.edge import public_call, run
from ..sites.models import SITES_OF
from ..sites.site_pass import finite_sums
from .arguments import rows_of_both
from .batches import locate_rows, locating, read_rows, whole

SHARE_FACTOR = GaussianFactor, DualTying  # posteriors whose steps can share a factor
GROW = 1.5  # factor by which a halved step size grows again


@public_call(SVGP, checks=False, blas_threads=False)
def natural_steps(
    model: RecordT,
    X: ArrayLike | Rows,
    Y: ArrayLike | Rows,
    *,
    rows: Iterable[ArrayLike] | None = None,
    steps: int = 1,
    step_size: float = 0.3,
    num_data: float | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    monotone: bool = False,
    tolerance: float | None = None,
) -> tuple[RecordT, list[NaturalStepInfo]]:
    """Take natural-gradient steps of q(u) that share one factor of Kuu.

    Equivalent to repeated calls of ``natural_step``, and cheaper.

    Parameters
    ----------
    model : SVGP, MultiGP, SiteSVGP or VGP
        An SVGP with a ``Whitened``, ``Marginal``, ``AbsorbedDualSites`` or ``DualSites`` posterior.
        In a ``MultiGP`` all latent functions move in each step.
    X : (N, D) array
    Y : (N,) or (N, P) array
        All data. With ``rows`` also ``numpy.memmap`` or any container indexed by a sorted array of
        row numbers.
    rows : iterable of arrays of int, optional
        Row numbers of each step: arrays of any length, no row twice in one. It is converted to a
        list. Default: all rows, ``steps`` times. Of a ``SiteSVGP`` or ``VGP`` the sites of these
        rows move.
    steps : int
        Number of steps, without ``rows``.
    step_size : float
        Step size in (0, 1].
    num_data : float, optional
        As in ``elbo``; default N. Not for a ``SiteSVGP`` or ``VGP``.
    jitter, rng
        As in ``elbo``; the random points are the same at every step.
    monotone : bool
        Halve a step while the bound on its rows falls. The next step is 1.5 times as large, up to
        ``step_size``.
    tolerance : float, optional
        Without ``rows``: stop when the bound rises by less.

    Returns
    -------
    model : of the same type
    infos : list of NaturalStepInfo
        One entry per step.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``natural_step``; step sizes outside (0, 1], rows out of range or repeated, and
        contradictory arguments.

    Notes
    -----
    A step takes (1 + 2 P) M^2 B + P M^3 flops, with Gaussian noise (1 + P) M^2 B + 4/3 P M^3 for
    long batches on the CPU (B > 5/4 M and M^2 B > 1e7); after the first M^2 B fewer on all rows.
    The call takes up to (1/3 + 4 P) M^3 more. On a device a step makes two copies to the host,
    three with ``monotone``.

    Examples
    --------
    >>> sites = fs.posteriors.convert(model, fs.posteriors.AbsorbedDualSites)
    >>> stepped, info = fs.sites.natural_steps(sites, X, Y, steps=5, step_size=0.5)
    >>> fs.elbo(stepped, X, Y) > fs.elbo(sites, X, Y)
    True
    """
    size = _size(step_size, rows, tolerance)
    batches = _batches(rows, check.whole("steps", steps, 0))
    monotone = check.flag("monotone", monotone)

    def take_steps(model, X, Y):
        kept = STEPS_OF[type(model)](model, X, Y, rng, num_data, jitter)
        infos = _go(kept.step, batches, size, monotone, tolerance)
        return kept.model, infos

    return run(take_steps, model, X, Y)


def _size(step_size, rows, tolerance):
    """Check the step size, and whether a tolerance is possible; return the size."""
    size = check.scalar("step_size", step_size)
    if not 0 < size <= 1:
        raise ValueError(f"natural_steps: `step_size` must be above 0 and at most 1, got {size:g}")
    if tolerance is not None and (rows is not None or check.scalar("tolerance", tolerance) < 0):
        raise ValueError(
            "natural_steps: `tolerance` must be zero or more, and without `rows`, got"
            f" {tolerance!r}"
        )
    return size


def _batches(rows, steps):
    """Return the row numbers of each step; None for all rows.

    A list, because a second run (see ``deferred_checks``) must take the same rows.
    """
    if rows is None:
        return [None] * steps
    if not np.iterable(rows) or getattr(rows, "ndim", 2) < 2:
        said = (
            "natural_steps: `rows` must hold an array of row numbers for each step, as [[0, 1],"
            " [2, 3]]"
        )
        raise TypeError(f"{said}, got {rows!r:.80}")
    return list(rows)


def _go(step, batches, largest, monotone, tolerance):
    """Take the steps; return their infos."""
    infos, size = [], largest
    for batch in batches:
        infos.append(step(batch, size, monotone))
        size = min(largest, GROW * infos[-1].step_size) if monotone else largest
        if (
            tolerance is not None
            and len(infos) > 1
            and infos[-1].value - infos[-2].value < tolerance
        ):
            break
    return infos


class KeptFactorSteps:
    """The state between steps; each step has its own batch.

    X and Y, of at least one row, determine the dtype.
    """

    def __init__(self, model, X, Y, rng, num_data, jitter, weights=None):
        checked, *_, dtype = weighing.svgp(model, X, Y, weights)
        jitter = check.jitter_amount(jitter, dtype)
        self._model, self._rng, self._scale = model, rng, DataScale(num_data)
        self._prior = PriorFactor(checked.covariance.Kuu(checked.inducing), jitter)
        with naming_repeated(checked.inducing):
            self._state = WhitenedState(*state_of(checked.posterior, self._prior))
        finite_sums(
            self._state
        )  # on a device, reads the check of Kuu, because each step begins new checks

    def take(self, X, Y, weights=None, *, size, monotone=False, cached=None):
        """Take a step on a batch; the list ``cached`` holds Lam for the next step on it."""
        model, X, Y, weights, _ = weighing.svgp(self._model, X, Y, weights)
        if len(X) * len(self._prior.Kuu) > tuning.current.cached_projection_numbers:
            cached = None
        need = request_sums(model, ("natural_step",), gradient=False)
        layer = FixedPriorPass(model, self._prior, self._state, cached, len(X), need)
        batch = Batch(X, Y, self._scale, self._rng, weights)
        data, negative = sum_natural(model, layer, batch)
        value = check.result(data - layer.kl(), model)
        check_value("natural_steps", value)

        def rises(state):
            there = FixedPriorPass(model, self._prior, state, cached)
            total = sum(chunk.ell for chunk in sweep(model, there, batch, need=False))
            return non_decreasing(check.result(total - there.kl(), model), value, X.dtype)

        accepted = rises if monotone else None
        self._state, taken, negative = backtrack(
            layer.natural_step, size, negative, model, X, accepted
        )
        return NaturalStepInfo(value, taken, taken < size, negative)

    @property
    def model(self):
        kind = type(self._model.posterior)
        return replace(
            self._model,
            posterior=from_state(kind, self._prior.L, self._state.lambda1, self._state.lambda2),
        )


class _Data:
    """Rows of X and Y, of data that can be on disk."""

    def __init__(self, X, Y):
        self.X, self.Y = rows_of_both("natural_steps", X, Y)

    def __len__(self):
        return len(self.X)

    def at(self, rows):
        return read_rows("X", self.X, rows), read_rows("Y", self.Y, rows)

    def call(self, function, rows):
        """Call ``function(X, Y)`` with these rows, or with all for None."""
        if rows is None:
            return function(whole("X", self.X), whole("Y", self.Y))
        rows = np.sort(check.row_numbers("rows", rows, len(self)))
        with locating(locate_rows, ("X", "Y"), rows):
            return function(*self.at(rows))


FIRST = np.arange(1)  # one row determines the dtype


class _StepsOnRows(KeptFactorSteps):
    """Steps of an SVGP on rows of given data."""

    def __init__(self, model, X, Y, rng, num_data, jitter):
        check.parts(model)
        if not isinstance(model.posterior, SHARE_FACTOR):
            kind = type(model.posterior).__name__
            raise TypeError(
                f"natural_steps: a {kind} posterior is none of {KINDS}; take natural_step, where it"
                " has one"
            )
        self._data, self._cached = _Data(X, Y), []
        num_data = len(self._data) if num_data is None else num_data
        super().__init__(model, *self._data.at(FIRST), rng, num_data, jitter)

    def step(self, rows, size, monotone):
        cached = self._cached if rows is None else None
        take = partial(self.take, size=size, monotone=monotone, cached=cached)
        return self._data.call(take, rows)


class _StepsOnLatents:
    """Steps of a ``MultiGP`` on rows of given data, with one factor of Kuu for each layer."""

    def __init__(self, model, X, Y, rng, num_data, jitter):
        self.model, self._data = model, _Data(X, Y)
        self._scale = DataScale(len(self._data) if num_data is None else num_data)
        given, *_, dtype = check_multi_gp(model, *self._data.at(FIRST))
        each = factor_priors(given, check.jitter_amount(jitter, dtype))
        self._options = {"weights": None, "rng": rng, "jitter": jitter, "each": each}

    def step(self, rows, size, monotone):
        def take(X, Y):
            options = {"step_size": size, "monotone": monotone} | self._options
            return take_step(self.model, X, Y, self._scale, **options)

        self.model, info, *_ = self._data.call(take, rows)
        return info


class _StepsOnSites(SiteSteps):
    """Steps of a ``SiteSVGP`` or a ``VGP``, on all data: ``rows`` are those whose sites move.

    ``SiteSVGP``: 2 M^2 N flops once, and then 4 M^2 B + M^3 per step; Lam of all data is cached up
    to 512 MiB. ``VGP``: 4/3 N^3 flops per step.
    """

    def __init__(self, model, X, Y, rng, num_data, jitter):
        if num_data is not None:
            raise ValueError(
                "natural_steps: X and Y are all data of a model with sites; leave out `num_data`"
            )
        super().__init__("natural_steps", model, X, Y, jitter, rng)


STEPS_OF = {SVGP: _StepsOnRows, MultiGP: _StepsOnLatents} | dict.fromkeys(SITES_OF, _StepsOnSites)
for kind in STEPS_OF.keys() - {SVGP}:
    models.share(kind, SVGP, "natural_steps")


def step_to_optimum(model, X, Y, *, steps, tolerance, **options):
    """Take monotone natural steps until the bound rises by less than ``tolerance``.

    At most ``steps`` of them; ``options`` are the options of ``natural_step``.
    """

    def step(_, size, monotone):
        nonlocal model
        model, info = natural_step(model, X, Y, step_size=size, monotone=monotone, **options)
        return info

    _go(step, [None] * steps, 1.0, True, tolerance)
    return model


@public_call()
def steps_on(model, batches, *, step_size, num_data, rng, jitter, call):
    """Take a step on each batch; return ``(model, infos)``.

    ``call(function, i, ...)`` makes the calls for the i-th batch.
    """
    X, Y, *weights = batches[0]
    kept = call(KeptFactorSteps, 0, model, X, Y, rng, num_data, jitter, *weights)
    infos = [call(partial(kept.take, size=step_size), i, *batch) for i, batch in enumerate(batches)]
    return kept.model, infos
