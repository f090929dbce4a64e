"""Predictors: models whose posteriors are ``PredictiveWeights``, which never factorise."""

from typing import Any

import numpy as np

from .. import check, kernels
from ..errors import NotPositiveDefinite
from ..posteriors.base import PriorFactor
from ..posteriors.locate import layer_at, posteriors_of, replace_posteriors
from ..posteriors.predictive import PredictiveWeights
from ..records import tree_map
from ..records.inducing_sets import naming_repeated
from ..records.typed import ArrayLike, Record
from ..runtime.devices import copy_to, device_array, to_host
from ..runtime.edge import public_call
from .layer_pass import MEANS, LayerPass
from .posterior_passes import OWN
from .protocol import kind_of
from .svgp import SVGP

DROP = 1e-14  # rows of C whose part of the variance is at most this times k(x, x) are left out


@public_call(SVGP)
def predictor(
    model: Record,
    X: ArrayLike | None = None,
    Y: ArrayLike | None = None,
    *,
    jitter: float | None = None,
    dtype: Any = None,
) -> Any:
    """Make a predictor of a trained model: the same predictions, without any factorisation.

    Parameters
    ----------
    model : SVGP, MultiGP, DeepGP, SGPR, OrthogonalSGPR, SiteSVGP, VGP or QSGP
        With any posterior. A ``QSGP`` is returned as it is.
    X, Y : arrays, optional
        The data, for a model whose q(u) depends on them: ``SGPR``, ``OrthogonalSGPR``; the inputs
        alone for ``SiteSVGP`` and ``VGP``, whose sites hold what Y says.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same. Later calls do not add it.
    dtype : dtype, optional
        That of the result, for example float32. The weights are computed in float64 in any case.

    Returns
    -------
    record
        The same kind of model, with ``PredictiveWeights`` in place of each posterior. All
        ``predict_*`` functions, ``sample_f`` and ``predict_f_and_vjp`` take it; ``save`` and
        ``to_device`` too. Its arrays are only read, so threads can share it.

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As ``elbo``.

    Notes
    -----
    Some 4 M^3 flops per output, an eigendecomposition where q is in some direction wider than the
    prior; 8 M^2 bytes per output. A row then takes M^2 flops, or 2 M^2 after an
    eigendecomposition.

    Examples
    --------
    >>> fast = fs.predictor(model)
    >>> bool(np.allclose(fs.predict_y(fast, X), fs.predict_y(model, X)))
    True
    """
    if X is not None or Y is not None:
        raise TypeError(
            f"predictor: a {type(model).__name__} has a q(u), so it needs no data: leave `X` and"
            " `Y` out"
        )
    model, _, _, own = kind_of(model).checked(model)
    amount, device = check.jitter_amount(jitter, own), device_array(model)
    host = tree_map(lambda v: np.asarray(v, np.float64)[()], to_host(model))
    found = {
        path: q if isinstance(q, PredictiveWeights) else _weights(layer_at(host, path), q, amount)
        for path, q in posteriors_of(host).items()
    }
    wanted = check_dtype(own if dtype is None else dtype)
    made = replace_posteriors(host, found)
    return tree_map(lambda v: copy_to(np.asarray(v, wanted)[()], device), made)


def check_dtype(dtype):
    """Return float64 or float32; ``TypeError`` for anything else."""
    if np.dtype(dtype) not in (np.float64, np.float32):
        raise TypeError(f"predictor: `dtype` must be float64 or float32, got {dtype!r:.60}")
    return np.dtype(dtype)


def _weights(layer, q, jitter):
    """Return the ``PredictiveWeights`` of one layer, in float64."""
    prior = PriorFactor(layer.covariance.Kuu(layer.inducing), jitter)
    M = len(prior.Kuu)
    with naming_repeated(layer.inducing):
        L = prior.L
        mean, cov = q.start_from(prior).joint(L.copy(), np.eye(M))
    whitened, covs = mean.reshape(-1, M), cov.reshape(-1, M, M)
    if (covs == covs[0]).all():  # outputs that share a covariance
        covs = covs[:1]
    gaps = np.eye(M) - covs
    try:
        R = kernels.cholesky(np.ascontiguousarray(gaps[:, ::-1, ::-1]))
        E, s = np.ascontiguousarray(np.swapaxes(R, -1, -2)[:, ::-1, ::-1]), -np.ones((len(R), M))
        triangular = True
    except NotPositiveDefinite:
        E, s = _signed_roots(-gaps)
        triangular = False
    # C' = L^-T E'
    columns = np.concatenate([whitened.T, *np.swapaxes(E, -1, -2)], axis=1)
    solved = kernels.solve_triangular(L, columns, transpose=True)
    count = len(whitened)
    C = solved[:, count:].T.reshape(len(E), -1, M)
    C = np.ascontiguousarray(np.tril(C) if triangular else C)
    if len(C) == 1:
        C, s = C[0], s[0]
    alpha = np.ascontiguousarray(solved[:, :count].T).reshape(mean.shape)
    return PredictiveWeights(alpha, C, s, triangular=triangular, num_sets=q.num_sets)


def _signed_roots(A):
    """Return E (P, R, M) and s (P, R) with A = E' diag(s) E; zeros fill up shorter ones."""
    from scipy.linalg import eigh

    values, vectors = zip(*(eigh(one) for one in A), strict=True)
    keep = [np.flatnonzero(np.abs(e) > DROP) for e in values]
    R = max([1, *map(len, keep)])
    E, s = np.zeros((len(A), R, A.shape[-1])), np.zeros((len(A), R))
    for p, (e, V, rows) in enumerate(zip(values, vectors, keep, strict=True)):
        E[p, : len(rows)] = (V[:, rows] * np.sqrt(np.abs(e[rows]))).T
        s[p, : len(rows)] = np.sign(e[rows])
    return E, s


class PredictorPass(LayerPass):
    """The pass of a layer with ``PredictiveWeights``: Kuu is never formed."""

    def __init__(self, layer, jitter, columns=0, need=(), prior=None):
        if fields := [name for name in need if name not in ("inputs", MEANS)]:
            raise TypeError(
                f"a predictor only predicts, and has no gradient in {fields[0]!r}: give the model"
                " that it was made of"
            )
        alpha = layer.posterior.alpha
        # of Kuu the pass reads the size and the dtype
        sizes = PriorFactor(alpha.reshape(-1, alpha.shape[-1]).T, jitter)
        super().__init__(layer, jitter, columns, need, prior=sizes)
        self._mean_weights = alpha


OWN[PredictiveWeights] = PredictorPass
