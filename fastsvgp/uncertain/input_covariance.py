"""Covariances between uncertain inputs and the functions of a model."""

import numpy as np

from ..bounds.at_inputs import AtInputs, total
from ..bounds.svgp import SVGP
from ..records.typed import Array, Record
from ..runtime.edge import public_call
from .inputs import GaussianInputs


@public_call(SVGP)
def input_covariance(
    model: Record,
    Xs: GaussianInputs,
    *,
    jitter: float | None = None,
    chunk_size: int | None = None,
) -> Array:
    """Compute Cov(x, f(x)) at uncertain inputs, with which a prediction can be fed back.

    Together with ``predict_f`` it is the joint normal approximation of x and f(x): f is the next
    input, or a part of it, of a model on lags of a series.

    Parameters
    ----------
    model : SVGP or MultiGP
    Xs : GaussianInputs
        With ``var`` (N, D) or (N, D, D).
    jitter, chunk_size
        As in ``predict_f``.

    Returns
    -------
    (N, D), or (N, D, P) for P functions

    Raises
    ------
    TypeError
        ``Xs`` is not a ``GaussianInputs``; its covariance has no closed form, and ``nodes`` are not
        given.

    Notes
    -----
    S times the derivative of the mean in the inputs (Stein). Some 2 M D flops per row, function and
    term of the covariance, and what ``predict_f`` costs once per call. Source: Deisenroth &
    Rasmussen, "PILCO" (2011).

    Examples
    --------
    >>> fs.bounds.input_covariance(model, fs.GaussianInputs(X, np.full_like(X, 0.1))).shape
    (40, 1)
    """
    if not isinstance(Xs, GaussianInputs):
        raise TypeError(
            f"input_covariance: `Xs` must be a fastsvgp.GaussianInputs, got a {type(Xs).__name__}:"
            " exact inputs have no covariance"
        )
    at = AtInputs(model, Xs, jitter=jitter, chunk_size=chunk_size)
    found = [at.layer.with_functions(at.X[rows]) for rows in at.slices]  # (P, n, D) each
    covs = np.moveaxis(np.concatenate(found, axis=1), 0, -1)
    at.check_results(total(covs))
    first = at.layer.means(at.X[:1])
    shape = covs.shape[:2] if first.ndim == 1 else covs.shape
    return np.ascontiguousarray(covs.reshape(shape), first.dtype)
