"""Layout of latent functions and targets for likelihoods that read several for each output.

A model has J = K P latent functions of P outputs, in the rows of one array: row k P + p is the k-th
function of output p. A likelihood reads f (K, N) for targets (N,), and (K, P, N) for (P, N).

Targets of C columns, such as a count and its exposure, are (N, C) or (N, P, C) for users. A
likelihood reads (C, N) or (C, P, N), as ``check.targets`` returns them.
"""

import math

import numpy as np

from ..check import axes_of_targets, num_columns, outputs_of
from ..records import Marginals

__all__ = ["axes_of_targets", "laid_out", "num_columns", "of_unit", "outputs_of", "stacked"]


def laid_out(likelihood, f):
    """Return marginals as the likelihood reads them.

    Parameters
    ----------
    likelihood : Likelihood
    f : Marginals (J, N)

    Returns
    -------
    Marginals
        (K, N) if J = K = ``latents_per_output``, else (K, P, N); ``f`` itself for K = 1.

    Raises
    ------
    ValueError
        J is no multiple of K.

    Examples
    --------
    >>> f = fs.records.Marginals(np.zeros((6, 40)), np.ones((6, 40)))
    >>> laid_out(fs.likelihoods.HeteroskedasticGaussian(), f).mean.shape
    (2, 3, 40)
    """
    K = likelihood.latents_per_output
    if K == 1:
        return f
    *axes, N = f.mean.shape
    shape = K, *outputs_of(likelihood, tuple(axes)), N
    return Marginals(f.mean.reshape(shape), f.var.reshape(shape))


def stacked(likelihood, f_bar):
    """Return derivatives in the marginals of a likelihood in the rows of the model: the inverse.

    Parameters
    ----------
    likelihood : Likelihood
    f_bar : Marginals (K, N) or (K, P, N), or None

    Returns
    -------
    Marginals (J, N), or None
        ``f_bar`` itself for K = 1.

    Examples
    --------
    >>> bar = fs.records.Marginals(np.zeros((2, 3, 40)), np.ones((2, 3, 40)))
    >>> stacked(fs.likelihoods.HeteroskedasticGaussian(), bar).mean.shape
    (6, 40)
    """
    if f_bar is None or likelihood.latents_per_output == 1:
        return f_bar
    shape = math.prod(f_bar.mean.shape[:-1]), f_bar.mean.shape[-1]
    return Marginals(f_bar.mean.reshape(shape), f_bar.var.reshape(shape))


def of_unit(likelihood, y):
    """Return targets as the likelihood reads them, of one trial or one unit of exposure.

    Parameters
    ----------
    likelihood : Likelihood
    y : (N,) or (P, N) array

    Returns
    -------
    array
        ``y`` itself for one column, else (C, N) or (C, P, N) with ``unit_columns``.

    Raises
    ------
    TypeError
        The likelihood does not say what predictions take for the other columns.

    Examples
    --------
    >>> of_unit(fs.likelihoods.Binomial(), np.zeros(40)).shape
    (2, 40)
    """
    names, units = likelihood.target_columns, likelihood.unit_columns
    if len(names) == 1:
        return y
    if len(units) != len(names) - 1:
        raise TypeError(
            f"a {type(likelihood).__name__} likelihood does not say what predictions of y take for"
            f" the columns {', '.join(names[1:])}: set its `unit_columns`"
        )
    return np.stack([y, *(np.zeros(y.shape, y.dtype, like=y) + one for one in units)])
