"""EM: E-steps of q(u) to their end, then the other parameters with q(u), or its sites, held; round after round.

With sites held the prior is free to move under them: at each value of the hyperparameters their
M-step bound lies nearer to the optimum over q(u) than that of a held q(u) does, and two or three
rounds do what takes dozens otherwise (Adam et al. 2021, section
3.1).
"""

import dataclasses
import logging
import math
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

from .. import check, files, models
from ..bounds.elbo import SVGP, elbo_and_grad
from ..errors import BadEntry, Diverged, InvalidSites, NotPositiveDefinite
from ..files import Path
from ..optim.base import check_offered
from ..optim.flat import as_names, free_paths, ravel
from ..optim.natural.backtracking import no_lower
from ..records import leaf, record, replace
from ..records.typed import ArrayLike, Moves, Names, RecordT, Seed, Vector
from ..runtime import devices
from ..runtime.blas_scope import blas_threads_for
from ..runtime.deferred_checks import on_device
from ..runtime.edge import public_call
from ..sites.models import SITES_OF
from ..sites.site_svgp import SiteSVGP, checked, site_bound_and_grad
from ..sites.vgp import VGP
from . import asked, data_digests
from .arguments import Callback, rows as data_rows
from .batches import whole
from .checkpoints import Checkpoints
from .info import FitInfo
from .loop import Plan, Recorder
from .natural_steps import natural_steps
from .state import TrainingState, settled, started
from .steps import Snapshot, Steps

log = logging.getLogger("fastsvgp")


@record
class Rounds:
    """What each round did: the bound after its E-step, how many natural steps that took, and how many evaluations its M-step."""

    e_values: Any = leaf()
    e_steps: Any = leaf()
    m_evaluations: Any = leaf()


@dataclasses.dataclass(frozen=True)
class EMInfo(FitInfo):
    """As ``FitInfo``, of rounds: ``values`` are the bound after each M-step.

    Attributes
    ----------
    e_values : (rounds,) array
        The bound after each E-step.
    e_steps, m_evaluations : (rounds,) arrays of int
        Natural steps of each E-step, those that were taken back left out, evaluations of bound and
        gradient of each M-step.
    """

    e_values: Vector
    e_steps: np.ndarray[tuple[int], np.dtype[np.int64]]
    m_evaluations: np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclasses.dataclass(frozen=True)
class EMSiteOptions:
    """Options of ``em`` for a ``SiteSVGP`` or ``VGP``.

    Parameters
    ----------
    batch_size : int, optional
        Rows of each batch of the E-steps. They go through the data in random batches, each moving
        its own sites; ``e_limit`` counts these epochs. An epoch that lowers the bound is taken
        back, and tried again with half the step size. Default: all rows at once.
    """

    batch_size: int | None = None


class EMArguments(TypedDict, total=False):
    """The arguments that ``em`` has for all kinds of model."""

    rounds: int
    e_limit: int
    e_tolerance: float
    m_iterations: int
    step_size: float
    optimiser: Moves | None
    fixed: Names
    tolerance: float
    jitter: float | None
    rng: Seed
    callback: Callback | None
    checkpoint: Path | None
    resume: Path | None


SitesT = TypeVar("SitesT", bound=SiteSVGP | VGP)


@overload
def em(
    model: SitesT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    batch_size: int | None = None,
    **shared: Unpack[EMArguments],
) -> tuple[SitesT, EMInfo]: ...


@overload
def em(
    model: RecordT, X: ArrayLike, Y: ArrayLike, **shared: Unpack[EMArguments]
) -> tuple[RecordT, EMInfo]: ...


