"""Layout of latent functions and targets for likelihoods that read several for each output.

A model has J = K P latent functions of P outputs, in the rows of one array: row k P + p is the k-th
function of output p. A likelihood reads f (K, N) for targets (N,), and (K, P, N) for (P, N).

Targets of C columns, such as a count and its exposure, are (N, C) or (N, P, C) for users. A
likelihood reads (C, N) or (C, P, N), as ``check.targets`` returns them.
"""

import math

import numpy as np

from ..check import outputs_of
from ..records import Marginals


def laid_out(likelihood, f):
    """Return marginals (J, N) as the likelihood reads them: (K, P, N), or (K, N) for J = K.

    For K = ``latents_per_output`` = 1 they are ``f`` itself. Raise ``ValueError`` if J is no
    multiple of K.
    """
    K = likelihood.latents_per_output
    if K == 1:
        return f
    *axes, N = f.mean.shape
    shape = K, *outputs_of(likelihood, tuple(axes)), N
    return Marginals(f.mean.reshape(shape), f.var.reshape(shape))


def stack_latents(likelihood, f_bar):
    """Undo ``laid_out`` for derivatives: rows (J, N) of the model. None stays None."""
    if f_bar is None or likelihood.latents_per_output == 1:
        return f_bar
    shape = math.prod(f_bar.mean.shape[:-1]), f_bar.mean.shape[-1]
    return Marginals(f_bar.mean.reshape(shape), f_bar.var.reshape(shape))


def add_unit_columns(likelihood, y):
    """Return targets ``y`` as the likelihood reads them, of one trial or one unit of exposure.

    Raise ``TypeError`` if it does not say what predictions take for the other columns.
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
