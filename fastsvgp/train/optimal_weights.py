"""Optimal weights with Gaussian noise, by conjugate gradients or by blocks of data."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .. import check, files
from ..errors import BadEntry
from ..files import Path
from ..qsgp import model as qsgp
from ..qsgp.closed_form import (
    WeightsInfo,
    by_conjugate_gradients,
    diagonal_from,
    noise_of,
    with_mean,
)
from ..qsgp.dual_blocks import blocks_of
from ..qsgp.model import QSGP
from ..records import replace
from ..records.typed import RecordT, Seed
from ..runtime import devices, tuning
from ..runtime.edge import public_call, run
from . import comparison, data_digests
from .arguments import Data, count, given_seed, rows as data_rows
from .batches import OnDevice, locate_inputs
from .checkpoints import Checkpoints
from .kinds.request import seed_of
from .loop import LoopOptions, Recorder
from .state import TrainingState, cast_model, started
from .steps.blocks import Blocks, BlockSteps, DualState

METHODS = "conjugate_gradients", "blocks"
ITERATIONS, EPOCHS = 100, 10
SHARE = 8  # functions per row of a block by default, within the limits of ``tuning``
FEW = 2  # phi_r phi_r' is taken from the start with at most this number of functions per row


@dataclass(frozen=True)
class BlockOptions:
    """Arguments of ``optimal_weights`` that only blocks have."""

    block: int | None
    epochs: int | None
    rng: Any
    checkpoint: Any
    checkpoint_every: int | None
    resume: Any


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
    options = BlockOptions(block, epochs, rng, checkpoint, checkpoint_every, resume)
    if method == "blocks":
        _refuse(method, {"iterations": iterations})
        return _by_blocks(model, X, Y, options, tolerance, jitter, callback)
    _refuse(method, vars(options))
    steps = ITERATIONS if iterations is None else check.whole("iterations", iterations, 0)
    settings = {"iterations": steps, "tolerance": tolerance, "jitter": jitter}
    return run(by_conjugate_gradients, model, X, Y, callback=callback, **settings)


def _refuse(method, others):
    """Raise ``ValueError`` for arguments of the other method."""
    if given := [name for name, value in others.items() if value is not None]:
        other = next(one for one in METHODS if one != method)
        raise ValueError(
            f'optimal_weights: `{given[0]}` is for method="{other}"; leave it out with "{method}"'
        )


def _by_blocks(model, X, Y, options, tolerance, jitter, callback):
    X, Y = data_rows("X", X), data_rows("Y", Y)
    if len(X) != len(Y) or len(X) == 0:
        raise ValueError(
            "optimal_weights: `X` and `Y` must have the same number of rows, at least one, got"
            f" {len(X)} and {len(Y)}"
        )
    qsgp.checked_parts(model)
    system = blocks_of(model.basis, noise_of("optimal_weights", model))
    batches = Blocks(X, Y, _block(options.block, model.basis, len(X)), seed_of(options.rng))
    epochs = EPOCHS if options.epochs is None else check.whole("epochs", options.epochs, 0)
    total = epochs * batches.per_epoch
    resume = options.resume
    resume = None if resume is None else files.as_path("optimal_weights: `resume`", resume)
    kept = options.checkpoint is not None or resume is not None
    about = {"data": data_digests.of(X=X, Y=Y)} if kept else {}
    about["settings"] = comparison.settings(
        total=total, block=batches.size, rng=given_seed(options.rng)
    )
    state = started(_fresh(model, system, batches, about), resume)
    home = devices.home_of(model)
    batches = batches.reseeded(state.seed)
    batches = batches if home is None else OnDevice(batches, home)
    state = _cast(state, batches)
    system = blocks_of(state.model.basis, float(noise_of("optimal_weights", state.model)))
    runs, dtype = _runs(len(X)), state.model.posterior.mean.dtype
    if system.exact:
        _check_functions_at_rows(state.model.basis, batches, runs, dtype)
    steps = BlockSteps(state, batches, system, tolerance)
    plan = LoopOptions(
        steps=total,
        callback=callback and (lambda step, value, seen: callback(seen.model, steps.info())),
        patience=None,
        tolerance=0.0,
        smoothing=0.0,
        validate=None,
        validate_every=None,
        checkpoints=Checkpoints(
            options.checkpoint, count("checkpoint_every", options.checkpoint_every), resume
        ),
    )
    found, _ = Recorder(state, steps, plan).run()
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
    m, N, home = model.basis.num_functions(), batches.num_data, devices.home_of(model)
    model.posterior.check_size(m)
    dual = DualState(
        dual=np.zeros(N, like=home),
        mean=None if system.exact else np.zeros(m, like=home),
        residuals=np.zeros(0),
        products=not system.exact and m <= FEW * batches.size,
    )
    start = with_mean(model, np.zeros(m, like=home))
    return TrainingState(start, natural=dual, seed=batches.seed, num_data=N, **about)


def _cast(state, batches):
    """Check the first block; return the state with its model in the dtype of the bound."""
    try:
        checked, _, _, dtype = qsgp.checked_data(state.model, *batches.at(state.step))
    except BadEntry as error:
        batches.locate(error, state.step)
        raise
    dual = state.natural
    arrays = {name: getattr(dual, name) for name in ("dual", "mean", "kept_dual", "kept_mean")}
    home = checked.posterior.mean
    placed = {name: devices.like(a, home) for name, a in arrays.items() if a is not None}
    return replace(state, model=cast_model(checked, dtype), natural=replace(dual, **placed))


def _runs(N):
    """Return the numbers of rows of each chunk of the data."""
    size = tuning.current.weight_chunk_rows
    return [np.arange(at, min(at + size, N)) for at in range(0, N, size)]


def _inputs(batches, rows, dtype):
    """Return rows of X, checked."""
    try:
        return check.inputs("X", batches.inputs(rows)).astype(dtype, copy=False)
    except BadEntry as error:
        locate_inputs(error, "X", rows)
        raise


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
