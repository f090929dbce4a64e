"""Layout of latent functions for likelihoods that read K of them per output.

A model has J = K P latent functions of P outputs, in the rows of one array: row k P + p is the k-th
function of output p. A likelihood reads f (K, N) for targets (N,), and (K, P, N) for (P, N).
"""

import math

from ..check import outputs_of
from ..records import Marginals

__all__ = ["laid_out", "outputs_of", "stacked"]


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
    >>> f = fs.Marginals(np.zeros((6, 40)), np.ones((6, 40)))
    >>> laid_out(fs.HeteroskedasticGaussian(), f).mean.shape
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
    >>> bar = fs.Marginals(np.zeros((2, 3, 40)), np.ones((2, 3, 40)))
    >>> stacked(fs.HeteroskedasticGaussian(), bar).mean.shape
    (6, 40)
    """
    if f_bar is None or likelihood.latents_per_output == 1:
        return f_bar
    shape = math.prod(f_bar.mean.shape[:-1]), f_bar.mean.shape[-1]
    return Marginals(f_bar.mean.reshape(shape), f_bar.var.reshape(shape))
