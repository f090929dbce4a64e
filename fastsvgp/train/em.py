"""EM training: E-steps of q(u) to convergence, M-steps with q(u) or its sites held fixed.

With fixed sites the prior can move under them. At each value of the hyperparameters their M-step
bound is closer to the optimum over q(u) than that of a fixed q(u), and two or three rounds do what
takes dozens otherwise (Adam et al. 2021, section 3.1).
"""

import dataclasses
from functools import partial
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

from .. import check, files, models
from ..bounds.svgp import SVGP
from ..files import Path
from ..latents.model import MultiGP
from ..optim.base import check_offered
from ..optim.flat import as_names, free_paths
from ..posteriors.placed import paths_of_q
from ..records import matches, replace
from ..records.typed import ArrayLike, Moves, Names, RecordT, Seed, Vector
from ..runtime.edge import public_call
from ..sites.models import SITES_OF
from ..sites.site_svgp import SiteSVGP, checked
from ..sites.vgp import VGP
from . import comparison, data_digests
from .arguments import Callback, rows as data_rows
from .batches import whole
from .checkpoints import Checkpoints
from .info import FitInfo
from .kinds.latents import checked_for_em
from .loop import LoopOptions, Recorder
from .state import TrainingState, cast_model, started
from .steps.em import EMSettings, EMSteps, Rounds


@dataclasses.dataclass(frozen=True)
class EMInfo(FitInfo):
    """As ``FitInfo`` with rounds for steps: ``values`` are the bound after each M-step.

    Attributes
    ----------
    e_values : (rounds,) array
        Bound after each E-step.
    e_steps, m_evaluations : (rounds,) arrays of int
        Natural steps of each E-step, without those that were undone; evaluations of bound and
        gradient in each M-step.
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
        Rows per batch of the E-steps. An E-step passes over the data in random batches, each of
        which updates its own sites; ``e_limit`` counts these epochs. An epoch that lowers the bound
        is undone and repeated with half the step size. Default: all rows at once.
    """

    batch_size: int | None = None


