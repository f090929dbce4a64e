"""Fused algebra of a small whitened posterior, and its whole steps, as compiled calls. CPU only."""

from ..runtime.dispatch import operation


@operation("inverse", "Kuf", "kff", "mean", "tril")
def whitened_marginals(inverse, Kuf, kff, mean, tril):
    """Compute ``(Lam, V, mean, var, raised)``: the marginals Lam' m and kff + colsum(V^2 - Lam^2).

    Lam = L^-1 Kuf and V = W' Lam. 2 M^2 N flops.

    inverse : (M, M), L^-1; Kuf : (M, N); kff : (N,); mean m : (M,); tril W : (M, M), whose strict
    upper triangle is never read.

    ``raised`` counts the variances that were below eps kff and were set to it.
    """


@operation("inverse", "Lam", "V", "mean", "tril", "a", "b", "Lam_a", "G")
def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    """Backward pass: V becomes L^-T (m a' + 2 (W V - Lam) diag(b)).

    Lam_a gains Lam a, and G gains Lam diag(2 b) Lam'. 3 M^2 N flops.

    a, b : (N,), the cotangents of mean and var. Only the lower triangle of G is valid; G is
    overwritten without ``add``.
    """


@operation("tril", "G", "mean", "Lam_a")
def whitened_bars(tril, G, mean, Lam_a, kl_bar, need_C):
    """Compute ``(mean_bar, tril_bar, C)`` of a whitened posterior and its KL divergence.

    mean_bar = Lam a + kappa m and tril_bar = tril(G W) + kappa (W - diag(1 / W_ii)). With
    ``need_C``, C is the lower triangle of m (Lam a)' + W W' G - G. G becomes symmetric. 5/3 M^3
    flops.
    """


@operation("mean", "tril")
def whitened_kl(mean, tril):
    """Compute ``(|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``."""


@operation("Z", "X", "Y", "mean", "tril")
def whitened_step(covariance, Z, X, Y, mean, tril, noise, jitter, factor, kl_bar):
    """Compute the data term, the KL divergence, and all gradients of their weighted sum.

    covariance : (family, variance, lengthscales), as in ``stationary``; Z : (M, D); X : (N, D); Y :
    (N,), with N > 0; mean and tril as in ``whitened_marginals``; noise : variance of Gaussian noise

    jitter is added to the diagonal of Kuu. The data term includes ``factor``; ``kl_bar`` is the
    cotangent of the KL divergence, -1 in a bound.

    Returns ``(data, kl, of_covariance, Z_bar, of_posterior, noise_bar)``, whose pairs are those of
    variance and lengthscales, and of mean and tril. Returns None if Kuu + jitter I could not be
    factorised, or if a marginal variance was below eps kff. 5 M^2 N + 6 M^3 flops. Long batches run
    on several threads.
    """


@operation("Z", "X", "Y", "mean", "tril")
def whitened_sums(covariance, Z, X, Y, mean, tril, noise, jitter, factor, natural):
    """Compute ``(data, kl, Lam_a, G)``: a bound, and with ``natural`` the sums of a natural step.

    The arguments are those of ``whitened_step``; Lam_a and G those of ``whitened_cotangents``,
    empty without ``natural``. Returns None where ``whitened_step`` does. 2 M^2 N + 2/3 M^3 flops,
    with ``natural`` M^2 N more.
    """


@operation("mean", "tril", "Lam_a", "G")
def whitened_natural_step(mean, tril, Lam_a, G, step_size):
    """Compute ``(mean, tril)`` after a natural step of size r, from the sums Lam_a and G.

    The new precision is (1 - r) (W W')^-1 + r (I - G). Raises ``NotPositiveDefinite`` where that is
    not positive definite. The lower triangles of W and G are read. 4/3 M^3 flops.
    """
