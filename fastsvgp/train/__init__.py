"""``fit``: training on data that can exceed memory, with early stopping and checkpoints."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Unpack

from .. import check, files, models
from ..check import weights as weighing
from ..files import Path
from ..hilbert.sums import SufficientSums
from ..optim.flat import as_names
from ..optim.schedules import fraction
from ..priors.densities import Prior
from ..priors.on_models import place_priors
from ..records.persistence import as_json
from ..records.typed import Group, Moves, Names, RecordT, Seed
from ..runtime import devices, dispatch
from . import by_time, data_digests, ranks
from .arguments import Data, KindArguments, Request, count, rows, rows_of_both
from .batches import whole
from .checkpoints import Checkpoints
from .info import FitInfo, StepInfo
from .kinds import basis, deep, gplvm, near, qsgp, sgpr  # noqa: F401, for their registration
from .kinds.svgp import minibatch_training as minibatch_training
from .loop import LoopOptions


def fit(
    model: RecordT,
    X: Data | SufficientSums | None,
    Y: Data | None = None,
    *,
    weights: Data | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    seconds: float | None = None,
    batch_size: int | None = None,
    optimiser: Moves | None = None,
    fixed: Names | None = None,
    priors: Mapping[str, Prior] | None = None,
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
    **options: Unpack[KindArguments],
) -> tuple[RecordT, FitInfo]:
    """Train a model by maximising its bound.

    The kind of model decides the method:

    - ``SVGP``: minibatch steps of a first-order optimiser, optionally with natural-gradient steps
      of q(u); or, with ``collapsed=True``, L-BFGS-B on all data at the optimal q(u);
    - ``MultiGP``: the same, for all latent functions together;
    - ``DeepGP``: the same, with new draws of the hidden layers in each step;
    - ``SGPR`` and ``OrthogonalSGPR``: L-BFGS-B on the collapsed bound of all data;
    - ``BasisGP``: the same, on the bound from sums of all data;
    - ``GPLVM``: the same, for its inputs too;
    - ``QSGP``: AdaGrad in place, on minibatches and on samples of the basis functions.

    Parameters
    ----------
    model : SVGP, MultiGP, DeepGP, SGPR, OrthogonalSGPR, BasisGP, BasisSVGP, GPLVM or QSGP
        Model to start from. It is not modified.
    X : (N, D) array, or SufficientSums, or None for a ``GPLVM``, whose inputs are its own
    Y : (N,) or (N, P) array; none with sums
        Arrays, ``numpy.memmap``, or any container that is indexed by a sorted array of row numbers
        (h5py, zarr). Only the rows of a batch are read; all rows are read when ``batch_size`` is N
        or more, and for an SGPR. With a model on a device (``to_device``) the data can stay on the
        host: another thread reads each batch one step ahead, and the copy to the device is
        asynchronous on the caller's stream.
    weights : (N,) or (N, P) array, optional
        Non-negative weight of each row or target, as in ``elbo``; (N,) for an SGPR. Batches take
        them with their rows. They are held in memory or memory-mapped. Rows without a positive
        weight are left out. A QSGP takes no weights.
    steps, epochs : int, float
        Length of the training, in steps or in passes over the data; all kinds except an SGPR need
        one of ``steps``, ``epochs`` and ``seconds``.
        After ``resume`` both count from the start of the first call, so the same call resumed ends
        at the same step. For an SGPR: iterations, default 1000.
    seconds : float, optional
        Length of the training in wall time from the call, in place of ``steps`` and ``epochs``. A
        first step, which compiles what the cache lacks, is not counted; the log reports its time.
        Training ends with the first step that finishes after this time. Schedules of "all" steps
        (``schedules.log_linear(..., "all")``) take the number predicted from the first steps. Not
        with a ``group``.
    batch_size : int
        Rows per step, drawn without replacement in shuffled epochs. Default min(1024, N); for a
        QSGP min(500, N).
    optimiser : Optimiser
        ``fs.adam(...)`` or ``fs.sgd(...)``. Default ``adam(0.01)``; for a QSGP ``adagrad(0.1)``.
        ``fs.optim.by_field(...)`` combines several, each for its own fields (the posterior of a
        QSGP takes only ``adagrad``). Your own
        must offer ``init``, ``step``, ``paths``, ``moving``, ``fixing``, ``fixed`` and
        ``step_size_at``, as ``fastsvgp.optim.base`` documents them.
    fixed : str or sequence of str
        Dotted paths of fields to hold fixed, in addition to those fixed in ``optimiser``; their
        gradients are not computed. Passing ``fixed`` replaces the default, ``fixed=()`` learns
        every field. Default: nothing; for a deep GP the parametric mean functions of hidden layers;
        for a QSGP the covariance and the inducing inputs of its basis, and the likelihood, because
        its bound with few dense columns is a poor guide to them. An ``InducingBasis`` must stay
        fixed: samples do not determine its log|S|.
    priors : dict of str to Prior, optional
        Priors of positive parameters by dotted path, as in ``fixed``: ``fs.priors.LogNormal(...)``,
        ``Gamma``, ``HalfNormal``. Their log densities are added to the bound, once for all rows, in
        ``info.values`` too. The mode depends on the parameterisation: these are densities of the
        **logarithms** of the parameters. Not for a QSGP.
    jitter : float, optional
        As in ``elbo``, for a QSGP as in ``qsgp.bound``. A step whose factorisation fails is
        repeated with ten times the jitter, at most three times. The first repetition is logged as a
        warning (``logging.getLogger("fastsvgp")``), and at the end their number, which is
        ``info.retries``. The next step starts from ``jitter`` again.
    rng : None, int or numpy.random.Generator
        Seed of the shuffling, of likelihoods that sample, and of the draws of hidden layers.
    callback : function ``(step, value, info)``, optional
        Called after each step with its number from 1, its objective, and a ``StepInfo``
        (``info.model``, ...). Return True to stop training.
    patience : int, optional
        Stop after this many steps without improvement of the smoothed objective; with
        ``validate``, after this many validations without improvement of the score.
    tolerance : float
        Least improvement that counts: ``tolerance * max(1, |best|)``.
    smoothing : float
        Weight of the past in the exponential average of the objective, in [0, 1).
    validate : function ``model -> score``, optional
        Larger is better. Called every ``validate_every`` steps and at the end; the model with the
        best score is returned.
    validate_every : int, optional
        Steps between validations. Default: one epoch.
    checkpoint : path, optional
        File to write the state to: every minute (less often if writing takes over 2 % of the time),
        at the end, and, after at least one step, on Ctrl-C, SIGTERM, SIGHUP and errors. Each write
        is atomic. A full disk is logged and does not end the training. If the file exists already
        it is kept with ``.previous`` after its name, and this is logged; the file to ``resume`` is
        overwritten. ``fs.load(path).model`` is the model of a checkpoint.
    checkpoint_every : int, optional
        Steps between checkpoints, in place of the minute.
    resume : path, optional
        Checkpoint to continue from, with the same arguments and the same data; the state of the
        training and of ``rng`` is that in the file. A ``model`` is still needed, the one to start
        from or another of its shapes. The trajectory is bitwise that without an interruption on the
        same machine with the same numbers of threads of BLAS and of this package
        (``set_num_threads`` pins them), because the order of sums depends on them. For an SGPR,
        L-BFGS restarts with an empty history.
    note : optional
        Numbers, text, lists and dicts of these, stored in the checkpoint as
        ``fs.load(path).note``.
    group : group of ``fs.distributed``, optional
        Train on several ranks, each of which makes this call with the same arguments; any kind but
        a QSGP. The trajectory is that of one process within rounding, for any number of ranks.
        With ``group.rows`` "all" each rank reads its part of every batch; with "own", X, Y and
        weights are this rank's shard, from which it draws its part. Only rank 0 calls ``callback``
        and ``validate`` and writes ``checkpoint``, and only rank 0 needs to see the file
        ``resume``. If a rank fails, the call ends on all ranks: ``RemoteError``.
    **options
        Options of the kind of model, such as ``natural_step_size`` for an SVGP and ``basis_size``
        for a QSGP: ``fs.extending.models.options(fs.SVGP)`` lists them with a summary of each, and
        docs/api/fastsvgp.rst documents them. Also the number of draws per step of random quantities
        of the posterior, as in ``elbo_and_grad``: ``probes`` for the traces of a ``Relaxed``
        posterior, ``sampled`` for the KL term of a ``DecoupledWeights`` one.

    Returns
    -------
    model
        Model after the last step, or the best validated one; after Ctrl-C the model reached. Its
        arrays have the dtype of the bound: the NumPy promotion of the dtypes of model and data.
    info : FitInfo
        ``values``, ``smoothed``, ``steps``, ``seconds``, ``reason``, ``interrupted``, ...

    Raises
    ------
    ValueError, TypeError
        Invalid arguments, and whatever the bound refuses.
    NotPositiveDefinite
        A factorisation failed even with a thousand times the jitter.
    Diverged
        The bound or its gradient became NaN or infinite. The last checkpoint stays as it was.
    ValueError, DataFileError, OSError
        ``resume`` is not a checkpoint, or belongs to another model, optimiser, batch size or data.

    Notes
    -----
    The first Ctrl-C ends the training after the current step (the current iteration, for an SGPR).
    A second one ends it immediately, with the state after the previous step. With a
    ``checkpoint``, SIGTERM and SIGHUP end the training as a first Ctrl-C does, write the
    checkpoint, and then end the process. This holds in the main thread and for signals without a
    handler of the program's own; a handler that calls ``sys.exit`` leaves a checkpoint as well.

    A QSGP is trained in place. The first step copies the arrays of the model; each later step costs
    O(sampled rows and functions) time, for any size of data and basis. ``info.model`` of a callback
    and the model passed to ``validate`` are views that the next step overwrites; the best validated
    model is a copy. A second Ctrl-C during an in-place update (some milliseconds) raises
    ``RuntimeError``; resume from the last checkpoint.

    ``resume`` recognises other data by digests of X, Y and weights in the checkpoint. Arrays in
    memory or on a device of at most 64 MiB are digested completely (0.2 s for the largest). Of
    larger arrays, and of data that are read lazily, only 256 evenly spread rows are digested, so a
    change of a few cells of a memory-mapped file is not detected.

    With a model on a device each step of an SVGP makes one copy to the host, for any number of
    outputs: the value with the flags of the checks, those of the gradient included. A natural step
    before it makes two more (see ``natural_step``), an update of a factor of an inverse copies the
    numbers that control its iterations, and an optimiser that needs the value for its step size
    makes one more. Checkpoints copy the whole state. For an SGPR each evaluation of the bound
    copies its value and its whole gradient to the host, where L-BFGS-B runs.

    Examples
    --------
    >>> trained, info = fs.fit(model, X, Y, steps=50, optimiser=fs.adam(0.05), rng=0)
    >>> info.steps, bool(info.values[-1] > info.values[0])
    (50, True)
    """
    given = dict(
        weights=weights, steps=steps, epochs=epochs, batch_size=batch_size, optimiser=optimiser,
        fixed=fixed, priors=priors, jitter=jitter, rng=rng, callback=callback, patience=patience,
        tolerance=tolerance, smoothing=smoothing, validate=validate, validate_every=validate_every,
        checkpoint=checkpoint, checkpoint_every=checkpoint_every, resume=resume, note=note,
        **options,
    )  # fmt: skip
    if group is not None:
        if seconds is not None:
            raise ValueError("fit: `seconds` is for one process; with a `group` give `steps`")
        return ranks.run(_fit, group, model, X, Y, given)
    if seconds is not None:
        return by_time.run(_fit, model, X, Y, seconds, given)
    return _fit(model, X, Y, given)


def _fit(model, X, Y, given, session=None, until=None):
    """Run ``fit`` in one process, or in the session of a group.

    given : arguments by name, with the options of the kind
    until : value of ``time.perf_counter`` at which to stop, or None
    """
    call = SimpleNamespace(**given)
    if X is None and hasattr(type(model), "row_numbers"):
        X = model.row_numbers()
    if model is None and call.resume is not None:
        raise TypeError("fit: give `model` with `resume` too; fastsvgp.load(path).model is one")
    training, *_ = models.serving("fit", model)
    options, random = _own_options(model, given)
    if not (isinstance(X, SufficientSums) and Y is None):
        X, Y = rows_of_both("fit", X, Y)
    weights = _weights(model, Y, call.weights)
    for name in ("callback", "validate"):
        function = given[name]
        if function is not None and not callable(function):
            raise TypeError(f"fit: `{name}` must be a function, got {function!r:.80}")
    resume = None if call.resume is None else files.as_path("fit: `resume`", call.resume)
    every = count("checkpoint_every", call.checkpoint_every)
    plan = LoopOptions(
        steps=count("steps", call.steps, 0),
        checkpoints=Checkpoints(call.checkpoint, every, resume),
        callback=call.callback,
        patience=count("patience", call.patience),
        tolerance=check.scalar("tolerance", call.tolerance),
        smoothing=fraction("fit", "smoothing", call.smoothing),
        validate=call.validate,
        validate_every=count("validate_every", call.validate_every),
        group=session,
        until=until,
    )
    about = {"note": as_json("fit: `note`", call.note)}
    about |= _checkpoint_fields(call, session, model, X, Y, weights)
    request = Request(
        model, X, Y, weights, call.epochs, call.batch_size, call.optimiser,
        None if call.fixed is None else as_names(call.fixed), place_priors(model, call.priors),
        call.jitter, call.rng, options, random, plan, about, resume,
    )  # fmt: skip
    return training(request).run()


def _weights(model, Y, weights):
    """Check weights."""
    if weights is None:
        return None
    if Y is None:
        raise TypeError("fit: sums hold all rows: leave `weights` out, or give them with rows")
    columns = check.num_columns(getattr(model, "likelihood", None))
    weights = weighing.shape_weights(whole("weights", rows("weights", weights)), Y, columns)
    weighing.check_values(weights)
    return weights


def _checkpoint_fields(call, session, model, X, Y, weights):
    """Return the fields ``data`` and ``kernels``, if a checkpoint is written or read."""
    if session is not None and session.own:
        return {"data": {}}  # digests depend on the rank, and the split over ranks can change
    if call.checkpoint is None and call.resume is None:
        return {}
    more = {} if weights is None else {"weights": weights}
    if isinstance(X, SufficientSums):
        X, Y = X.products, X.crossed
    return {
        "data": data_digests.compute(X=X, Y=Y, **more),
        "kernels": dispatch.kernels_of(devices.device_array(model)),
    }


SHARED = frozenset(inspect.signature(fit).parameters) - {"options"}


def _own_options(model, given):
    """Return the record of the options of this kind of model, and numbers of random quantities."""
    kind, given = type(model), {name: one for name, one in given.items() if name not in SHARED}
    record = models.record_of(kind, "fit") or models.NoOptions
    own = {field.name for field in dataclasses.fields(record)}
    found = models.check_options("fit", kind, given, SHARED | own, "random")
    found = {name: value for name, value in found.items() if value is not None}
    random = {name: found.pop(name) for name in [*found] if name not in own}
    return record(**found), random
