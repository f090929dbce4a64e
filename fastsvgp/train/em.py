"""EM training: E-steps of q(u) to convergence, M-steps with q(u) or its sites held fixed.

With fixed sites the prior can move under them. At each value of the hyperparameters their M-step
bound is closer to the optimum over q(u) than that of a fixed q(u), and two or three rounds do what
takes dozens otherwise (Adam et al. 2021, section 3.1).
"""

import logging
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import check, files, models
from ..bounds.objectives import elbo_and_grad
from ..bounds.protocol import kind_of
from ..bounds.svgp import SVGP
from ..errors import BadEntry, Diverged, InvalidSites, NotPositiveDefinite
from ..files import Path
from ..latents.model import MultiGP
from ..optim.base import check_offered
from ..optim.flat import as_names, free_paths, ravel
from ..optim.natural.backtracking import non_decreasing
from ..posteriors.gaussian_factor import GaussianFactor
from ..posteriors.locate import paths_of_q, posteriors_of
from ..records import leaf, matches, record, replace
from ..records.typed import ArrayLike, Moves, Names, RecordT, Seed, Vector
from ..runtime import devices
from ..runtime.blas_scope import blas_threads_for
from ..runtime.deferred_checks import on_device
from ..runtime.edge import public_call
from ..sites.models import SITES_OF
from ..sites.site_svgp import bound_and_grad, check_site_model
from . import comparison, data_digests
from .arguments import Callback, rows as data_rows
from .batches import whole
from .checkpoints import Checkpoints
from .info import FitInfo
from .loop import LoopOptions, Recorder
from .natural_steps import natural_steps
from .state import TrainingState, cast_model, started
from .steps.base import Snapshot, Steps

log = logging.getLogger("fastsvgp")


@dataclass(frozen=True)
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


