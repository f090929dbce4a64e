"""The state of a training as one record, which a checkpoint file holds."""

import logging

import numpy as np

from .. import check
from ..check import weights as weighing
from ..errors import DataFileError
from ..optim.schedules import Trend
from ..records import is_record, leaf, leaves, record, replace, static, tree_map
from ..records.persistence import load_with_extra
from ..records.typed import Array, Record, Vector
from ..runtime import devices
from . import comparison, data_digests
from .batches import OnDevice

log = logging.getLogger("fastsvgp")
MOVED = "model", "optimiser", "best", "control"  # what goes to the device of a model


@record
class TrainingState:
    """The state after ``step`` steps, as a checkpoint file holds it.

    ``fastsvgp.load(path).model`` is the model of a checkpoint. Shuffling and sampling are functions
    of (``seed``, step), so these two numbers are the whole random state and the position in the
    data.

    Parameters
    ----------
    model : record
    optimiser : record, optional
        The optimiser's own state.
    natural : record, optional
        State of the schedule of natural steps.
    control : record, optional
        The control variate of a sampled bound.
    spread : (N,), optional
        Running variances of f at the data; 0 at rows not seen yet.
    trend, validation : Trend
        Moving averages of the objective and of the validation score.
    best : record, optional
        The model with the best validation score.
    values : (step,), optional
        The objective at each step.
    scores : (k, 2), optional
        Step and score of each validation.
    step, seed, retries : int
        Steps taken, seed, and steps that needed more jitter.
    seconds : float
        Time of training.
    data : dict, optional
        Digests of X and Y.
    settings : dict, optional
        Sizes, optimiser, jitter and others, by dotted names; ``resume`` compares them.
    note : optional
        Note of the caller.
    kernels : str, optional
        Which kernels computed it: compiled ahead of time for some level of processor, by Numba, or
        for CUDA. They can differ in the last bit.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "training.npz")
    >>> trained, info = fs.fit(model, X, Y, steps=3, checkpoint=path, rng=0)
    >>> fs.load(path).step
    3
    """

    model: Record
    optimiser: Record | None = None  # the optimiser's own state
    natural: Record | None = None  # state of the schedule of natural steps
    control: Record | None = None  # the control variate of a sampled bound
    # (N,) running variances of f at the data, 0 at rows not seen yet
    spread: Array | None = leaf(default=None)
    trend: Trend = Trend()  # of the objective
    validation: Trend = Trend()  # of the validation score
    best: Record | None = None  # the model with the best validation score
    values: Vector | None = leaf(default=None)  # (step,) objective at each step
    scores: Array | None = leaf(default=None)  # (k, 2) step and score of each validation
    step: int = static(default=0)
    seed: int = static(default=0)
    seconds: float = static(default=0.0)
    retries: int = static(default=0)
    data: dict[str, object] | None = static(default=None)  # digests of X and Y, and of weights
    # as ``comparison.settings`` returns them
    settings: dict[str, object] | None = static(default=None)
    note: object = static(default=None)  # the caller's
    kernels: str = static(default="")  # what computed it; "" if it is not known


class OtherTraining(ValueError):
    """A checkpoint belongs to a training with other arguments.

    Parameters
    ----------
    message : str
    differences : list of str
        What differs, in words.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "training.npz")
    >>> _ = fs.fit(model, X, Y, steps=2, rng=0, checkpoint=path)
    >>> try:
    ...     fs.fit(model, X, Y, steps=4, rng=1, resume=path)
    ... except fs.errors.OtherTraining as error:
    ...     print(*error.differences)
    `rng` 0 then, 1 now
    """

    def __init__(self, message, differences):
        super().__init__(message)
        self.differences = differences

    def __reduce__(self):
        return type(self), (*self.args, self.differences)


def started(fresh, resume):
    """Return the state to begin a training with: a fresh one, or the state in a checkpoint.

    Parameters
    ----------
    fresh : TrainingState
        State made from the arguments of this call.
    resume : str, path or None
        A checkpoint, which must have the same data, kind of model and optimiser.

    Returns
    -------
    TrainingState
        ``fresh``, or the state in the checkpoint, on the device of the model of ``fresh``.

    Examples
    --------
    >>> fresh = fs.optim.TrainingState(model)
    >>> started(fresh, None) is fresh
    True
    """
    if resume is None:
        return fresh
    state = read(resume, fresh)
    device_like = devices.device_array(fresh.model)
    if device_like is None:
        return state
    parts = {name: getattr(state, name) for name in MOVED}
    moved = {name: devices.to_device(part) for name, part in parts.items() if part is not None}
    return replace(
        state,
        **moved,
        spread=None if state.spread is None else devices.copy_to(state.spread, device_like),
    )


