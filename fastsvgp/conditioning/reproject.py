"""The same q(u) at other inducing inputs: what M new values know of M old ones.

With L of the old inducing inputs Z, v = L^-1 u, L' of the new Z', w = L'^-1 u', and
Lam_a = L'^-1 k(Z', Z), G = Lam_a L^-T (M', M), the prior gives

    v | w ~ N(G'w, T),    T = L^-1 (K_ZZ - Lam_a' Lam_a) L^-T

q(v) is the prior times a site with natural parameters t and A (``bounds.convert.state_of``). As M
rows of data with the dense noise A^-1 it gives the q(w) of the streaming bound (Bui et al. 2017),

    t' = G t,    A' = G A G'

An inducing input that stays is the same variable, jitter included: k(Z', Z) has the jitter where
rows are equal. Then T = 0 if Z' contains Z, and nothing is lost. Without it T is of the order of
jitter, and A, the inverse of a small covariance, makes much of that.
"""

import numpy as np

from .. import check, kernels
from ..bounds.convert import from_state, state_of
from ..errors import warn
from ..posteriors.base import PriorFactor
from ..records import is_record, replace
from ..records.inducing_sets import naming_repeated


def check_inputs_as_inducing(name, covariance, inducing):
    """Refuse inducing inputs that are no rows of X: blocks between two sets need such rows."""
    if is_record(inducing) or type(covariance).columns_of != "`inducing`":
        raise TypeError(
            f"{name}: inducing inputs of a {type(covariance).__name__} covariance cannot change,"
            " because they are no rows of `X`; leave `inducing` as it is"
        )


def cross_covariance(covariance, new, old, jitter):
    """k(new, old) (M', M) of two sets of inducing inputs; equal rows carry the jitter."""
    K = covariance.Kuf(new, old)
    return K + kept(new, old) * K.dtype.type(jitter)


def kept(new, old):
    """Which rows of two sets are equal, (M', M)."""
    return (new[:, None] == old[None]).all(-1)


def reproject(name, model, inducing, jitter):
    """Return the SVGP with its q(u) at other inducing inputs; parameters are fixed."""
    check_inputs_as_inducing(name, model.covariance, model.inducing)
    inducing = check.inputs("inducing", inducing)
    model, _, _, dtype = check.svgp(model)
    jitter, covariance, old = check.jitter_amount(jitter, dtype), model.covariance, model.inducing
    inducing = inducing.astype(dtype, copy=False)
    check.columns(inducing, old.shape[1], "inducing", "the model")
    if not kept(inducing, old).any(0).all():
        warn(
            f"{name}: `inducing` leaves out inducing inputs of the model: q(u) forgets what they"
            " told, and stays too sure; keep all and add rows, or train on old and new data"
        )
    with naming_repeated(inducing):
        before = PriorFactor(covariance.Kuu(old), jitter)
        L = PriorFactor(covariance.Kuu(inducing), jitter).L
    t, A = state_of(model.posterior, before)
    cross = kernels.solve_triangular(L, cross_covariance(covariance, inducing, old, jitter))
    G = np.ascontiguousarray(
        kernels.solve_triangular(before.L, np.ascontiguousarray(cross.T, like=cross)).T, like=cross
    )
    M = len(G)
    moved_t = kernels.matmul(t.reshape(-1, G.shape[1]), G, transpose_b=True)
    moved_A = np.stack(
        [
            kernels.matmul(kernels.matmul(G, one), G, transpose_b=True)
            for one in A.reshape(-1, *A.shape[-2:])
        ]
    )
    shape = t.shape[:-1]
    moved = from_state(
        type(model.posterior), L, moved_t.reshape(*shape, M), moved_A.reshape(*shape, M, M)
    )
    return replace(model, inducing=inducing, posterior=moved)