@public_call(SVGP, checks=False, blas_threads=False)
@models.with_options(models.NoOptions)
def em(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    rounds: int = 20,
    e_limit: int = 100,
    e_tolerance: float = 1e-6,
    m_iterations: int = 20,
    step_size: float = 1.0,
    optimiser: Moves | None = None,
    fixed: Names = (),
    tolerance: float = 1e-6,
    jitter: float | None = None,
    rng: Seed = 0,
    callback: Callback | None = None,
    checkpoint: Path | None = None,
    resume: Path | None = None,
    **options: Any,
) -> tuple[RecordT, EMInfo]:
    """Train by EM on all data: natural steps of q(u) until they gain nothing, then the rest with q(u), or its sites, held.

    Parameters
    ----------
    model : SVGP, SiteSVGP or VGP
        An SVGP with an ``AbsorbedDualSites`` posterior, whose rounds gain most, or ``DualSites``,
        ``Whitened``, ``Marginal``.
    X : (N, D) array
    Y : (N,) or (N, P) array
    rounds : int
        At most.
    e_limit, e_tolerance : int, float
        An E-step ends when the bound rises by less than ``e_tolerance``, or after so many natural
        steps.
    m_iterations : int
        Of L-BFGS-B in each M-step; steps where an ``optimiser`` is given.
    step_size : float
        Of natural steps, in (0, 1]; halved where the bound would fall.
    optimiser : Optimiser, optional
        For M-steps in place of L-BFGS-B: ``fs.adam(...)``. The bound may then fall in them.
    fixed : str or sequence of str
        Dotted paths of fields that M-steps leave alone.
    tolerance : float
        End when a round raises the bound by less.
    jitter : float, optional
        As in ``elbo``.
    rng : int
        For likelihoods that sample: the same points throughout, so that all steps climb one
        function.
    callback : function ``(round, value, info)``, optional
        After each round, as in ``fit``; a true result ends the training.
    checkpoint, resume : path, optional
        As in ``fit``.
    **options
        Those of one kind of model: ``batch_size`` of a ``SiteSVGP`` or ``VGP``, documented in the
        record ``EMSiteOptions`` of the reference; ``fs.models.options(fs.VGP, "em")`` lists them.

    Returns
    -------
    model : as it came
        After the last whole round; after Ctrl-C that of the last one done.
    info : EMInfo

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``natural_steps`` and ``fit``.

    Examples
    --------
    >>> sites = fs.convert(model, fs.AbsorbedDualSites)
    >>> trained, info = fs.em(sites, X, Y, rounds=2)
    >>> fs.elbo(trained, X, Y) > fs.elbo(sites, X, Y)
    True
    """
    X, Y = whole("X", data_rows("X", X)), whole("Y", data_rows("Y", Y))
    batch_size = EMSiteOptions(**options).batch_size
    rounds, settings = (
        check.whole("rounds", rounds, 0),
        _Settings(
            check.whole("e_limit", e_limit),
            _tolerance("e_tolerance", e_tolerance),
            check.whole("m_iterations", m_iterations, 0),
            check.scalar("step_size", step_size),
            optimiser,
            as_names(fixed),
            _tolerance("tolerance", tolerance),
            rng,
            None if batch_size is None else check.whole("batch_size", batch_size),
        ),
    )
    if optimiser is not None:
        check_offered("em: `optimiser`", optimiser)
    if callback is not None and not callable(callback):
        raise TypeError(f"em: `callback` must be a function, got {callback!r}")
    if not 0 < settings.step_size <= 1:
        raise ValueError(
            f"em: `step_size` must be above 0 and at most 1, got {settings.step_size:g}"
        )
    dtype = _dtype(model, X, Y)
    if not isinstance(rng, (int, np.integer)) or isinstance(rng, bool) or rng < 0:
        raise TypeError(f"em: `rng` must be a whole number from 0, a seed, got {rng!r:.100}")
    resume = None if resume is None else files.as_path("em: `resume`", resume)
    about = (
        {"data": data_digests.of(X=X, Y=Y)} if checkpoint is not None or resume is not None else {}
    )
    course = {
        name: getattr(settings, name)
        for name in ("e_limit", "e_tolerance", "m_iterations", "step_size", "optimiser")
    }
    moved = [
        path
        for path in free_paths(model, settings.fixed)
        if path.partition(".")[0] not in ("posterior", "sites")
    ]
    about["settings"] = asked.settings(
        total=rounds, **course, moved=moved, jitter=jitter, rng=int(rng)
    )
    none = Rounds(np.zeros(0), np.zeros(0), np.zeros(0))
    sizes: dict[str, Any] = {"num_data": len(X), "batch_size": batch_size or len(X)}
    state = started(TrainingState(model, natural=none, seed=int(rng), **sizes, **about), resume)
    state = replace(state, model=settled(state.model, dtype))
    plan = Plan(rounds, callback, None, 0.0, 0.0, None, None, Checkpoints(checkpoint, None, resume))
    steps = _Rounds(state, X, Y, settings, check.jitter_amount(jitter, dtype))
    found, info = Recorder(state, steps, plan).run()
    told = {
        name: getattr(steps.rounds, name)[: info.steps]
        for name in ("e_values", "e_steps", "m_evaluations")
    }
    told |= {name: told[name].astype(int) for name in ("e_steps", "m_evaluations")}
    return found, EMInfo(
        **{f.name: getattr(info, f.name) for f in dataclasses.fields(FitInfo)}, **told
    )


for kind in SITES_OF:
    serves = models.with_options(EMSiteOptions)(partial(em.__wrapped__))  # type: ignore[attr-defined]
    models.register(kind, em=serves)


def _dtype(model, X, Y):
    """The dtype in which bounds of a model compute, which is checked."""
    if type(model) in SITES_OF:
        return checked(model, X, Y, None)[1].dtype
    return check.svgp(model, X, Y)[-1]


def _tolerance(name, value):
    value = check.scalar(name, value)
    if value < 0:
        raise ValueError(f"em: `{name}` must be zero or more, got {value:g}")
    return value


@dataclasses.dataclass(frozen=True)
class _Settings:
    e_limit: int
    e_tolerance: float
    m_iterations: int
    step_size: float
    optimiser: Any
    fixed: tuple
    tolerance: float
    rng: Any  # a seed
    batch_size: int | None


