"""Common parts of first-order optimisers: state, unconstrained ascent, step sizes per field.

An optimiser is two pure functions with immutable settings::

    state        = optimiser.init(model)
    model, state = optimiser.step(model, grad, state)

``grad`` is the gradient of an objective to be maximised (an ELBO): steps go uphill. To minimise a
loss, pass the negative of its gradient. Steps are taken in the coordinates of ``ravel``, so
positive numbers stay positive. The gradient is in natural space, as the bounds return it.

``fit`` and ``by_field`` accept any object with the attributes named in ``OFFERED``, with the
arguments and results of the methods of ``Optimiser``. ``fixed`` holds the names of the fields that
are not moved. The state must be a record, because a checkpoint holds records; its class is up to
the optimiser.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from .. import check, names
from ..records import is_record, leaf, matches, record, static
from ..records.typed import Names, Record, RecordT, Vector
from .flat import as_names, check_paths, free_paths
from .layout import VectorLayout, structure_of
from .schedules import Schedule

OFFERED = ("init", "step", "paths", "moving", "fixing", "fixed", "step_size_at")


def check_offered(name, optimiser):
    """Raise ``TypeError`` unless the argument ``name`` has the attributes that training needs."""
    lacking = [what for what in OFFERED if not hasattr(optimiser, what)]
    if isinstance(optimiser, str):
        raise TypeError(
            f"{name} must be an optimiser: {_nearest(optimiser)}; got the text {optimiser!r:.50}"
        )
    if lacking or isinstance(optimiser, type):
        problem = (
            f"which has no {', '.join(lacking)}"
            if not isinstance(optimiser, type)
            else "a class: make an instance"
        )
        raise TypeError(
            f"{name} must be an optimiser: fs.adam(...), fs.sgd(...), fs.optim.by_field(...), or an"
            f" object with {', '.join(OFFERED)}; got {optimiser!r:.80}, {problem}"
        )


MEANT = {  # the optimisers that a text may have meant
    "adam": "fs.adam(0.01)",
    "sgd": "fs.sgd(0.01)",
    "adagrad": "fs.optim.adagrad(0.01)",
    "by_field": 'fs.optim.by_field(fs.adam(0.01), {"inducing": fs.adam(0.001)})',
}


def _nearest(text):
    """Suggest optimisers for a text, the nearest name first; all of them if none is near."""
    near = names.nearest(text.strip().lower().removeprefix("fs.").partition("(")[0], MEANT)
    return (
        " or ".join(MEANT[name] for name in near)
        or f"{', '.join(list(MEANT.values())[:3])} or fs.optim.by_field(...)"
    )


def initial_state(optimiser, model):
    """Return ``optimiser.init(model)``; ``TypeError`` if that is not a record."""
    state = optimiser.init(model)
    if not is_record(state):
        raise TypeError(
            f"`init` of the optimiser {type(optimiser).__name__} must return a record (a class"
            f" under @fastsvgp.records.record), which a checkpoint can hold, got {state!r:.200}"
        )
    return state


@record
class OptimiserState:
    """State of an optimiser: a record, so that ``fastsvgp.save`` can store it.

    ``count`` is the number of steps taken. ``first`` and ``second`` are the running moments (n,)
    float64 of the flat gradient, None if the rule has none. ``schedules`` holds the states of the
    step-size schedules.
    """

    count: int = static()
    first: Vector | None = leaf(default=None)
    second: Vector | None = leaf(default=None)
    schedules: tuple[Record, ...] = ()


class OncePerStructure:
    """Cache of one result, reused as long as the models that come have the same structure.

    The cache is not a setting: comparisons ignore it, and copies and files leave it out.
    """

    _last = None, None  # replaced as a whole, since threads may share an optimiser

    def _once_for(self, structure, find):
        """Return ``find()`` for a structure; call it again only if the structure has changed."""
        last, found = self._last
        if last != structure:
            found = find()
            vars(self)["_last"] = structure, found
        return found

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "_last"}


class Fixing(OncePerStructure):
    """Base of optimisers with the setting ``fixed``: names of fields that are not moved."""

    fixed: Any

    def fixing(self, names: Names) -> Self:
        """Return the same optimiser with more fields fixed."""
        optimiser: Any = self
        return replace(optimiser, fixed=self.fixed + as_names(names))

    def paths(self, model: Record) -> tuple[str, ...]:
        """Return the leaves that a step moves: the names to pass to a bound as ``wrt=``."""
        return free_paths(model, self.fixed)

    def moving(self, model: Record, state: Any) -> tuple[str, ...]:
        """Return the leaves that the next step moves: ``paths``, less those that start later.

        Only ``by_field`` has leaves that start later.
        """
        return self.paths(model)


@dataclass(frozen=True)
class Optimiser(Fixing):
    """Settings of a first-order optimiser; ``adam`` and ``sgd`` make them."""

    step_size: Schedule
    step_sizes: tuple[tuple[str, Schedule], ...]
    fixed: tuple[str, ...]
    transform: str

    moments = 0

    def update(self, x, g, moments, out, step_size, count):
        """Write the new coordinates and moments of a slice to ``out``. Subclasses implement it.

        ``count`` is 1 at the first step.
        """
        raise NotImplementedError

    def init(self, model: Record) -> OptimiserState:
        """Return the state before the first step on ``model``.

        ``ValueError`` if a named field does not exist.
        """
        layout, _ = self._layout(model)
        check_paths("step_sizes", [name for name, _ in self.step_sizes], layout.paths)
        moments = [np.zeros(layout.size, like=layout.device_like) for _ in range(self.moments)]
        return OptimiserState(  # type: ignore[misc]
            *moments,  # type: ignore[arg-type]
            schedules=tuple(s.init() for s in self._schedules()),
            count=0,
        )

    def step(
        self, model: RecordT, grad: RecordT, state: OptimiserState, value: float | None = None
    ) -> tuple[RecordT, OptimiserState]:
        """Take one step uphill.

        Parameters
        ----------
        model : record
        grad : record of the same type
            Gradient of the objective at ``model``, in natural space; fixed fields may be None.
        state : OptimiserState
        value : float, optional
            The objective at ``model``; only ``plateau`` schedules need it.

        Returns
        -------
        model, state
            New ones; the arguments are not modified.

        Raises
        ------
        ValueError
            The gradient of a free field is None; the state belongs to a model of another size.
        Diverged
            The gradient has NaN or infinity; a ``ValueError``.
        """
        layout, segments = self._layout(model)
        moments = [m for m in (state.first, state.second) if m is not None]
        if any(m.shape != (layout.size,) for m in moments):
            raise ValueError(
                f"the optimiser's state was made for {moments[0].size} free numbers and this model"
                f" has {layout.size}; call init again after changing the model or the fixed fields"
            )
        if value is None and self.needs_value:
            raise ValueError("a plateau schedule needs `value=`, the objective at this step")
        model, *new = self._ascent(
            layout, segments, model, grad, moments, self.sizes(state), state.count + 1
        )
        return model, self.observe(state, value, *new)

    def ascent(self, model, grad, state, sizes, count, out=None):
        """Return ``(model, *moments)`` after the ``count``-th step, with these step ``sizes``.

        ``sizes`` are numbers, or 0-d arrays on the device of the model. ``out`` is such a tuple, to
        write to: a model on a device, of which all trained leaves are arrays. All else as in
        ``step``, which takes both from the state.
        """
        moments = [m for m in (state.first, state.second) if m is not None]
        return self._ascent(*self._layout(model), model, grad, moments, sizes, count, out)

    def _ascent(self, layout, segments, model, grad, moments, sizes, count, out=None):
        vector = layout.pack(model)
        vector_bar = layout.pullback(vector, grad)
        if not check.all_finite(vector_bar):
            wrong = [
                path for path, at in layout.slices.items() if not np.isfinite(vector_bar[at]).all()
            ]
            names = ", ".join(map(repr, wrong))
            what = f"the gradient has NaN or infinity in {names} at step {count}"
            raise check.diverged_error(what, model, count)
        there = layout.device_like
        target, *new = out or (None, *(np.empty(layout.size, like=there) for _ in moments))
        new.insert(0, np.empty(layout.size, like=there))
        for at, which in segments:
            self.update(
                vector[at],
                vector_bar[at],
                [m[at] for m in moments],
                tuple(n[at] for n in new),
                sizes[which],
                count,
            )
        return layout.unpack(new[0], model, target), *new[1:]

    @property
    def needs_value(self) -> bool:
        """Whether a step needs the objective."""
        return any(schedule.needs_value for schedule in self._schedules())

    def sizes(self, state: OptimiserState) -> list[float]:
        """Return the sizes of the next step, one per schedule."""
        return [
            s.size(state.count, now)
            for s, now in zip(self._schedules(), state.schedules, strict=True)
        ]

    def observe(self, state, value, *moments):
        """Return the state after a step that led to these moments."""
        schedules = zip(self._schedules(), state.schedules, strict=True)
        return OptimiserState(
            *moments,
            schedules=tuple(s.observe(now, value) for s, now in schedules),
            count=state.count + 1,
        )

    def step_size_at(self, state: OptimiserState) -> float:
        """Return the general step size of the next step."""
        return self.step_size.size(state.count, state.schedules[0])

    def _schedules(self):
        return (self.step_size, *(schedule for _, schedule in self.step_sizes))

    def _layout(self, model):
        """Return ``(Layout, segments)`` of the free leaves of a model."""

        def find():
            layout = VectorLayout(model, free_paths(model, self.fixed), transform=self.transform)
            return layout, self._segments(layout)

        return self._once_for(structure_of(model), find)

    def _segments(self, layout):
        """Return [(slice, index of its schedule)]; neighbours with one schedule share a slice."""
        segments = []
        for path, at in layout.slices.items():
            which, length = 0, -1
            for i, (name, _) in enumerate(self.step_sizes, 1):
                if matches(path, (name,)) and len(name) > length:  # the most specific name wins
                    which, length = i, len(name)
            if segments and segments[-1][1] == which:
                segments[-1] = (slice(segments[-1][0].start, at.stop), which)
            else:
                segments.append((at, which))
        return segments
