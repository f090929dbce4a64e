"""Natural-gradient steps towards chol(A^-1), made of matrix products only."""

from ..runtime.dispatch import operation


@operation("A", "L")
def newton_schulz_gram(A, L):
    """Compute the lower triangle of the residual ``D = L' A L - I``, and its norms.

    Parameters
    ----------
    A : (..., M, M), symmetric, and L : (..., M, M), lower
        Only their lower triangles are read. Leading axes broadcast.

    Returns
    -------
    D : (..., M, M)
        Lower, zeros above the diagonal.
    stats : (..., 4) float64
        ``||D||_F`` (of the whole symmetric matrix; divided by sqrt(M) it is the normalised
        residual), smallest and largest diagonal entry of ``L' A L``, trace of D. If A or L holds
        NaN or infinity, the first entry is not finite.

    Cost: M^3 flops, because only the needed triangles are computed.
    """


@operation("L", "D", "step_size")
def newton_schulz_update(L, D, step_size, overwrite_d=False):
    """Compute ``L (I - g Phi(D))`` for the lower ``D`` of ``newton_schulz_gram``.

    Phi keeps the lower triangle and halves the diagonal.

    Parameters
    ----------
    L, D : (..., M, M)
        Only lower triangles are read. Leading axes broadcast, also with those of ``step_size``.
    step_size : g, a number or (...)
        The diagonal stays positive if g (L' A L - I)_ii < 2.
    overwrite_d : bool
        Allow D to be overwritten: on the CPU the result replaces it (if D is C-contiguous and has
        the shape of the result).

    Returns
    -------
    (..., M, M), zeros above the diagonal.

    Cost: M^3 / 3 flops. Source: eq. (6) of the inverse-free paper, L - g L [tril(E) - (I + diag(E))
    / 2].
    """


@operation("A", "L", "step_size")
def newton_schulz_step(A, L, step_size):
    """Apply ``newton_schulz_gram`` and ``newton_schulz_update`` in one call. 4/3 M^3 flops."""


@operation("L_new_bar", "A", "L", "D", "step_size")
def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    """Pull L_new_bar back through ``newton_schulz_step``: ``(A_bar, L_bar)``.

    D is that of ``newton_schulz_gram(A, L)``. Cotangents not in ``need`` are None. With S = Phi(C)
    + Phi(C)', C = L' tril(L_new_bar), and F = I - g Phi(D): A_bar = -g/2 L S L', symmetric, and
    L_bar = tril(L_new_bar F') - g tril(A L S). Only lower triangles are read. 4/3 M^3 flops for
    A_bar, 3 M^3 for both.
    """


@operation("L", "S")
def tril_congruence(L, S):
    """Compute the lower triangle of ``L S L'`` for lower L and symmetric S (..., M, M). M^3 flops.

    Only lower triangles are read. The entries of the result above its diagonal are undefined:
    ``symmetrise`` fills them in.
    """


@operation("A", "L", "D")
def newton_schulz_curvature(A, L, D):
    """Compute the step direction P = L Phi(D) (..., M, M) and c = <P, A P> (...) in float64.

    Along ``L - g P`` the trace of L' A L is quadratic in g with last term c g^2, so c is all that
    an exact line search needs. M^3 flops.
    """


@operation("S", "v")
def power_iteration(S, v, shift=0.0, iterations=3):
    """Estimate the largest absolute eigenvalue of ``S + shift I`` by power iteration from ``v``.

    Parameters
    ----------
    S : (..., M, M), symmetric, lower triangle read
    v : (..., M)
        Non-zero start vector of any length.

    Returns
    -------
    size : (...) float64
        ||(S + shift I) v|| / ||v|| of the last iteration: a lower bound on the largest magnitude.
    v : (..., M)
        Start vector for the next call, when S has changed a little.

    Cost: 2 M^2 flops, and one pass over half of S, per iteration.
    """


@operation("A", "L", "v", "*start")
def newton_schulz_walk(A, L, v, tolerance, steps, start=None, iterations=(3, 3)):
    """Take several steps whose sizes follow from the current iterate.

    On a GPU nothing synchronises: step sizes and termination are decided there.

    Parameters
    ----------
    A : (..., M, M), symmetric, and L : (..., M, M), lower
        Only their lower triangles are read. Leading axes broadcast.
    v : (..., M)
        Start vector for ``power_iteration``: any non-zero vector at first, then that of the last
        call. None if no step is taken.
    tolerance : float
        Bound on ||D||_F / sqrt(M).
    steps : int
        Maximum number of steps. A batch item stops earlier when it has converged or failed.
    start : (D, stats), optional
        Result of ``newton_schulz_gram(A, L)`` for the whole batch. D may be overwritten.
    iterations : (int, int)
        Power iterations before the first step (ten are good at first) and before each later step.
        With 0 the largest diagonal entry replaces the largest eigenvalue; steps are unchanged where
        ||D||_F < 0.46 already.

    Returns
    -------
    factors : (steps, ..., M, M)
        Factor after each step. Entries after the last step of an item are undefined.
    D : (..., M, M)
        Residual of the last factor of each item.
    rows : (steps + 1, ..., 6) float64
        Per factor, starting with L: the four numbers of ``newton_schulz_gram``; ``log|L L'|``, or
        -infinity if a diagonal entry of L is not positive; and the size of the step taken from it,
        0 if none was taken. After an item's last step its rows repeat.
    v : (..., M)

    Notes
    -----
    With lam the largest eigenvalue of L' A L, the size is 1 where ||D||_F < 0.46 (unit steps
    converge quadratically from there) and while 0.45 < lam < 2 (1.5 where ||D||_F > 0.3 sqrt(M));
    otherwise it is 2 / (lam + sqrt(lam)), which maps lam to 1. It is 0 where the tolerance is
    reached, where D is not finite, and where L' A L has a diagonal entry that is not positive.
    These steps usually decrease the residual; ``fastsvgp.optim.inverse_factor`` checks that they
    did.

    Cost: 4/3 M^3 flops per step, and M^3 once if there is no ``start``.
    """
