"""Optimal weights with Gaussian noise, by conjugate gradients or by blocks of data."""

import logging
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from .. import check, files
from ..files import Path
from ..qsgp import model as qsgp
from ..qsgp.closed_form import (
    WeightsInfo,
    diagonal_from,
    noise_of,
    replace_mean,
    solve_by_conjugate_gradients,
)
from ..qsgp.dual_blocks import blocks_of
from ..qsgp.model import QSGP
from ..records import leaf, record, replace, static
from ..records.typed import Array, RecordT, Seed, Vector
from ..runtime import devices, tuning
from ..runtime.deferred_checks import confirm
from ..runtime.edge import public_call, run
from . import comparison, data_digests
from .arguments import Data, count, given_seed, rows_of_both, seed_of
from .batches import Batches, locate_inputs, locating
from .checkpoints import Checkpoints
from .kinds.qsgp import cast_to_first
from .loop import LoopOptions, Recorder
from .state import TrainingState, begin
from .steps import Snapshot, Steps

log = logging.getLogger("fastsvgp")
METHODS = "conjugate_gradients", "blocks"
ITERATIONS, EPOCHS = 100, 10
SHARE = 8  # functions per row of a block by default, within the limits of ``tuning``
FEW = 2  # phi_r phi_r' is taken from the start with at most this number of functions per row
ROUNDINGS = 10  # residual, in roundings of the dtype, with which the steps end in any case


@public_call(QSGP, checks=False, blas_threads=False)
def optimal_weights(
    model: RecordT,
    X: Data,
    Y: Data,
    *,
    method: Literal["conjugate_gradients", "blocks"] = "conjugate_gradients",
    iterations: int | None = None,
    block: int | None = None,
    epochs: int | None = None,
    rng: Seed = None,
    tolerance: float = 1e-6,
    jitter: float | None = None,
    callback: Callable[[RecordT, WeightsInfo], object] | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    resume: Path | None = None,
) -> tuple[RecordT, WeightsInfo]:
    """Maximise the bound with Gaussian noise in the mean of the weights and the diagonal of C.

    Parameters
    ----------
    model : QSGP
        With ``Gaussian`` noise. Conjugate gradients start at its mean, blocks at zero.
    X : (N, D) array
    Y : (N,) array
        All data. Blocks read them block by block from any container that ``fit`` takes, such as
        ``numpy.memmap``.
    method : {"conjugate_gradients", "blocks"}
        "conjugate_gradients": products with all data and all functions, for any basis. "blocks":
        solve for the dual variables of a block of rows at a time, in random order. It needs fewer
        passes over the data. For a ``RandomFourier``, or an ``InducingBasis`` at the rows of X, in
        their order; then the system is without the jitter of S, (K + noise I) mean = Y.
    iterations : int, optional
        Largest number of conjugate-gradient iterations, default 100.
    block : int, optional
        Most rows in a block, at most N. Default: an eighth of the functions, from 500 to 2000; or
        N. Larger blocks need fewer epochs.
    epochs : int, optional
        Largest number of passes over the data by blocks, default 10.
    rng : None, int or numpy.random.Generator
        Seed of the order of the rows in blocks.
    tolerance : float
        Conjugate gradients: stop when the residual is this part of that of a mean of zeros. Blocks:
        stop after an epoch whose residual is this part of the norm of Y.
    jitter : float, optional
        As in ``qsgp.bound``.
    callback : function ``(model, info)``, optional
        Called after each iteration or block, with the mean so far; return True to stop.
    checkpoint, checkpoint_every, resume : optional
        As in ``fit``, in blocks; not for conjugate gradients.

    Returns
    -------
    model : QSGP
    info : WeightsInfo

    Raises
    ------
    ValueError, TypeError
        As ``qsgp.bound``; ``TypeError`` if the likelihood is not Gaussian, or the basis has no
        blocks; ``ValueError`` for arguments of the other method, and a block of more than N rows.
    NotPositiveDefinite
        The noise is too small for the covariance of a block.
    OSError, DataFileError, ValueError
        As ``fit``, for ``resume``.

    Notes
    -----
    Conjugate gradients: 4 m N flops per iteration and twice the features, in O(m) memory; for an
    ``InducingBasis`` m^2 covariances more. Blocks of b rows: per epoch 4 m N flops and twice the
    features (for an ``InducingBasis`` 2 N^2 and the covariances once), N b covariances, and N b^2 /
    3 flops, in O(m + N + b^2) memory. The diagonal then takes the features once more.

    The covariance of a block, k(X_r, X_r), stands in for phi_r phi_r', which costs 4 m b^2 flops;
    the length of each step makes up for the difference. With at most 2 b functions phi_r phi_r'
    itself is taken. If the norm of Y - phi mean - noise a, a the dual variables, does not fall
    in an epoch, this epoch is undone and phi_r phi_r' taken from then on: ``info.discarded``.
    Residuals are those of the blocks as their turn comes, so they cost no further pass. The bound
    at a mean with the residual r is at most r' r / (2 noise) nats below its optimum.

    Ctrl-C between two iterations or blocks stops as the tolerance does. Source: Evans and Nair
    2018, equation 2 and Proposition 1; ``fastsvgp.qsgp.dual_blocks`` derives the blocks.

    Examples
    --------
    >>> best, info = fs.qsgp.optimal_weights(weights, X, Y)
    >>> info.residual < 1e-6, fs.qsgp.bound(best, X, Y) > fs.qsgp.bound(weights, X, Y)
    (True, True)
    >>> again, info = fs.qsgp.optimal_weights(
    ...     weights, X, Y, method="blocks", block=20, epochs=200, rng=0
    ... )
    >>> np.allclose(again.posterior.mean, best.posterior.mean, atol=1e-4)
    True
    """
    if not isinstance(method, str) or method not in METHODS:
        raise ValueError(
            f"optimal_weights: `method` must be one of {', '.join(map(repr, METHODS))}, got"
            f" {method!r:.100}"
        )
    if callback is not None and not callable(callback):
        raise TypeError(f"optimal_weights: `callback` must be a function, got {callback!r:.200}")
    tolerance = check.scalar("tolerance", tolerance)
    of_blocks = {
        "block": block, "epochs": epochs, "rng": rng, "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every, "resume": resume,
    }  # fmt: skip
    if method == "blocks":
        _refuse(method, {"iterations": iterations})
        return _solve_by_blocks(model, X, Y, tolerance, jitter, callback, **of_blocks)
    _refuse(method, of_blocks)
    steps = ITERATIONS if iterations is None else check.whole("iterations", iterations, 0)
    settings = {"iterations": steps, "tolerance": tolerance, "jitter": jitter}
    return run(solve_by_conjugate_gradients, model, X, Y, callback=callback, **settings)


