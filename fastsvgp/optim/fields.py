"""Several optimisers, each for its own fields."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .. import check
from ..errors import names_options
from ..records import matches, record, static
from ..records.typed import Moves, Names, Record, RecordT
from .base import OncePerStructure, check_offered, initial_state
from .flat import check_paths, free_paths


@record
class ByFieldState:
    """State: ``count`` steps so far, and the state of each part, which counts its own steps."""

    count: int = static()
    parts: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Mover:
    """Optimiser for the leaves below ``names``, idle for the first ``after`` steps.

    A part without names has all remaining leaves.
    """

    names: tuple[str, ...]
    optimiser: Moves
    after: int = 0


@dataclass(frozen=True)
class ByField(OncePerStructure):
    """Optimiser that ``by_field`` makes; ``fit`` uses it like any other (see ``base``)."""

    parts: tuple[Mover, ...]  # the last one has no names

    @property
    def fixed(self) -> tuple[str, ...]:
        """Fields that are not moved."""
        return self.parts[-1].optimiser.fixed

    @property
    def needs_value(self) -> bool:
        """Whether a step of some part needs the objective; True for a part that does not say."""
        return any(getattr(part.optimiser, "needs_value", True) for part in self.parts)

    def fixing(self, names: Names) -> "ByField":
        """Return the same optimiser with more fields fixed."""
        return ByField(
            tuple(replace(part, optimiser=part.optimiser.fixing(names)) for part in self.parts)
        )

    def paths(self, model: Record) -> tuple[str, ...]:
        """Return the leaves that steps move, now or later."""
        return _order_paths(model, (part.optimiser.paths(model) for part in self._restrict(model)))

    def moving(self, model: Record, state: ByFieldState) -> tuple[str, ...]:
        """Return the leaves that the next step moves."""
        parts = zip(self._restrict(model), state.parts, strict=True)
        return _order_paths(
            model,
            (part.optimiser.moving(model, now) for part, now in parts if state.count >= part.after),
        )

    def init(self, model: Record) -> ByFieldState:
        """Return the state before the first step.

        ``ValueError`` if a named field does not exist, or has two optimisers.
        """
        leaves = free_paths(model)
        names = [name for part in self.parts for name in part.names]
        for path in leaves:
            claims = [repr(name) for name in names if matches(path, (name,))]
            if len(claims) > 1:
                raise ValueError(
                    f"by_field: field {path!r} has two optimisers, under the names"
                    f" {' and '.join(claims)}"
                )
        parts = tuple(initial_state(part.optimiser, model) for part in self._restrict(model))
        return ByFieldState(parts=parts, count=0)

    def step(
        self, model: RecordT, grad: RecordT, state: ByFieldState, value: float | None = None
    ) -> tuple[RecordT, ByFieldState]:
        """Take one step uphill with every part that has started.

        Arguments, results and errors are those of ``Optimiser.step``. Gradients of fields that do
        not move yet may be None.
        """
        states = []
        for part, now in zip(self._restrict(model), state.parts, strict=True):
            if state.count >= part.after and part.optimiser.paths(model):
                model, now = part.optimiser.step(model, grad, now, value)
            states.append(now)
        return model, ByFieldState(parts=tuple(states), count=state.count + 1)

    def step_size_at(self, state: ByFieldState) -> float:
        """Return the step size of the fields without their own optimiser."""
        return self.parts[-1].optimiser.step_size_at(state.parts[-1])

    def _restrict(self, model):
        """Return the parts, each with all other leaves fixed; cached per set of leaves."""
        leaves = free_paths(model)
        return self._once_for(leaves, lambda: self._restrict_to(leaves))

    def _restrict_to(self, leaves):
        *own, rest = self.parts
        named = tuple(name for part in own for name in part.names)
        check_paths("fields", named, leaves)
        parts = []
        for part in own:
            others = tuple(path for path in leaves if not matches(path, part.names))
            parts.append(replace(part, optimiser=part.optimiser.fixing(others)))
        return *parts, replace(rest, optimiser=rest.optimiser.fixing(named))


def _order_paths(model, groups):
    """Return the paths of several groups, each once, in the order of the model's leaves."""
    found = {path for group in groups for path in group}
    return tuple(path for path in free_paths(model) if path in found)


@names_options
def by_field(
    rest: Moves, fields: Mapping[str, Moves], after: Mapping[str, int] | None = None
) -> ByField:
    """Combine several optimisers into one for ``fit``.

    Parameters
    ----------
    rest : Optimiser
        Optimiser of all fields that ``fields`` does not name: ``adam(...)``, ``sgd(...)``, another
        ``by_field(...)``, or an object with the same methods.
    fields : dict of str to Optimiser
        Dotted path of a field, and the optimiser of all leaves below it. These names take
        precedence over the names of a ``by_field`` in ``rest``.
    after : dict of str to int, optional
        Number of steps for which the fields under a path, one of ``fields``, are held fixed at
        first. Until then ``fit`` does not compute their gradients.

    Returns
    -------
    ByField

    Examples
    --------
    Inducing inputs that start late and move slowly, as Cortinovis et al. (2026), section 3.4, train
    R-SVGP:

    >>> slow = fs.adam(fs.optim.schedules.plateau(1e-3, factor=0.95, patience=100), beta1=0.99)
    >>> optimiser = fs.optim.by_field(fs.adam(5e-3), {"inducing": slow}, after={"inducing": 1000})
    """
    fields = check.mapping("fields", fields, '{"inducing": fs.adam(1e-3)}')
    after = check.mapping("after", after, '{"inducing": 1000}')
    for name in after:
        if name not in fields:
            raise ValueError(
                f"by_field: `after` names {name!r}, which has no optimiser in `fields`:"
                f" {', '.join(fields)}"
            )
        check.whole(f"after[{name!r}]", after[name], 0)
    for name, optimiser in (
        ("rest", rest),
        *((f"fields[{name!r}]", own) for name, own in fields.items()),
    ):
        check_offered(f"by_field: `{name}`", optimiser)
    own = (Mover((name,), optimiser, int(after.get(name, 0))) for name, optimiser in fields.items())
    return ByField((*own, Mover((), rest)))
