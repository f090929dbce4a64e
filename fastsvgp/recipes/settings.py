"""Settings of a start: options of the recipes, and the records that its functions share."""

from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from ..covariances import Covariance
from ..means import Mean
from ..optim.schedules import Size
from ..posteriors import Whitened
from ..records.typed import ArrayLike

Inducing: TypeAlias = int | tuple[int, int] | ArrayLike
Choices = TypedDict("Choices", {  # noqa: UP013 (in few lines)
    "posterior": str, "mean": str | Mean | None, "ard": bool, "chosen": str, "solver": str,
    "max_iter": int | None, "batch_size": int, "learning_rate": float,
    "natural_step_size": str | Size, "jitter": float | None, "latents": int | str | None,
}, total=False)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """Options of ``regression`` and ``classification``, which document them, with defaults.

    The initial model has the parts that they choose, beside those of a ``Method``.
    """

    inducing: Inducing
    covariance: str | Covariance
    posterior: str = "whitened"
    mean: str | Mean | None = None
    ard: bool = True
    chosen: str = "kmeans"
    solver: str = "auto"
    max_iter: int | None = None
    batch_size: int = 512
    learning_rate: float = 0.01
    natural_step_size: str | Size = "auto"
    jitter: float | None = None
    latents: int | str | None = None


@dataclass(frozen=True, kw_only=True)
class Method:
    """The solver, and what it depends on: likelihood, posterior and jitter.

    solver : "lbfgs", "adam" or "natural"
    likelihood : Likelihood; None for models without one, which take no natural steps
    kind : class of the posterior
    jitter : float or None
    seed : int
        Of the initial model and of its training.
    """

    solver: str
    likelihood: Any
    kind: Any = Whitened
    jitter: float | None = None
    seed: int


@dataclass(frozen=True, kw_only=True)
class Course:
    """Length and step sizes of a training.

    steps : int
        As ``fit`` counts them: see ``steps_of``.
    batch_size : int
    learning_rate : float
        Of Adam.
    natural_step_size : float or schedule
    """

    steps: int
    batch_size: int
    learning_rate: float
    natural_step_size: Any
