"""``fit``: train a model on data that may be larger than memory, stop early, save, resume, survive."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, overload

from .. import check, files, models
from ..bounds.elbo import SVGP
from ..check import weights as weighing
from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR
from ..files import Path
from ..layers.layer import DeepGP
from ..optim.flat import as_names
from ..optim.inverse.updates import InverseUpdates
from ..optim.schedules import Size, check_smoothing
from ..records.persistence import as_json
from ..records.typed import (
    Group,
    Moves,
    Names,
    Record,
    RecordT,
    Seed,
)
from ..weight_space.qsgp import QSGP
from . import by_time, data_digests, ranks
from .arguments import Data, FitArguments, count, rows
from .batches import whole
from .checkpoints import Checkpoints
from .info import FitInfo, StepInfo
from .kinds import deep, qsgp, sgpr  # noqa: F401, which register how their kinds are trained
from .kinds.svgp import SVGPOptions, minibatch_training as minibatch_training
from .loop import Plan

Inverse: TypeAlias = InverseUpdates | Literal[False] | None
SVGPT = TypeVar("SVGPT", bound=SVGP)
DeepT = TypeVar("DeepT", bound=DeepGP)
CollapsedT = TypeVar("CollapsedT", bound=SGPR | OrthogonalSGPR)
QSGPT = TypeVar("QSGPT", bound=QSGP)


@overload
def fit(
    model: SVGPT, X: Data, Y: Data, *, natural_step_size: Size | None = None, inverse_updates: Inverse = None,
    e_steps: int | None = None, m_steps: int | None = None, graph: Literal["auto"] | bool = "auto",
    probes: int | None = None, sampled: int | None = None, **shared: Unpack[FitArguments],
) -> tuple[SVGPT, FitInfo]: ...  # fmt: skip


@overload
def fit(
    model: DeepT, X: Data, Y: Data, *, natural_step_size: Size | None = None, inverse_updates: Inverse = None,
    e_steps: int | None = None, m_steps: int | None = None, num_samples: int | None = None, **shared: Unpack[FitArguments],
) -> tuple[DeepT, FitInfo]: ...  # fmt: skip


@overload
def fit(
    model: CollapsedT, X: Data, Y: Data, **shared: Unpack[FitArguments]
) -> tuple[CollapsedT, FitInfo]: ...


@overload
def fit(
    model: QSGPT, X: Data, Y: Data, *, basis_size: int | None = None, control: int | Record | None = None,
    closed_form_every: int | None = None, **shared: Unpack[FitArguments],
) -> tuple[QSGPT, FitInfo]: ...  # fmt: skip


@overload
def fit(  # kinds of your own
    model: RecordT, X: Data, Y: Data, *, natural_step_size: Size | None = None, inverse_updates: Inverse = None,
    e_steps: int | None = None, m_steps: int | None = None, num_samples: int | None = None, basis_size: int | None = None,
    control: int | Record | None = None, closed_form_every: int | None = None, graph: Literal["auto"] | bool = "auto",
    probes: int | None = None, sampled: int | None = None, **shared: Unpack[FitArguments],
) -> tuple[RecordT, FitInfo]: ...  # fmt: skip


def fit(
    model: RecordT,
    X: Data,
    Y: Data,
    *,
    weights: Data | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    seconds: float | None = None,
    batch_size: int | None = None,
    optimiser: Moves | None = None,
    fixed: Names | None = None,
    jitter: float | None = None,
    rng: Seed = None,
    callback: Callable[[int, float, StepInfo], object] | None = None,
    patience: int | None = None,
    tolerance: float = 0.0,
    smoothing: float = 0.98,
    validate: Callable[[RecordT], float] | None = None,
    validate_every: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    resume: Path | None = None,
    note: object = None,
    group: Group | None = None,
    **options: Any,
) -> tuple[RecordT, FitInfo]:
    """Train a model by maximising its bound.

    An ``SVGP`` is trained on minibatches by a first-order optimiser, if asked with natural-gradient
    steps for q(u); a ``DeepGP`` in the same way, at new draws of its hidden layers in each step; an
    ``SGPR`` or ``OrthogonalSGPR`` on all data at once by L-BFGS-B on the collapsed bound; a
    ``QSGP`` on minibatches and on samples of its basis functions, in place, by AdaGrad.

    Parameters
    ----------
    model : SVGP, DeepGP, SGPR, OrthogonalSGPR or QSGP
        Where to start. It is not modified.
    X : (N, D) array
    Y : (N,) or (N, P) array
        Arrays, ``numpy.memmap``, or anything else that takes a sorted array of row numbers (h5py,
        zarr). Only the rows of a batch are read; all of them only when ``batch_size`` is N or more,
        and for an SGPR. With a model on a device (``to_device``) they may be on the host: each
        batch is read one step ahead by another thread, and copied without a wait on the caller's
        stream.
    weights : (N,) or (N, P) array, optional
        How often each row, or each target, counts, as in ``elbo``; (N,) for an SGPR. They are drawn
        with their rows, and held in memory, or mapped; rows that count nowhere are left out. A QSGP
        has none.
    steps, epochs : int, float
        How long, as steps or as passes over the data; for an SVGP give one of them. After
        ``resume`` they count from the very beginning, so that the same call resumed ends at the
        same step. For an SGPR: iterations, 1000 by default.
    seconds : float, optional
        How long, in place of these: wall time from the call on. A first step, which compiles what is
        not in the cache, is not counted; the log says how long it took. The training ends with the
        first step after that time. Schedules of "all" steps (``schedules.log_linear(..., "all")``)
        get the number that the first ones foretell. Not with a ``group``.
    batch_size : int
        Rows a step, without replacement in shuffled epochs; default min(1024, N), for a QSGP
        min(500, N).
    optimiser : Optimiser
        ``fs.adam(...)`` or ``fs.sgd(...)``; default ``adam(0.01)``, for a QSGP ``adagrad(0.1)``.
        ``fs.by_field(...)`` is several of them, each with fields of its own (the posterior of a
        QSGP takes ``adagrad`` alone), and ``fs.gentle_inducing(...)`` the one of R-SVGP's authors.
        One of your own has to offer ``init``, ``step``, ``paths``, ``moving``, ``fixing``,
        ``fixed`` and ``step_size_at``, as ``fastsvgp.optim.base`` documents them.
    fixed : str or sequence of str
        Dotted paths of fields that stay as they are (beside those fixed in ``optimiser``); their
        gradients are not computed. Default none; for a deep GP the mean functions of its hidden
        layers that have numbers (name these again beside others, or learn them with ``fixed=()``);
        for a QSGP the covariance and the inducing inputs of its basis, and the likelihood, for with
        few dense columns its bound is no guide to them: ``fixed=()`` learns them all the same, but
        for an ``InducingBasis``, whose log|S| no sample tells.
    jitter : float, optional
        As in ``elbo``, for a QSGP as in ``weight_bound``. A step whose factorisation fails is tried
        again with ten times as much, at most three times, each logged as a warning
        (``logging.getLogger("fastsvgp")``) and counted in ``info.retries``. The next step starts
        from ``jitter`` again.
    rng : None, int or numpy.random.Generator
        Seed of the shuffling, of likelihoods that sample, and of the draws of hidden layers.
    callback : function ``(step, value, info)``, optional
        After each step: its number from 1, its objective, a ``StepInfo`` (``info.model``, ...). A
        true result ends the training.
    patience : int, optional
        End when the smoothed objective has not improved for this many steps; with ``validate``,
        when the score has not improved for this many validations.
    tolerance : float
        An improvement counts when it exceeds ``tolerance * max(1, |best|)``.
    smoothing : float
        Weight of the past in the exponential average of the objective, in [0, 1).
    validate : function ``model -> score``, optional
        Larger is better. Called every ``validate_every`` steps and at the end; the model with the
        best score is returned.
    validate_every : int, optional
        Default: once an epoch.
    checkpoint : path, optional
        Written once a minute (or as rarely as that takes 2 % of the time), at the end, and after a
        first step on Ctrl-C, SIGTERM, SIGHUP and errors; each time all of it or nothing. A full
        disk is logged and does not end the training. A file that is there already is kept, with
        ``.previous`` after its name, unless it is the one to ``resume``; that is logged.
        ``fs.load(path).model`` is its model.
    checkpoint_every : int, optional
        Write it every so many steps instead.
    resume : path, optional
        A checkpoint to go on from, in place of ``model`` and ``rng``, with otherwise the same
        arguments and the same data. The trajectory is bitwise that of a training that never
        stopped: on the same machine, and with as many threads of BLAS and of ours
        (``set_num_threads``, which pins them), for the order of sums depends on them. An SGPR goes
        on from the model, with a new memory of curvature.
    note : optional
        Numbers, text, lists and dicts of these: kept in the checkpoint, for whoever resumes, as
        ``fs.load(path).note``.
    group : group of ``fs.distributed``, optional
        Several ranks, each in this call with the same arguments, train a model of any kind but a
        QSGP together: the trajectory is that of one process, within rounding, however many they
        are. With ``group.rows`` "all" each rank reads its part of every batch; with "own", X, Y and
        weights are this rank's shard, from which it draws its part. ``callback``, ``validate`` and
        ``checkpoint`` are those of rank 0, and ``resume`` a file that rank 0 sees. A rank that
        fails ends the call on all: ``RemoteError``.
    **options
        Those of one kind of model, such as ``natural_step_size`` of an SVGP and ``basis_size`` of a
        QSGP: ``fs.models.options(fs.SVGP)`` lists them, and the records ``SVGPOptions``,
        ``DeepGPOptions`` and ``QSGPOptions`` of the reference document them. And random quantities
        of the posterior, as in ``elbo_and_grad``, of which so many are drawn in each step:
        ``probes`` for the traces of a ``Relaxed`` posterior, ``sampled`` for the KL term of a
        ``DecoupledWeights`` one.

    Returns
    -------
    model
        After the last step, or the best validated one; after Ctrl-C the model so far. Its arrays
        have the dtype in which bounds compute: what NumPy promotes those of the model and of the
        data to.
    info : FitInfo
        ``values``, ``smoothed``, ``steps``, ``seconds``, ``reason``, ``interrupted``, ...

    Raises
    ------
    ValueError, TypeError
        Arguments that make no sense, and whatever the bound refuses.
    NotPositiveDefinite
        A factorisation failed with a thousand times the jitter too.
    ValueError
        The bound or its gradient became NaN or infinite: the last checkpoint before is kept as it
        was.
    ValueError, DataFileError, OSError
        ``resume`` is no checkpoint, or one of another model, optimiser, batch size or of other
        data.

    Notes
    -----
    The first Ctrl-C ends the training when the step is done (the iteration, for an SGPR); a second
    one ends it at once, as of the step before. With a ``checkpoint``, SIGTERM and SIGHUP end the
    training as a first Ctrl-C does; then, the checkpoint written, they do what they would have done
    at once: end the process. That holds in the main thread, and where the program has no handlers
    of its own for them; one that calls ``sys.exit`` leaves a checkpoint as well.

    A QSGP is trained in place: after the first step, which copies the arrays of the model, a step
    costs O(what it samples) time, whatever the sizes of data and basis. ``info.model`` of a
    callback, and the model that ``validate`` sees, are then views that the next step writes to; the
    best validated model is a copy. A second Ctrl-C amid the few milliseconds of an update ends in
    ``RuntimeError``, and the last checkpoint is what there is to go on from.

    ``resume`` tells other data by digests of X, Y and weights in the checkpoint: of all numbers of
    arrays in memory, or on a device, of at most 64 MiB (0.2 s for the largest), and of 256 rows
    spread evenly where they are larger or read lazily. So a change of a few cells of a
    memory-mapped file is not seen.

    With a model on a device each step of an SVGP makes one copy to the host, however many outputs
    there are: the value, and whether all is well, the gradient too; a natural step before it makes
    two of its own (see ``natural_step``), and updates of a factor of an inverse the numbers that
    decide on each of them. An optimiser that needs the value for its step size makes one more.
    Checkpoints copy all of the state. For an SGPR each evaluation of the bound copies its value and
    its whole gradient to the host, where L-BFGS-B runs.

    Examples
    --------
    >>> trained, info = fs.fit(model, X, Y, steps=50, optimiser=fs.adam(0.05), rng=0)
    >>> info.steps, bool(info.values[-1] > info.values[0])
    (50, True)
    """
    asked = dict(weights=weights, steps=steps, epochs=epochs, batch_size=batch_size, optimiser=optimiser, fixed=fixed,
                 jitter=jitter, rng=rng, callback=callback, patience=patience, tolerance=tolerance, smoothing=smoothing,
                 validate=validate, validate_every=validate_every, checkpoint=checkpoint,
                 checkpoint_every=checkpoint_every, resume=resume, note=note, **OF_KINDS | options)  # fmt: skip
    if group is not None:
        if seconds is not None:
            raise ValueError("fit: `seconds` is for one process; with a `group` give `steps`")
        return ranks.fitted(_fitted, group, model, X, Y, asked)
    if seconds is not None:
        return by_time.fitted(_fitted, model, X, Y, seconds, asked)
    return _fitted(model, X, Y, None, **asked)


def _fitted(
    model, X, Y, session, *, weights, steps, epochs, batch_size, optimiser, fixed, jitter, rng, callback, patience,
    tolerance, smoothing, validate, validate_every, checkpoint, checkpoint_every, resume, note, until=None, **options,
):  # fmt: skip
    """``fit`` of one process, or in the ``Session`` of a group; ``options``: of the kind of model, and random quantities."""
    X, Y = rows("X", X), rows("Y", Y)
    if len(X) != len(Y) or len(X) == 0:
        raise ValueError(
            f"fit: `X` and `Y` must have the same number of rows, at least one, got {len(X)} and"
            f" {len(Y)}"
        )
    training, named, _ = models.serving("fit", model)
    options = _own_options(model, options)
    if weights is not None:
        if "weights" not in named:
            raise TypeError(
                f"fit: `weights` are given, and a {type(model).__name__} is trained without them;"
                " leave them out"
            )
        weights = weighing.shaped(whole("weights", rows("weights", weights)), Y)
        weighing.check_values(weights)
    for name, function in (("callback", callback), ("validate", validate)):
        if function is not None and not callable(function):
            raise TypeError(f"fit: `{name}` must be a function, got {function!r}")
    if resume is not None:
        resume = files.as_path("fit: `resume`", resume)
    plan = Plan(
        steps=count("steps", steps, 0),
        callback=callback,
        patience=count("patience", patience),
        tolerance=check.scalar("tolerance", tolerance),
        smoothing=check_smoothing("fit", smoothing),
        validate=validate,
        validate_every=count("validate_every", validate_every),
        checkpoints=Checkpoints(checkpoint, count("checkpoint_every", checkpoint_every), resume),
        group=session,
        until=until,
    )
    about = {"note": as_json("fit: `note`", note)}
    if session is not None and session.own:
        about["data"] = {}  # other ranks have others, and how they are shared out may change
    elif checkpoint is not None or resume is not None:
        about["data"] = data_digests.of(
            X=X, Y=Y, **({} if weights is None else {"weights": weights})
        )
    fixed = None if fixed is None else as_names(fixed)
    given = (
        dict(epochs=epochs, batch_size=batch_size, optimiser=optimiser, weights=weights) | options
    )
    given = {name: value for name, value in given.items() if value is not None}
    return training(model, X, Y, plan, about, resume, fixed, jitter, rng, **given).run()


SHARED = frozenset(inspect.signature(fit).parameters) - {"options"}
# the options of all kinds of ours, with their defaults
OF_KINDS = {
    field.name: field.default
    for record in (SVGPOptions, deep.DeepGPOptions, qsgp.QSGPOptions)
    for field in dataclasses.fields(record)
}


def _own_options(model, options):
    """The options that came for this kind of model, and its random quantities; those of other kinds are refused.

    What serves a kind of your own and names no record of options gets those of all kinds, if it
    takes any, and refuses them itself.
    """
    kind, (_, _, rest) = type(model), models.serving("fit", model)
    own = {option.name for option in models.options(kind)}
    if rest is not None:
        own |= OF_KINDS.keys()
        options = {
            name: value
            for name, value in options.items()
            if not models.is_default(value, OF_KINDS.get(name))
        }
    return models.check_options("fit", kind, options, SHARED | own, "random")