@public_call(SVGP, checks=False, blas_threads=False)
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
    batch_size: int | None = None,
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
    batch_size : int, optional
        Rows per batch of the E-steps, for a ``SiteSVGP`` or ``VGP``. An E-step passes over the data
        in random batches, each of which updates its own sites; ``e_limit`` counts these epochs. An
        epoch that lowers the bound is undone and repeated with half the step size. Default: all
        rows at once.

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
    >>> sites = fs.posteriors.convert(model, fs.posteriors.AbsorbedDualSites)
    >>> trained, info = fs.em(sites, X, Y, rounds=2)
    >>> fs.elbo(trained, X, Y) > fs.elbo(sites, X, Y)
    True
    """
    X, Y = whole("X", data_rows("X", X)), whole("Y", data_rows("Y", Y))
    if batch_size is not None and type(model) not in SITES_OF:
        raise TypeError(
            "em: `batch_size` is for a SiteSVGP or VGP, whose sites move batch by batch; a"
            f" {type(model).__name__} has none, so leave it out"
        )
    batch_size = None if batch_size is None else check.whole("batch_size", batch_size)
    rounds, tolerance = check.whole("rounds", rounds, 0), _tolerance("tolerance", tolerance)
    course = {
        "e_limit": check.whole("e_limit", e_limit),
        "e_tolerance": _tolerance("e_tolerance", e_tolerance),
        "m_iterations": check.whole("m_iterations", m_iterations, 0),
        "step_size": check.scalar("step_size", step_size),
        "optimiser": optimiser,
    }
    if optimiser is not None:
        check_offered("em: `optimiser`", optimiser)
    if callback is not None and not callable(callback):
        raise TypeError(f"em: `callback` must be a function, got {callback!r:.80}")
    if not 0 < step_size <= 1:
        raise ValueError(f"em: `step_size` must be above 0 and at most 1, got {step_size:g}")
    dtype = _dtype(model, X, Y)
    if not isinstance(rng, (int, np.integer)) or isinstance(rng, bool) or rng < 0:
        raise TypeError(f"em: `rng` must be a whole number from 0, a seed, got {rng!r:.100}")
    resume = None if resume is None else files.as_path("em: `resume`", resume)
    unsaved = checkpoint is None and resume is None
    digests = {} if unsaved else {"data": data_digests.compute(X=X, Y=Y)}
    fixed = as_names(fixed)
    moved = [path for path in free_paths(model, fixed) if not matches(path, paths_of_q(model))]
    none, size = Rounds(np.zeros(0), np.zeros(0), np.zeros(0)), batch_size or len(X)
    settings = comparison.settings(
        total=rounds, num_data=len(X), batch_size=size, moved=moved, jitter=jitter, rng=int(rng),
        **course,
    )  # fmt: skip
    fresh = TrainingState(model, natural=none, settings=settings, seed=int(rng), **digests)
    state = started(fresh, resume)
    state = replace(state, model=cast_model(state.model, dtype))
    plan = LoopOptions(rounds, Checkpoints(checkpoint, None, resume), callback)
    course |= {"fixed": fixed, "tolerance": tolerance, "batch_size": batch_size}
    steps = EMSteps(state, X, Y, check.jitter_amount(jitter, dtype), course)
    found, info = Recorder(state, steps, plan).run()
    return found, _info(info, steps.rounds)


for kind in (MultiGP, *SITES_OF):
    models.share(kind, SVGP, "em")


def _dtype(model, X, Y):
    """Check the model and the data; return the dtype of the bound."""
    if type(model) in SITES_OF:
        return check_site_model(model, X, Y, None)[1].dtype
    dtype = kind_of(model).checked(model, X, Y)[-1]
    for path, q in posteriors_of(model).items():
        if path != "posterior" and not isinstance(q, GaussianFactor):
            raise TypeError(
                f"em: {path!r} is a {type(q).__name__}, and M-steps of a MultiGP hold a mean and a"
                " factor: use Whitened or Marginal in every layer"
            )
    return dtype


def _tolerance(name, value):
    value = check.scalar(name, value)
    if value < 0:
        raise ValueError(f"em: `{name}` must be zero or more, got {value:g}")
    return value


def _info(info, rounds):
    """Return the ``EMInfo`` of a training, with the entries of its complete rounds."""
    columns = {
        "e_values": rounds.e_values,
        "e_steps": rounds.e_steps.astype(int),
        "m_evaluations": rounds.m_evaluations.astype(int),
    }
    return EMInfo(**vars(info), **{name: one[: info.steps] for name, one in columns.items()})


@record
class Rounds:
    """Per round: the bound after the E-step, its natural steps, evaluations of the M-step."""

    e_values: Any = leaf()
    e_steps: Any = leaf()
    m_evaluations: Any = leaf()


class EMSteps(Steps):
    """Rounds from ``state``, a ``TrainingState``, without updates in place.

    ``options`` are arguments of ``em``, with ``fixed``, ``tolerance`` and ``batch_size``.
    """

    unit = "round"

    def __init__(self, state, X, Y, jitter, options):
        self._X, self._Y, self._options = X, Y, SimpleNamespace(**options)
        self._jitter, self._seed = jitter, state.seed
        self._last = (
            None if state.values is None or not len(state.values) else float(state.values[-1])
        )
        self._of_sites = type(state.model) in SITES_OF
        self._held = (*self._options.fixed, *paths_of_q(state.model))
        self._move_to(state.model, state.natural)

    def _move_to(self, model, rounds):
        self._model, self.rounds = model, rounds
        self.snapshot = Snapshot(lambda: model, lambda: {"natural": rounds})

    def run(self, count, record):
        for _ in range(count):
            value, size = self._round()
            rise, self._last = math.inf if self._last is None else value - self._last, value
            done = float(len(self.rounds.e_values))
            step_info = {"step_size": None, "natural_step_size": size, "jitter": self._jitter}
            record(value, False, epoch=done, **step_info)
            if rise < self._options.tolerance:
                return

    def _round(self):
        o = self._options
        model, infos = (self._e_step if o.batch_size is None else self._e_step_by_batches)()
        after_e, _ = self._bound(model, ())
        model, value, evaluations = (
            self._m_step_by_lbfgs if o.optimiser is None else self._m_step_by_optimiser
        )(model, after_e)
        done, new = self.rounds, (after_e, float(len(infos)), float(evaluations))
        columns = zip((done.e_values, done.e_steps, done.m_evaluations), new, strict=True)
        self._move_to(model, Rounds(*(np.append(column, number) for column, number in columns)))
        return value, infos[-1].step_size if infos else 0.0

    def _e_step(self):
        o = self._options
        options = {"steps": o.e_limit, "monotone": True, "tolerance": o.e_tolerance}
        return self._natural_steps(self._model, o.step_size, **options)

    def _natural_steps(self, model, step_size, **options):
        shared = {"step_size": step_size, "jitter": self._jitter, "rng": self._seed}
        return natural_steps(model, self._X, self._Y, **shared, **options)

    def _e_step_by_batches(self):
        o, model, size, infos = self._options, self._model, self._options.step_size, []
        value, N = self._bound(model, ())[0], len(self._X)
        for epoch in range(o.e_limit):
            seed = self._seed, len(self.rounds.e_values), epoch
            order = np.random.default_rng(seed).permutation(N)
            batches = (order[start : start + o.batch_size] for start in range(0, N, o.batch_size))
            try:
                moved, of_epoch = self._natural_steps(model, size, rows=batches)
                after = self._bound(moved, ())[0]
            except (Diverged, InvalidSites) as error:
                after, problem = -math.inf, str(error).split(". ")[0]
                log.debug("em: an epoch of steps of %g is taken back (%s)", size, problem)
            if not non_decreasing(after, value, self._X.dtype):
                size /= 2
                continue
            infos += of_epoch
            rise, value, model = after - value, after, moved
            if rise < o.e_tolerance:
                break
        return model, infos

    def _bound(self, model, wrt):
        bound = bound_and_grad if self._of_sites else elbo_and_grad
        return bound(model, self._X, self._Y, jitter=self._jitter, rng=self._seed, wrt=wrt)

    def _m_step_by_lbfgs(self, model, value):
        from scipy.optimize import minimize

        vector, unravel = ravel(model, fixed=self._held)
        best = {"value": value, "model": model}
        if not unravel.paths or not self._options.m_iterations:
            return model, value, 0

        def loss(vector):
            """Return minus the bound, or, if it cannot be computed, a value worse than the best.

            The line search then backtracks.
            """
            there = unravel(devices.copy_to(vector, unravel.device_like))
            try:
                value, grad = self._bound(there, unravel.paths)
                flat = unravel.pullback(devices.copy_to(vector, unravel.device_like), grad)
                flat = -(flat.get() if on_device(flat) else flat)
                # the line search would interpolate 1e200 to no step at all
                worst = best["value"] - 10 * max(1.0, abs(best["value"]))
                if math.isfinite(value) and value > worst and np.isfinite(flat).all():
                    if value > best["value"]:
                        best.update(value=value, model=there)
                    return -value, flat
            except (NotPositiveDefinite, InvalidSites, Diverged, BadEntry) as error:
                problem = str(error).split(". ")[0]
                log.debug("em: the line search went too far and comes back (%s)", problem)
            return -best["value"] + max(1.0, abs(best["value"])), np.zeros_like(vector)

        with blas_threads_for((model, self._X)):
            start = vector.get() if on_device(vector) else vector
            options = {"maxiter": self._options.m_iterations, "maxcor": 20}
            found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options)
        return best["model"], best["value"], found.nfev

    def _m_step_by_optimiser(self, model, value):
        optimiser = self._options.optimiser.fixing(self._held)
        state, paths = optimiser.init(model), optimiser.paths(model)
        for _ in range(self._options.m_iterations if paths else 0):
            value, grad = self._bound(model, paths)
            model, state = optimiser.step(model, grad, state, value)
        return model, self._bound(model, ())[0], self._options.m_iterations
