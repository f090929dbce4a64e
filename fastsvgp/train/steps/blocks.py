"""Steps of ``optimal_weights`` by blocks: each solves for the dual variables of some rows."""

import logging
import math

import numpy as np

from ... import check
from ...errors import BadEntry
from ...qsgp import model as qsgp
from ...qsgp.closed_form import WeightsInfo, with_mean
from ...records import leaf, record, replace, static
from ...records.typed import Array, Vector
from ...runtime import devices
from ...runtime.deferred_checks import confirmed
from ..batches import Batches
from .base import Snapshot, Steps

log = logging.getLogger("fastsvgp")
ROUNDINGS = 10  # residual, in roundings of the dtype, with which the steps end in any case


class Blocks(Batches):
    """Batches that divide each epoch evenly, so that an epoch has each row once."""

    def reseeded(self, seed):
        return Blocks(self._data["X"], self._data["Y"], self.size, seed)

    def _rows(self, step):
        epoch, at = divmod(step, self.per_epoch)
        edges = np.arange(self.per_epoch + 1) * self.num_data // self.per_epoch
        return np.sort(self._order(epoch)[edges[at] : edges[at + 1]]), False


@record
class DualState:
    """State of the blocks: dual variables, the mean in float64, and the residuals.

    Parameters
    ----------
    dual : (N,)
    mean : (m,), optional
        None if the dual variables are the mean.
    kept_dual, kept_mean : optional
        Both at the end of the last epoch, while it can still be undone.
    squares, targets : float
        Squared residuals of the blocks of this epoch so far, as they were when their turn came, and
        squared targets, of the first epoch.
    residuals : (epochs,)
        Their norms, relative to that of the targets.
    products : bool
        Whether blocks take phi_r phi_r'.
    discarded : int
        The epoch, from 1, that was undone; 0 for none.
    """

    dual: Array = leaf()
    mean: Array | None = leaf(default=None)
    kept_dual: Array | None = leaf(default=None)
    kept_mean: Array | None = leaf(default=None)
    squares: float = leaf(default=0.0)
    targets: float = leaf(default=0.0)
    residuals: Vector | None = leaf(default=None)
    products: bool = static(default=False)
    discarded: int = static(default=0)


class BlockSteps(Steps):
    """Steps from ``state``, a ``TrainingState`` with a ``DualState`` as its ``natural``.

    A step never writes to the arrays of the last one.
    """

    unit = "block"

    def __init__(self, state, batches, system, tolerance):
        self._given, self._batches, self._system = state.model, batches, system
        self._dtype, self._step = state.model.posterior.mean.dtype, state.step
        self._tolerance = max(tolerance, ROUNDINGS * float(np.finfo(self._dtype).eps))
        self._gains = [] if state.values is None else [float(gain) for gain in state.values]
        self._move_to(state.natural)

    def _move_to(self, now):
        self._now, given = now, self._given
        mean = now.dual if now.mean is None else now.mean
        self.snapshot = Snapshot(lambda: with_mean(given, mean), lambda: {"natural": now})

    def info(self):
        """Return the ``WeightsInfo`` of the steps so far."""
        now = self._now
        residuals = tuple(float(one) for one in now.residuals)
        residual = residuals[-1] if residuals else 1.0
        return WeightsInfo(
            len(self._gains), residual, self._gains, residuals, now.products, now.discarded or None
        )

    def run(self, count, record):
        for _ in range(count):
            if self._step % self._batches.per_epoch == 0 and self._converged():
                return
            size = self._take()
            epoch = self._step / self._batches.per_epoch
            entries = {"step_size": size, "natural_step_size": None, "jitter": 0.0, "epoch": epoch}
            record(self._gains[-1], False, **entries)

    def _converged(self):
        found = self._now.residuals
        return bool(len(found)) and found[-1] <= self._tolerance

    def _take(self):
        """Solve for one block; return the size of its step."""
        now, at = self._now, self._step % self._batches.per_epoch
        data, rows = self._batches.at(self._step), self._batches.rows(self._step)
        rows = devices.like(rows, now.dual)
        try:
            step, squares, targets = confirmed(self._solved, (rows, *data), {})
        except BadEntry as error:
            self._batches.locate(error, self._step)
            raise
        if not math.isfinite(step.gain):
            what = f"optimal_weights: block {self._step + 1} moved the dual by {step.gain} nats"
            raise check.diverged(what, self._given)
        kept = {}
        if at == 0 and not (now.products or self._system.exact):
            kept = {"kept_dual": now.dual, "kept_mean": now.mean}
        dual = now.dual.copy()
        dual[rows] += step.dual
        now = replace(
            now,
            **kept,
            dual=dual,
            mean=None if step.mean is None else now.mean + step.mean,
            squares=now.squares + squares,
            targets=now.targets + (targets if self._step == at else 0.0),
        )
        self._gains.append(step.gain)
        self._step += 1
        self._move_to(self._after_epoch(now) if at == self._batches.per_epoch - 1 else now)
        return step.size

    def _solved(self, rows, X, Y):
        """Return the ``BlockStep`` of some rows, their squared residual, and squared targets."""
        now = self._now
        _, X, Y, _ = qsgp.checked_data(self._given, X, Y)
        mean = now.dual if now.mean is None else now.mean
        residual = self._system.residual(X, Y.astype(np.float64), now.dual[rows], mean)
        step = self._system.step(X, residual, now.products)
        return step, _sum_of_squares(residual), _sum_of_squares(Y)

    def _after_epoch(self, now):
        """Return the state after an epoch; undo it if its residual has risen."""
        found = _relative(now.squares, now.targets)
        before = now.residuals[-1] if len(now.residuals) else 1.0
        done = replace(now, residuals=np.append(now.residuals, found), squares=0.0)
        none = {"kept_dual": None, "kept_mean": None}
        if now.kept_dual is None or found < before or found <= self._tolerance:
            return replace(done, **none)
        back = {"dual": now.kept_dual, "mean": now.kept_mean, "residuals": now.residuals}
        epoch = self._step // self._batches.per_epoch
        log.warning(
            "optimal_weights: the residual rose to %.3g of its start in epoch %d, which is undone;"
            " from now on blocks take the products of their features, which is slower",
            found,
            epoch,
        )
        return replace(done, **none, **back, products=True, discarded=epoch)


def _relative(squares, targets):
    return math.sqrt(squares / targets) if targets else 0.0


def _sum_of_squares(values):
    return float(np.square(values, dtype=np.float64).sum())
