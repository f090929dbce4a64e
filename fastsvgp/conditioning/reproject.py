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
    t, A, before = site_of(model, jitter)
    with naming_repeated(inducing):
        L = PriorFactor(covariance.Kuu(inducing), jitter).L
    cross = kernels.solve_triangular(L, cross_covariance(covariance, inducing, old, jitter))
    G = divide(cross, before.L, transpose=True)
    moved = zip(*(move_site(G, *site) for site in functions_of(t, A)), strict=True)
    posterior = with_site(model.posterior, L, *map(np.stack, moved))
    return replace(model, inducing=inducing, posterior=posterior)


def site_of(model, jitter):
    """Return ``(t, A, prior)`` of q(v): (..., M), (..., M, M), and the prior of u."""
    with naming_repeated(model.inducing):
        prior = PriorFactor(model.covariance.Kuu(model.inducing), jitter)
        return *state_of(model.posterior, prior), prior


def functions_of(t, A):
    """Return the site of each function: pairs (M,), (M, M)."""
    M = t.shape[-1]
    return list(zip(t.reshape(-1, M), A.reshape(-1, M, M), strict=True))


def with_site(q, L, t, A):
    """Return a posterior of the class and outputs of ``q`` with the sites (P, M), (P, M, M)."""
    axes, M = np.shape(next(iter(vars(q).values())))[:-1], t.shape[-1]
    return from_state(type(q), L, t.reshape(*axes, M), A.reshape(*axes, M, M))


def divide(B, L, transpose=False):
    """Return B op(L)^-1, for B (M', M)."""
    return _transpose(kernels.solve_triangular(L, _transpose(B), transpose=not transpose))


def _transpose(B):
    return np.ascontiguousarray(B.T, like=B)


def times(A, x, transpose=False):
    """Return op(A) x, for a vector x."""
    return kernels.matmul(A, x[:, None], transpose_a=transpose)[:, 0]


def move_site(G, t, A):
    """Return G t and G A G'."""
    return times(G, t), kernels.matmul(kernels.matmul(G, A), G, transpose_b=True)