def _refuse(method, others):
    """Raise ``ValueError`` for arguments of the other method."""
    if given := [name for name, value in others.items() if value is not None]:
        other = next(one for one in METHODS if one != method)
        raise ValueError(
            f'optimal_weights: `{given[0]}` is for method="{other}"; leave it out with "{method}"'
        )


def _solve_by_blocks(
    model, X, Y, tolerance, jitter, callback, *,
    block, epochs, rng, checkpoint, checkpoint_every, resume,
):  # fmt: skip
    X, Y = rows_of_both("optimal_weights", X, Y)
    qsgp.check_parts(model)
    system = blocks_of(model.basis, noise_of("optimal_weights", model))
    batches = EpochBlocks(X, Y, _block(block, model.basis, len(X)), seed_of(rng))
    epochs = EPOCHS if epochs is None else check.whole("epochs", epochs, 0)
    total = epochs * batches.per_epoch
    resume = None if resume is None else files.as_path("optimal_weights: `resume`", resume)
    kept = checkpoint is not None or resume is not None
    about = {"data": data_digests.compute(X=X, Y=Y)} if kept else {}
    about["settings"] = comparison.settings(total=total, block=batches.size, rng=given_seed(rng))
    state, batches = begin(_fresh(model, system, batches, about), resume, batches)
    state, dtype = cast_to_first(state, batches)
    state = replace(state, natural=_move_dual(state.natural, state.model.posterior.mean))
    system = blocks_of(state.model.basis, float(noise_of("optimal_weights", state.model)))
    runs = _runs(len(X))
    if system.exact:
        _check_functions_at_rows(state.model.basis, batches, runs, dtype)
    steps = BlockSteps(state, batches, system, tolerance)
    checkpoints = Checkpoints(checkpoint, count("checkpoint_every", checkpoint_every), resume)
    shown = callback and (lambda step, value, seen: callback(seen.model, steps.info()))
    found, _ = Recorder(state, steps, LoopOptions(total, checkpoints, shown)).run()
    check.result(float(np.abs(found.posterior.mean).sum()), found)
    inputs = (_inputs(batches, one, dtype) for one in runs)
    return diagonal_from(found, inputs, 1.0, jitter), steps.info()


