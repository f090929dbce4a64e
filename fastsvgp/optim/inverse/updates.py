"""Inner loop of R-SVGP: keep the factor of an inverse up to date while a model is trained."""

from dataclasses import dataclass
from typing import NamedTuple

from ... import check, models
from ...bounds.svgp import SVGP
from ...errors import NotPositiveDefinite, names_options
from ...latents.model import MultiGP, check_multi_gp
from ...layers.layer import DeepGP, check_deep
from ...likelihoods.gaussian import Gaussian
from ...posteriors.locate import layer_at, posteriors_of, replace_posteriors
from ...records import replace
from ...records.typed import RecordT
from ...runtime.blas_scope import blas_threads_for
from ...runtime.edge import public_call
from ..schedules import Schedule, Size, as_schedule
from .iteration import InverseFactorInfo, newton_schulz_iterate
from .variance_gap import variance_gap

DIRECTIONS = "exact", "likelihood"


@dataclass(frozen=True)
class InverseUpdates:
    """Settings of the updates of a factor, checked by ``inverse_updates``."""

    tolerance: float | None
    nats: float | None
    step_size: Schedule | None
    max_steps: int
    direction: str = "exact"

    def check_model(self, model):
        """Reject a posterior without a factor, and ``nats`` without Gaussian noise."""
        posterior = getattr(model, "posterior", None)
        if getattr(posterior, "inverse_field", None) is None:
            raise ValueError(
                f"a posterior of the kind {type(posterior).__name__} holds no factor of an inverse"
                " to update"
            )
        if self.direction != "exact" and self.direction not in posterior.directions:
            raise ValueError(
                f"inverse_updates: a {type(posterior).__name__} posterior has no direction"
                f" {self.direction!r}; leave `direction` out for its gradient"
            )
        if self.nats is not None and not isinstance(model.likelihood, Gaussian):
            raise ValueError(
                "inverse_updates: `nats` needs Gaussian noise, but the likelihood is"
                f" {type(model.likelihood).__name__}; give `tolerance` instead"
            )

    def update_factor(self, model, jitter, X=None, num_data=None, group=None):
        """Return ``(model, InverseFactorInfo)`` of a checked model.

        ``nats`` are counted over the batch ``X``. With a ``group``, a ``TrainingGroup``,
        X holds the rows of this rank, and each check of ``nats`` is an all-reduce: all ranks take
        the same number of updates. A ``tolerance`` depends only on replicated values and needs no
        all-reduce.
        """
        with blas_threads_for((model, X)):
            if group is None or self.nats is None:
                return self._update_factor(model, jitter, X, num_data, group)

            def together():
                found = self._update_factor(model, jitter, X, num_data, group)
                group.report()  # so that a rank that fails after its last sum ends all here
                return found

            return group.call(together)

    def _update_factor(self, model, jitter, X, num_data, group):
        covariance, posterior = model.covariance, model.posterior
        A, smallest = posterior.inverse_of(covariance.Kuu(model.inducing), jitter)
        gap = None
        if self.nats is not None:
            noise = float(model.likelihood.variance)
            Kuf = covariance.Kuf(model.inducing, X)
            gap = variance_gap(
                Kuf, smallest, noise_variance=noise, tolerance=self.nats, num_data=num_data
            )
            if group is not None:
                gap = replace(gap, scale=group.scale, group=group)
        L = getattr(posterior, posterior.inverse_field)
        L, info = newton_schulz_iterate(A, L, self.step_size, self.tolerance, self.max_steps, gap)
        return replace(model, posterior=replace(posterior, **{posterior.inverse_field: L})), info


class PlacedUpdates(NamedTuple):
    """Updates of the factors of some posteriors; the outcomes are in the order of all posteriors.

    moving : paths of the posteriors that take them
    """

    updates: InverseUpdates
    moving: tuple[str, ...]
    direction: str = "exact"

    def update_factor(self, model, jitter, X=None, num_data=None, group=None):
        """Return ``(model, outcomes)``: a tuple, None for posteriors that take no updates."""
        outcomes: list[InverseFactorInfo | None] = []
        found = {}
        for path in posteriors_of(model):
            outcomes.append(None)
            if path in self.moving:
                try:
                    layer, outcomes[-1] = self.updates.update_factor(layer_at(model, path), jitter)
                except NotPositiveDefinite as error:
                    error.args = (f"`{path}`: {error.args[0]}", *error.args[1:])
                    raise
                found[path] = layer.posterior
        return replace_posteriors(model, found), tuple(outcomes)