class _Rounds(Steps):
    """Rounds from ``state``, a ``TrainingState``; nothing is updated in place."""

    unit = "round"

    def __init__(self, state, X, Y, options, jitter):
        self._X, self._Y, self._options, self._jitter, self._seed = (
            X,
            Y,
            options,
            jitter,
            state.seed,
        )
        self._last = (
            None if state.values is None or not len(state.values) else float(state.values[-1])
        )
        self._of_sites = type(state.model) in SITES_OF
        self._held = (*options.fixed, "sites" if self._of_sites else "posterior")
        self._move_to(state.model, state.natural)

    def _move_to(self, model, rounds):
        self._model, self.rounds = model, rounds
        self.snapshot = Snapshot(lambda: model, lambda: {"natural": rounds})

    def run(self, count, record):
        for _ in range(count):
            value, size = self._round()
            rise, self._last = math.inf if self._last is None else value - self._last, value
            done = float(len(self.rounds.e_values))
            record(
                value,
                False,
                epoch=done,
                step_size=None,
                natural_step_size=size,
                jitter=self._jitter,
            )
            if rise < self._options.tolerance:
                return

    def _round(self):
        o = self._options
        model, infos = (self._e_step if o.batch_size is None else self._e_step_by_batches)()
        after_e, _ = self._bound(model, ())
        model, value, evaluations = (self._by_lbfgs if o.optimiser is None else self._by_optimiser)(
            model, after_e
        )
        told = zip(
            ("e_values", "e_steps", "m_evaluations"),
            (after_e, len(infos), evaluations),
            strict=True,
        )
        self._move_to(
            model,
            Rounds(**{name: np.append(getattr(self.rounds, name), float(x)) for name, x in told}),
        )
        return value, infos[-1].step_size if infos else 0.0

    def _e_step(self):
        o = self._options
        return natural_steps(
            self._model,
            self._X,
            self._Y,
            steps=o.e_limit,
            step_size=o.step_size,
            jitter=self._jitter,
            rng=o.rng,
            monotone=True,
            tolerance=o.e_tolerance,
        )

    def _e_step_by_batches(self):
        o, model, size, infos = self._options, self._model, self._options.step_size, []
        value, N = self._bound(model, ())[0], len(self._X)
        for epoch in range(o.e_limit):
            order = np.random.default_rng(
                (self._seed, len(self.rounds.e_values), epoch)
            ).permutation(N)
            batches = (order[start : start + o.batch_size] for start in range(0, N, o.batch_size))
            try:
                moved, told = natural_steps(
                    model,
                    self._X,
                    self._Y,
                    rows=batches,
                    step_size=size,
                    jitter=self._jitter,
                    rng=o.rng,
                )
                after = self._bound(moved, ())[0]
            except (Diverged, InvalidSites) as error:
                log.debug(
                    "em: an epoch of steps of %g went too far and is taken back (%s)",
                    size,
                    str(error).split(". ")[0],
                )
                size /= 2
                continue
            if not no_lower(after, value, self._X.dtype):
                size /= 2
                continue
            infos += told
            rise, value, model = after - value, after, moved
            if rise < o.e_tolerance:
                break
        return model, infos

    def _bound(self, model, wrt):
        bound = site_bound_and_grad if self._of_sites else elbo_and_grad
        return bound(model, self._X, self._Y, jitter=self._jitter, rng=self._options.rng, wrt=wrt)

    def _by_lbfgs(self, model, value):
        from scipy.optimize import minimize

        vector, unravel = ravel(model, fixed=self._held)
        best = {"value": value, "model": model}
        if not unravel.paths or not self._options.m_iterations:
            return model, value, 0

        def loss(vector):
            """Minus the bound; where it cannot be computed, something worse than the best, and the line search comes back."""
            there = unravel(devices.like(vector, unravel.home))
            try:
                value, grad = self._bound(there, unravel.paths)
                flat = unravel.pullback(devices.like(vector, unravel.home), grad)
                flat = -(flat.get() if on_device(flat) else flat)
                # to interpolate 1e200 is not to move at all
                worst = best["value"] - 10 * max(1.0, abs(best["value"]))
                if math.isfinite(value) and value > worst and np.isfinite(flat).all():
                    if value > best["value"]:
                        best.update(value=value, model=there)
                    return -value, flat
            except (NotPositiveDefinite, InvalidSites, Diverged, BadEntry) as error:
                log.debug(
                    "em: the line search went too far and comes back (%s)",
                    str(error).split(". ")[0],
                )
            return -best["value"] + max(1.0, abs(best["value"])), np.zeros_like(vector)

        with blas_threads_for((model, self._X)):
            start = vector.get() if on_device(vector) else vector
            options = {"maxiter": self._options.m_iterations, "maxcor": 20}
            found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return best["model"], best["value"], found.nfev

    def _by_optimiser(self, model, value):
        optimiser = self._options.optimiser.fixing(self._held)
        state, paths = optimiser.init(model), optimiser.paths(model)
        for _ in range(self._options.m_iterations if paths else 0):
            value, grad = self._bound(model, paths)
            model, state = optimiser.step(model, grad, state, value)
        return model, self._bound(model, ())[0], self._options.m_iterations