def _block(block, basis, N):
    """Return the number of rows of a block."""
    if block is None:
        least, most = tuning.current.fewest_block_rows, tuning.current.most_block_rows
        return min(N, max(least, min(most, basis.num_functions() // SHARE)))
    block = check.whole("block", block)
    if block > N:
        raise ValueError(f"optimal_weights: `block` is {block}, but there are {N} rows of data")
    return block


def _fresh(model, system, batches, about):
    """Return the state before the first block, with a mean of zeros."""
    m, N, device_like = model.basis.num_functions(), batches.num_data, devices.device_array(model)
    model.posterior.check_size(m)
    dual = DualState(
        dual=np.zeros(N, like=device_like),
        mean=None if system.exact else np.zeros(m, like=device_like),
        residuals=np.zeros(0),
        products=not system.exact and m <= FEW * batches.size,
    )
    start = replace_mean(model, np.zeros(m, like=device_like))
    return TrainingState(start, natural=dual, seed=batches.seed, **about)


def _move_dual(dual, device_like):
    """Return a ``DualState`` on the device of the model."""
    arrays = {name: getattr(dual, name) for name in ("dual", "mean", "kept_dual", "kept_mean")}
    arrays = {name: devices.copy_to(a, device_like) for name, a in arrays.items() if a is not None}
    return replace(dual, **arrays)


def _runs(N):
    """Return the numbers of rows of each chunk of the data."""
    size = tuning.current.weight_chunk_rows
    return [np.arange(at, min(at + size, N)) for at in range(0, N, size)]


def _inputs(batches, rows, dtype):
    """Return rows of X, checked."""
    with locating(locate_inputs, "X", rows):
        return check.inputs("X", batches.inputs(rows)).astype(dtype, copy=False)


def _check_functions_at_rows(basis, batches, runs, dtype):
    """Raise ``ValueError`` unless there is a function at each row of X, in their order."""
    m, N = basis.num_functions(), batches.num_data
    if m == N and all(basis.is_at(rows, _inputs(batches, rows, dtype)) for rows in runs):
        return
    what = f"{m} functions for {N} rows" if m != N else "other inputs, or another order"
    raise ValueError(
        'optimal_weights: method="blocks" needs `basis.inducing` to be X, row by row, but there are'
        f" {what}"
    )


class EpochBlocks(Batches):
    """Batches that divide each epoch evenly, so that an epoch has each row once."""

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
        self.snapshot = Snapshot(lambda: replace_mean(given, mean), lambda: {"natural": now})

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
            if self._step % self._batches.per_epoch == 0 and self._has_converged():
                return
            size = self._take()
            epoch = self._step / self._batches.per_epoch
            entries = {"step_size": size, "natural_step_size": None, "jitter": 0.0, "epoch": epoch}
            record(self._gains[-1], False, **entries)

    def _has_converged(self):
        found = self._now.residuals
        return bool(len(found)) and found[-1] <= self._tolerance

    def _take(self):
        """Solve for one block; return the size of its step."""
        now, at = self._now, self._step % self._batches.per_epoch
        data, rows = self._batches.at(self._step), self._batches.rows(self._step)
        rows = devices.copy_to(rows, now.dual)
        with locating(self._batches.locate, self._step):
            step, squares, targets = confirm(self._solve, (rows, *data), {})
        if not math.isfinite(step.gain):
            what = f"optimal_weights: block {self._step + 1} moved the dual by {step.gain} nats"
            raise check.diverged_error(what, self._given)
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
        self._move_to(self._end_epoch(now) if at == self._batches.per_epoch - 1 else now)
        return step.size

    def _solve(self, rows, X, Y):
        """Return the ``BlockStep`` of some rows, their squared residual, and squared targets."""
        now = self._now
        _, X, Y, _ = qsgp.check_data(self._given, X, Y)
        mean = now.dual if now.mean is None else now.mean
        residual = self._system.residual(X, Y.astype(np.float64), now.dual[rows], mean)
        step = self._system.step(X, residual, now.products)
        return step, _sum_of_squares(residual), _sum_of_squares(Y)

    def _end_epoch(self, now):
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