@names_options
def inverse_updates(
    tolerance: float | None = None,
    *,
    nats: float | None = None,
    step_size: Size | None = None,
    max_steps: int = 100,
    direction: str = "exact",
) -> InverseUpdates:
    """Say how ``fit`` keeps the inverse factor of a posterior up to date between its steps.

    For ``Relaxed`` and ``InverseFreeWhitened`` posteriors.

    Parameters
    ----------
    tolerance : float, optional
        Stop at this normalised residual ||L' A L - I||_F / sqrt(M); default 1e-3. With the 5e-3 of
        the paper slow steps skip the update, and training then lags behind that of
        ``LikelihoodForm`` (kin40k, M = 1000: NLPD 0.008 behind after 1500 steps) unless
        ``direction`` is "likelihood".
    nats : float, optional
        Stop instead when the variances cost the bound of the batch no more than this (see
        ``variance_gap``); Gaussian noise only. With a ``group`` each check is an all-reduce of one
        number.
    step_size, max_steps
        As in ``inverse_factor``. The paper uses ``step_size=1.0``, or
        ``schedules.log_linear(1e-5, 1.0, 10)`` in each loop.
    direction : {"exact", "likelihood"}
        Direction of the optimiser's steps: the gradient of the bound, or ``lsvgp_direction``
        (``Relaxed`` only).

    Returns
    -------
    InverseUpdates
        For ``fit(..., inverse_updates=...)``.

    Notes
    -----
    The residual costs M^3 flops per training step; each update that is needed costs another 4/3
    M^3. Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", sections
    3.1, 3.3 and 3.4.

    Examples
    --------
    >>> q = fs.posteriors.Relaxed(mean=np.zeros(6), variance=np.ones(6),
    ...     inverse_tril=0.5 * np.eye(6))
    >>> updates = fs.optim.inverse_updates(tolerance=1e-3)
    >>> relaxed = fs.replace(model, posterior=q)
    >>> trained, info = fs.fit(relaxed, X, Y, steps=3, inverse_updates=updates, rng=0)
    >>> info.steps
    3
    """
    if tolerance is not None and nats is not None:
        raise ValueError(
            "inverse_updates: give either `tolerance` or `nats`: each is a stopping rule"
        )
    for name, value in (("tolerance", tolerance), ("nats", nats)):
        if value is not None and check.scalar(name, value) <= 0:
            raise ValueError(f"inverse_updates: `{name}` must be positive, got {value:g}")
    if nats is None:
        tolerance = 1e-3 if tolerance is None else float(tolerance)
    if not isinstance(direction, str) or direction not in DIRECTIONS:
        raise ValueError(
            f"inverse_updates: `direction` must be one of {', '.join(map(repr, DIRECTIONS))}, got"
            f" {direction!r}"
        )
    schedule = None if step_size is None else as_schedule(step_size)
    max_steps = check.whole("max_steps", max_steps, 0)
    return InverseUpdates(
        tolerance, nats if nats is None else float(nats), schedule, max_steps, direction
    )


@public_call(SVGP, checks=False, blas_threads=False)
def update_inverse_factor(
    model: RecordT,
    *,
    tolerance: float = 1e-3,
    step_size: Size | None = None,
    max_steps: int = 100,
    jitter: float | None = None,
) -> tuple[RecordT, InverseFactorInfo]:
    """Return a model whose inverse factor fits its other fields.

    ``fit`` does this between steps; call it in custom training loops.

    Parameters
    ----------
    model : SVGP
        With a ``Relaxed`` or ``InverseFreeWhitened`` posterior. The search starts at its present
        factor, which can be arbitrarily bad. A ``DeepGP`` or ``MultiGP`` has one in some layer.
    tolerance, step_size, max_steps
        As in ``inverse_factor``.
    jitter : float, optional
        As in ``elbo``: use the same value.

    Returns
    -------
    model : SVGP
    info : InverseFactorInfo
        Of several layers a tuple, with None for those without a factor.

    Raises
    ------
    ValueError, TypeError
        As ``elbo`` and ``inverse_factor``; also if the posterior has no inverse factor.

    Examples
    --------
    >>> q = fs.posteriors.Relaxed(mean=np.zeros(6), variance=np.ones(6),
    ...     inverse_tril=0.5 * np.eye(6))
    >>> relaxed, info = fs.optim.update_inverse_factor(fs.replace(model, posterior=q),
    ...     tolerance=1e-3)
    >>> info.residual < 1e-3
    True
    """
    updates = inverse_updates(tolerance, step_size=step_size, max_steps=max_steps)
    given, _, _, dtype = CHECKED[type(model)](model)
    found, jitter = posteriors_of(given), check.jitter_amount(jitter, dtype)
    if "posterior" in found:
        updates.check_model(given)
        return updates.update_factor(given, jitter)
    moving = tuple(path for path, q in found.items() if q.inverse_field)
    if not moving:
        kinds = ", ".join(dict.fromkeys(type(q).__name__ for q in found.values()))
        raise ValueError(
            "no layer's posterior holds a factor of an inverse to update: they are of the kind"
            f" {kinds}"
        )
    return PlacedUpdates(updates, moving).update_factor(given, jitter)


CHECKED = {SVGP: check.svgp, DeepGP: check_deep, MultiGP: check_multi_gp}
for kind in (DeepGP, MultiGP):
    models.share(kind, SVGP, "update_inverse_factor")