def begin(fresh, resume, batches):
    """Return the state to begin with, and the batches in its order, on the device of its model."""
    state, device_like = started(fresh, resume), devices.device_array(fresh.model)
    batches.reseed(state.seed)
    return state, batches if device_like is None else OnDevice(batches, device_like)


def settle(state, jitter, checked, X, Y, weights=None):
    """Return ``(state, jitter, dtype)`` in the dtype of the bound, which a first batch determines.

    checked : ``checked(model, X, Y)`` refuses invalid data; the last item of its result is the
        dtype
    """
    model, columns = state.model, check.num_columns(getattr(state.model, "likelihood", None))
    if weights is None:
        dtype = checked(model, X, Y)[-1]
    else:  # targets of weight 0 are not read
        through = weighing.through(lambda X, Y: checked(model, X, Y), X, Y, weights, columns)
        dtype = through[0][-1]
    state = replace(state, model=cast_model(model, dtype))
    return state, check.jitter_amount(jitter, dtype), dtype


def cast_model(model, dtype):
    """Cast a model to the dtype of the bound, and to the layout of a loaded checkpoint."""

    def leaf(value):
        if type(value) in (int, float):
            return value
        if isinstance(value, (list, tuple)):  # ``tree_map`` can return these
            return np.asarray(value, dtype)
        if np.ndim(value):
            return np.ascontiguousarray(value, dtype, like=value)
        return value.astype(dtype) if hasattr(value, "astype") else dtype.type(value)

    return tree_map(leaf, model)


def read(path, fresh):
    """Read the state in a checkpoint, which must match the ``fresh`` state of the same call.

    Raises
    ------
    OSError, DataFileError
        The file cannot be read, or is no checkpoint.
    OtherTraining
        It belongs to other data, another kind of model, other settings, or another seed.
    """
    try:
        state, _ = load_with_extra(path)
    except FileNotFoundError as error:
        said = "`resume`: no such file; to start a training, leave `resume` out"
        raise FileNotFoundError(error.errno, said, path) from None
    if not isinstance(state, TrainingState):
        raise DataFileError(
            f"{path} holds a {type(state).__name__}, not a checkpoint; start from it with"
            " fit(load(path), ...)"
        )
    if others := data_digests.differences(state.data or {}, fresh.data or {}):
        raise OtherTraining(
            f"`resume`: {path} was made with other data: {'; '.join(others)}. Resume with the same"
            " data, standardised in the same way, or start again from its model,"
            " fs.load(path).model",
            others,
        )
    if "" not in (state.kernels, fresh.kernels) and state.kernels != fresh.kernels:
        log.warning(
            "%s was computed by %s kernels, and training continues with %s kernels: it can differ"
            " in the last digits from a training without interruption",
            path,
            state.kernels,
            fresh.kernels,
        )
    if not is_record(state.model):
        raise DataFileError(f"{path} holds no model; it is damaged")
    held, wanted = _dtype(state.model), _dtype(fresh.model)
    others = comparison.differences(
        comparison.structure(state.model), comparison.structure(fresh.model)
    )
    if np.promote_types(held, wanted) != held:
        others.append(f"{held} then, {wanted} now")
    if others:
        raise OtherTraining(
            f"`resume`: {path} holds another model: {'; '.join(others)}. Resume with its own,"
            " fs.load(path).model, as `model`, or leave `resume` out to train yours",
            others,
        )
    then, now = _settings(state, held), _settings(fresh, held)
    if others := comparison.differences(then | {"rng": state.seed}, now):
        raise OtherTraining(
            f"`resume`: {path} was made with other settings: {'; '.join(others)}. Resume with"
            " those, or leave `resume` out and start from its model, fs.load(path).model",
            others,
        )
    kinds = [(type(one.optimiser), type(one.natural)) for one in (state, fresh)]
    if kinds[0] != kinds[1]:
        other = "another optimiser, schedule or choice of fixed fields"
        raise OtherTraining(f"`resume`: {path} was made with {other}; give the same again", [other])
    return replace(
        state,
        data=fresh.data,
        settings=fresh.settings,
        kernels=fresh.kernels,
        note=state.note if fresh.note is None else fresh.note,
    )


def _settings(state, dtype):
    """Return the settings of a state with the resolved jitter, and without a missing seed."""
    found = {
        name: value
        for name, value in (state.settings or {}).items()
        if name != "rng" or value is not None
    }
    return found | (
        {"jitter": check.jitter_amount(found["jitter"], dtype)} if "jitter" in found else {}
    )


def _dtype(model):
    """Return the widest dtype of the arrays of a model; float64 for a model without arrays."""
    found = {
        value.dtype
        for _, _, value in leaves(model)
        if getattr(value, "dtype", np.dtype(int)).kind == "f"
    }
    return np.result_type(*found) if found else np.dtype(float)
