"""The algebra of a small whitened posterior, between two compiled calls. On the CPU only."""

from ..runtime.dispatch import family

twin = family("small_whitened")


def whitened_marginals(inverse, Kuf, kff, mean, tril):
    """``(Lam, V, mean, var, raised)`` with Lam = L^-1 Kuf, V = W' Lam, Lam' m and kff + colsum(V^2 - Lam^2).

    inverse : (M, M), L^-1; Kuf : (M, N); kff : (N,); mean m : (M,); tril W : (M, M), its strict upper triangle is never read.
    ``raised`` variances were below eps kff, and are that now. 2 M^2 N flops.
    """
    return twin(inverse=inverse, Kuf=Kuf, kff=kff, mean=mean, tril=tril).whitened_marginals(
        inverse, Kuf, kff, mean, tril
    )


def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    """The way back: V becomes L^-T (m a' + 2 (W V - Lam) diag(b)), Lam_a gains Lam a, and G gains Lam diag(2 b) Lam'.

    a, b : (N,), the cotangents of mean and var. G, of which the lower triangle is right, is overwritten without ``add``.
    3 M^2 N flops.
    """
    twin(
        inverse=inverse,
        Lam=Lam,
        V=V,
        mean=mean,
        tril=tril,
        a=a,
        b=b,
        Lam_a=Lam_a,
        G=G,
    ).whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add)


def whitened_bars(tril, G, mean, Lam_a, kl_bar, need_C):
    """``(mean_bar, tril_bar, C)``: Lam a + kappa m, tril(G W) + kappa (W - diag(1 / W_ii)), and, if need be, the lower triangle
    of C = m (Lam a)' + W W' G - G.

    G becomes symmetric. 5/3 M^3 flops.
    """
    return twin(tril=tril, G=G, mean=mean, Lam_a=Lam_a).whitened_bars(
        tril, G, mean, Lam_a, kl_bar, need_C
    )


def whitened_kl(mean, tril):
    """``(|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``."""
    return twin(mean=mean, tril=tril).whitened_kl(mean, tril)
