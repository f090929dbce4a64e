"""Several optimisers, each with fields of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .. import check
from ..errors import names_options
from ..records import matches, record, static
from ..records.typed import Moves, Names, Record, RecordT
from .base import OncePerStructure, check_offered, initial_state
from .first_order import adam
from .flat import as_names, check_paths, free_paths
from .schedules import plateau


@record
class ByFieldState:
    """``count`` steps so far, and the state of each part: they count their own steps."""

    count: int = static()
    parts: tuple[Record, ...] = ()


@dataclass(frozen=True)
class Part:
    """An optimiser for the leaves below ``names``, at rest for the first ``after`` steps; without names for all that is left."""

    names: tuple[str, ...]
    optimiser: Moves
    after: int = 0


@dataclass(frozen=True)
class ByField(OncePerStructure):
    """What ``by_field`` makes; to ``fit`` it is an optimiser like any other (see ``base``)."""

    parts: tuple[Part, ...]  # the last one has no names

    @property
    def fixed(self) -> tuple[str, ...]:
        """Fields that stay as they are."""
        return self.parts[-1].optimiser.fixed

    @property
    def needs_value(self) -> bool:
        """Whether a step of one of them has to know the objective, or may have to."""
        return any(getattr(part.optimiser, "needs_value", True) for part in self.parts)

    def fixing(self, names: Names) -> "ByField":
        """The same with more fields fixed."""
        return ByField(
            tuple(replace(part, optimiser=part.optimiser.fixing(names)) for part in self.parts)
        )

    def paths(self, model: Record) -> tuple[str, ...]:
        """The leaves that steps move, sooner or later."""
        return _in_order(model, (part.optimiser.paths(model) for part in self._restricted(model)))

    def moving(self, model: Record, state: ByFieldState) -> tuple[str, ...]:
        """The leaves that the next step moves."""
        parts = zip(self._restricted(model), state.parts, strict=True)
        return _in_order(
            model,
            (part.optimiser.moving(model, now) for part, now in parts if state.count >= part.after),
        )

    def init(self, model: Record) -> ByFieldState:
        """The state before the first step.

        ``ValueError`` when a named field does not exist, or belongs to two optimisers.
        """
        leaves = free_paths(model)
        names = [name for part in self.parts for name in part.names]
        for path in leaves:
            claims = [repr(name) for name in names if matches(path, (name,))]
            if len(claims) > 1:
                raise ValueError(
                    f"by_field: field {path!r} has two optimisers, by the names"
                    f" {' and '.join(claims)}"
                )
        parts = tuple(initial_state(part.optimiser, model) for part in self._restricted(model))
        return ByFieldState(parts=parts, count=0)

    def step(
        self, model: RecordT, grad: RecordT, state: ByFieldState, value: float | None = None
    ) -> tuple[RecordT, ByFieldState]:
        """One step uphill of every optimiser that is not at rest; arguments, results and errors as of one alone.

        Gradients of fields that do not move yet may be None.
        """
        states = []
        for part, now in zip(self._restricted(model), state.parts, strict=True):
            if state.count >= part.after and part.optimiser.paths(model):
                model, now = part.optimiser.step(model, grad, now, value)
            states.append(now)
        return model, ByFieldState(parts=tuple(states), count=state.count + 1)

    def step_size_at(self, state: ByFieldState) -> float:
        """The step size of the fields without an optimiser of their own."""
        return self.parts[-1].optimiser.step_size_at(state.parts[-1])

    def _restricted(self, model):
        """The parts, each optimiser with all fields fixed that are not its own: the same ones as long as the leaves are."""
        leaves = free_paths(model)
        return self._once_for(leaves, lambda: self._restricted_to(leaves))

    def _restricted_to(self, leaves):
        *own, rest = self.parts
        named = tuple(name for part in own for name in part.names)
        check_paths("fields", named, leaves)
        parts = []
        for part in own:
            others = tuple(path for path in leaves if not matches(path, part.names))
            parts.append(replace(part, optimiser=part.optimiser.fixing(others)))
        return *parts, replace(rest, optimiser=rest.optimiser.fixing(named))


def _in_order(model, groups):
    """The paths of several groups, each once, in the order of the model's leaves."""
    found = {path for group in groups for path in group}
    return tuple(path for path in free_paths(model) if path in found)


@names_options
def gentle_inducing(
    rest: Moves | None = None,
    *,
    after: int = 1000,
    step_size: float = 1e-3,
    beta1: float = 0.99,
    factor: float = 0.95,
    patience: int = 100,
    fields: Names = "inducing",
) -> ByField:
    """Inducing inputs that start late and then move slowly; everything else from the start by ``rest``.

    What R-SVGP's authors recommend for it: the inverse that it keeps up to date drifts with the
    inducing inputs above all.

    Parameters
    ----------
    rest : Optimiser, optional
        Default ``adam(5e-3)``.
    after : int
        Steps that the inducing inputs stay where they are.
    step_size, beta1 : float
        Of their own Adam.
    factor, patience : float, int
        Their step size is multiplied by ``factor`` whenever the smoothed objective has not improved
        for ``patience`` steps.
    fields : str or sequence of str
        Where they are: of a deep GP ``["layers.0.inducing", "layers.1.inducing"]``.

    Returns
    -------
    ByField

    Notes
    -----
    Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", section 3.4 and
    appendix S5.4.

    Examples
    --------
    >>> trained, info = fs.fit(model, X, Y, steps=3, optimiser=fs.gentle_inducing(after=1), rng=0)
    >>> info.steps
    3
    """
    rest = adam(5e-3) if rest is None else rest
    if check.scalar("step_size", step_size) <= 0:
        raise ValueError(f"gentle_inducing: `step_size` must be positive, got {step_size}")
    own = adam(
        plateau(step_size, factor, patience),
        beta1=beta1,
        transform=getattr(rest, "transform", "softplus"),
    )
    names = as_names(fields, "fields")
    return by_field(rest, dict.fromkeys(names, own), after=dict.fromkeys(names, after))


@names_options
def by_field(
    rest: Moves, fields: Mapping[str, Moves], after: Mapping[str, int] | None = None
) -> ByField:
    """An optimiser for ``fit`` that is made of several.

    Parameters
    ----------
    rest : Optimiser
        For all fields that are not named below: ``adam(...)``, ``sgd(...)``, another
        ``by_field(...)``, or one of your own.
    fields : dict of str to Optimiser
        Dotted path of a field, and the optimiser of all leaves below it. A name here goes before
        those that a ``by_field`` in ``rest`` has for the same leaves.
    after : dict of str to int, optional
        How many steps the fields under such a path, one of ``fields``, stay as they are before they
        begin to move. Until then ``fit`` does not compute their gradients.

    Returns
    -------
    ByField

    Examples
    --------
    Inducing inputs that start late and move slowly, as Cortinovis et al. (2026), section 3.4, train
    R-SVGP:

    >>> slow = fs.adam(fs.schedules.plateau(1e-3, factor=0.95, patience=100), beta1=0.99)
    >>> optimiser = fs.by_field(fs.adam(5e-3), {"inducing": slow}, after={"inducing": 1000})
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
    own = (Part((name,), optimiser, int(after.get(name, 0))) for name, optimiser in fields.items())
    return ByField((*own, Part((), rest)))
