"""Posteriors equal to the prior; posteriors with two sets of inducing inputs as one stacked set."""

from typing import Any

import numpy as np

from .. import check, kernels
from ..covariances import Covariance
from ..posteriors import DecoupledWeights, Marginal, Whitened
from ..posteriors.base import PosteriorT, covariance_factor, identities
from ..posteriors.dual_sites import DualTying
from ..posteriors.orthogonal import OrthogonalSets
from ..records import leaves, private_record, replace
from ..records.inducing_sets import naming_repeated, stack_sets
from ..records.typed import Array, Record
from ..runtime.edge import public_call
from .objectives import SVGP


@public_call()
def joint_posterior(model: SVGP, jitter: float | None = None) -> SVGP:
    """Stack Z and O into one set of inducing inputs: the same q, the same bound and predictions.

    Parameters
    ----------
    model : SVGP
        With a ``WhitenedOrthogonal``, ``Orthogonal``, ``Decoupled`` or ``DecoupledWeights``
        posterior and an ``InducingPair``.
    jitter : float, optional
        As in ``elbo``: use the same.

    Returns
    -------
    SVGP
        With a ``Whitened`` posterior, whose factor is block-diagonal, or a ``Marginal`` one, with
        the factor [[W_u, 0], [K_vu Kuu^-1 W_u, W_v]] (W_v = chol(C_vv) of ``Decoupled``).

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``; ``TypeError`` if the posterior has one set already.

    Notes
    -----
    (M + M2)^3 / 3 flops, and P (M + M2)^3 / 3 for ``Orthogonal``.

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.posteriors.at_prior(fs.posteriors.WhitenedOrthogonal, covariance, pair)
    >>> two = fs.SVGP(covariance, pair, q, gaussian)
    >>> joint = fs.posteriors.joint_posterior(two)
    >>> joint.inducing.shape, round(fs.elbo(joint, X, Y) - fs.elbo(two, X, Y), 6) + 0.0
    ((10, 1), 0.0)
    """
    if type(model) is not SVGP:
        raise TypeError(
            f"joint_posterior: `model` must be a fastsvgp.SVGP, got {type(model).__name__}"
        )
    given, _, _, dtype = check.svgp(model)
    q = given.posterior
    if not isinstance(q, OrthogonalSets):
        raise TypeError(
            f"joint_posterior: a {type(q).__name__} posterior has one set of inducing inputs"
            " already"
        )
    L, means, trils = _factor(given.covariance, given.inducing, jitter, dtype), [], []
    for name, at in q.spans(len(L)):
        mean, tril = q.whiten(np.ascontiguousarray(L[at, at], like=L), name)
        means.append(mean)
        trils.append((at, tril))
    mean = np.concatenate(means, axis=-1)
    tril = np.zeros((*mean.shape, len(L)), dtype, like=L)
    for at, block in trils:
        tril[..., at, at] = block
    joint = Whitened(mean, kernels.tril(tril))
    if q.unwhitens:
        joint = Marginal(mean, joint.scale_tril).unwhiten(L, mean, joint.scale_tril)
    joined: Any = replace(given, inducing=stack_sets(given.inducing), posterior=joint)
    return joined


@public_call()
def at_prior(
    kind: type[PosteriorT],
    covariance: Covariance,
    inducing: Array | Record,
    outputs: int | None = None,
    jitter: float | None = None,
) -> PosteriorT:
    """Create a posterior equal to the prior: a start for training with zero KL divergence.

    Parameters
    ----------
    kind : type
        ``Whitened``, ``Marginal``, ``AbsorbedDualSites``, ``DualSites``, ``WhitenedOrthogonal``,
        ``Orthogonal``, ``Decoupled`` or ``DecoupledWeights``.
    covariance : Covariance
    inducing : (M, D) array, or ``InducingPair``
    outputs : int, optional
        P, the leading axis of all fields. Default: no leading axis.
    jitter : float, optional
        As in ``elbo``: use the same.

    Returns
    -------
    Posterior
        An instance of ``kind``, in the dtype of covariance and inducing inputs.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        Another class, a wrong number of sets of inducing inputs, and all that ``elbo`` rejects.

    Examples
    --------
    >>> q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=2)
    >>> q.mean.shape, q.scale_tril.shape
    ((2, 6), (2, 6, 6))
    """
    of_kind: Any = kind
    if not (isinstance(kind, type) and getattr(kind, "starts_at_prior", False)):
        name = kind.__name__ if isinstance(kind, type) else type(kind).__name__
        raise TypeError(
            "at_prior: `kind` must be Whitened, Marginal, AbsorbedDualSites, DualSites,"
            f" WhitenedOrthogonal, Orthogonal, Decoupled or DecoupledWeights, got {name}"
        )
    given = _Prior(covariance, inducing)
    check.parts(given, ("covariance",))
    check.defer(given)
    given, dtype = check.parameters(given)
    sizes, _ = check.inducing(given, of_kind.num_sets, f"a {of_kind.__name__} posterior")
    batch = () if outputs is None else (check.whole("outputs", outputs),)
    device_like = next(value for path, _, value in leaves(given) if path.startswith("inducing"))
    means = [np.zeros((*batch, size), dtype, like=device_like) for size in sizes]
    if issubclass(kind, DualTying):
        return _read_checks(of_kind(means[0], np.zeros_like(identities(means[0]))))
    if issubclass(kind, DecoupledWeights):
        return _read_checks(of_kind(means[0], identities(means[0]), means[1]))
    if not of_kind.unwhitens:
        return _read_checks(
            of_kind(*(field for mean in means for field in (mean, identities(mean))))
        )
    L, end = _factor(given.covariance, given.inducing, jitter, dtype), 0
    q = of_kind(*[None] * len(of_kind._record_fields))
    for name, size, mean in zip(of_kind.names, sizes, means, strict=True):
        at, end = slice(end, end + size), end + size
        q = q.unwhiten(np.ascontiguousarray(L[at, at], like=L), mean, identities(mean), name)
    return _read_checks(q)


@private_record
class _Prior:
    """The fields that determine the prior of the inducing variables."""

    covariance: object
    inducing: object


def _factor(covariance, inducing, jitter, dtype):
    with naming_repeated(inducing):
        return covariance_factor(covariance.Kuu(inducing), check.jitter_amount(jitter, dtype))


def _read_checks(posterior):
    """Return a posterior after its deferred checks have been read."""
    fields = [value for name, value in vars(posterior).items() if name.startswith("mean")]
    check.result(
        sum(np.add.reduce(value, axis=None, dtype=np.float64) for value in fields), posterior
    )
    return posterior