class EMArguments(TypedDict, total=False):
    """Arguments of ``em`` for all kinds of model."""

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
    """Train by EM on all data.

    E-steps are natural steps of q(u) to convergence. M-steps optimise everything else, with q(u) or
    its sites held fixed.

    Parameters
    ----------
    model : SVGP, MultiGP, SiteSVGP or VGP
        An SVGP must have an ``AbsorbedDualSites`` posterior (the fewest rounds), or ``DualSites``,
        ``Whitened`` or ``Marginal``; each layer of a MultiGP one of the last two.
    X : (N, D) array
    Y : (N,) or (N, P) array
    rounds : int
        Largest number of rounds.
    e_limit, e_tolerance : int, float
        An E-step ends when the bound rises by less than ``e_tolerance``, or after ``e_limit``
        natural steps.
    m_iterations : int
        Iterations of L-BFGS-B, or steps of ``optimiser``, in each M-step.
    step_size : float
        Size of natural steps, in (0, 1]; halved if the bound would fall.
    optimiser : Optimiser, optional
        Optimiser of M-steps in place of L-BFGS-B, such as ``fs.adam(...)``. The bound can then
        fall.
    fixed : str or sequence of str
        Dotted paths of fields that M-steps hold fixed.
    tolerance : float
        Stop when a round raises the bound by less.
    jitter : float, optional
        As in ``elbo``.
    rng : int
        Seed of likelihoods that sample. The points stay the same, so all steps increase one
        function.
    callback : function ``(round, value, info)``, optional
        Called after each round, as in ``fit``. Return True to stop training.
    checkpoint, resume : path, optional
        As in ``fit``.
    **options
        Options of one kind of model: ``batch_size`` for a ``SiteSVGP`` or ``VGP``, documented in
        the record ``EMSiteOptions`` of the reference; ``fs.models.options(fs.VGP, "em")`` lists
        them.

    Returns
    -------
    model : of the same type
        Model after the last complete round, also after Ctrl-C.
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
    settings = EMSettings(
        check.whole("rounds", rounds, 0),
        check.whole("e_limit", e_limit),
        _tolerance("e_tolerance", e_tolerance),
        check.whole("m_iterations", m_iterations, 0),
        check.scalar("step_size", step_size),
        optimiser,
        as_names(fixed),
        _tolerance("tolerance", tolerance),
        jitter,
        rng,
        None if batch_size is None else check.whole("batch_size", batch_size),
    )
    _check(settings, callback)
    dtype = _dtype(model, X, Y)
    if not isinstance(rng, (int, np.integer)) or isinstance(rng, bool) or rng < 0:
        raise TypeError(f"em: `rng` must be a whole number from 0, a seed, got {rng!r:.100}")
    resume = None if resume is None else files.as_path("em: `resume`", resume)
    state = _started(model, X, Y, settings, checkpoint, resume)
    state = replace(state, model=cast_model(state.model, dtype))
    checkpoints = Checkpoints(checkpoint, None, resume)
    plan = LoopOptions(settings.rounds, callback, None, 0.0, 0.0, None, None, checkpoints)
    steps = EMSteps(state, X, Y, settings, check.jitter_amount(jitter, dtype))
    found, info = Recorder(state, steps, plan).run()
    return found, _info(info, steps.rounds)


for kind in SITES_OF:
    unwrapped = em.__wrapped__  # type: ignore[attr-defined]
    serves = models.with_options(EMSiteOptions)(partial(unwrapped))
    models.register(kind, em=serves)


def _check(settings, callback):
    if settings.optimiser is not None:
        check_offered("em: `optimiser`", settings.optimiser)
    if callback is not None and not callable(callback):
        raise TypeError(f"em: `callback` must be a function, got {callback!r:.80}")
    if not 0 < settings.step_size <= 1:
        raise ValueError(
            f"em: `step_size` must be above 0 and at most 1, got {settings.step_size:g}"
        )


def _dtype(model, X, Y):
    """Check the model and the data; return the dtype of the bound."""
    if type(model) in SITES_OF:
        return checked(model, X, Y, None)[1].dtype
    return checked_for_em(model, X, Y) if type(model) is MultiGP else check.svgp(model, X, Y)[-1]


models.register(MultiGP, em=em.__wrapped__)  # type: ignore[attr-defined]


def _tolerance(name, value):
    value = check.scalar(name, value)
    if value < 0:
        raise ValueError(f"em: `{name}` must be zero or more, got {value:g}")
    return value


def _started(model, X, Y, settings, checkpoint, resume):
    """Return the ``TrainingState`` at the start, or that of the checkpoint to resume."""
    about = (
        {"data": data_digests.of(X=X, Y=Y)} if checkpoint is not None or resume is not None else {}
    )
    course = {
        name: getattr(settings, name)
        for name in ("e_limit", "e_tolerance", "m_iterations", "step_size", "optimiser")
    }
    moved = [
        path for path in free_paths(model, settings.fixed) if not matches(path, paths_of_q(model))
    ]
    seed, size = int(settings.rng), settings.batch_size or len(X)
    about["settings"] = comparison.settings(
        total=settings.rounds, **course, moved=moved, jitter=settings.jitter, rng=seed
    )
    none = Rounds(np.zeros(0), np.zeros(0), np.zeros(0))
    fresh = TrainingState(model, natural=none, seed=seed, num_data=len(X), batch_size=size, **about)
    return started(fresh, resume)


def _info(info, rounds):
    """Return the ``EMInfo`` of a training, with the entries of its complete rounds."""
    columns = {
        name: getattr(rounds, name)[: info.steps]
        for name in ("e_values", "e_steps", "m_evaluations")
    }
    columns |= {name: columns[name].astype(int) for name in ("e_steps", "m_evaluations")}
    return EMInfo(**{f.name: getattr(info, f.name) for f in dataclasses.fields(FitInfo)}, **columns)
