"""Natural-gradient steps towards chol(A^-1), which are made of products only."""

from ..runtime.dispatch import check_out, family

twin = family("newton_schulz")


def newton_schulz_gram(A, L, out=None):
    """What a lower factor leaves over: the lower triangle of ``D = L' A L - I``, and its norms.

    Parameters
    ----------
    A : (..., M, M), symmetric, and L : (..., M, M), lower
        Only their lower triangles are read. Leading axes broadcast.
    out : (..., M, M), C-contiguous, optional
        Receives D. It must not share memory with A or L.

    Returns
    -------
    D : (..., M, M)
        Lower, zeros above the diagonal.
    stats : (..., 4) float64
        ``||D||_F`` (of the whole symmetric matrix; over sqrt(M) it is the normalised residual),
        smallest and largest diagonal entry of ``L' A L``, trace of D. Where NaN or infinity came
        in, the first one is not finite.

    Raises
    ------
    ValueError
        ``out`` is not C-contiguous, or shares memory with A or L.

    Cost: M^3 flops, for the triangles that count.
    """
    module = twin(A=A, L=L, out=out)
    check_out(out, A=A, L=L)
    return module.newton_schulz_gram(A, L, out)


def newton_schulz_update(L, D, step_size, overwrite_d=False):
    """``L (I - g Phi(D))`` for the lower ``D`` of ``newton_schulz_gram``; Phi keeps the lower triangle and halves the diagonal.

    Parameters
    ----------
    L, D : (..., M, M)
        Only lower triangles are read. Leading axes broadcast, also with those of ``step_size``.
    step_size : g, a number or (...)
        The diagonal stays positive where g (L' A L - I)_ii < 2.
    overwrite_d : bool
        D may be lost: on the CPU the result takes its place (where D is C-contiguous and of the
        shape of the result).

    Returns
    -------
    (..., M, M), zeros above the diagonal.

    Cost: M^3 / 3 flops. Source: eq. (6) of the inverse-free paper, L - g L [tril(E) - (I + diag(E))
    / 2].
    """
    return twin(L=L, D=D, step_size=step_size).newton_schulz_update(L, D, step_size, overwrite_d)


def newton_schulz_step(A, L, step_size, out=None):
    """``newton_schulz_gram`` and ``newton_schulz_update`` in one: 4/3 M^3 flops.

    ``out`` (..., M, M), C-contiguous, receives the new factor. It must not share memory with A or
    L; ``ValueError`` where it does, or is not contiguous.
    """
    module = twin(A=A, L=L, step_size=step_size, out=out)
    check_out(out, A=A, L=L)
    return module.newton_schulz_step(A, L, step_size, out)


def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    """``(A_bar, L_bar)`` of ``newton_schulz_step``, with D of ``newton_schulz_gram(A, L)``; None for what is not in ``need``.

    With S = Phi(C) + Phi(C)', C = L' tril(L_new_bar), and F = I - g Phi(D): A_bar = -g/2 L S L',
    symmetric, and L_bar = tril(L_new_bar F') - g tril(A L S). Lower triangles are read. 4/3 M^3
    flops for A_bar, 3 for both.
    """
    module = twin(L_new_bar=L_new_bar, A=A, L=L, D=D, step_size=step_size)
    return module.newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need)


def tril_congruence(L, S):
    """Lower triangle of ``L S L'`` for lower L and symmetric S (..., M, M), of which lower triangles are read. M^3 flops.

    What the result has above its diagonal is not defined: ``symmetrise`` fills it in.
    """
    return twin(L=L, S=S).tril_congruence(L, S)


def newton_schulz_curvature(A, L, D):
    """``(P, c)`` with P = L Phi(D) (..., M, M), the direction of the step, and c = <P, A P> (...) in float64.

    Along ``L - g P`` the trace of L' A L is quadratic in g, with c g^2 as its last term: an exact
    line search needs no more. M^3 flops.
    """
    return twin(A=A, L=L, D=D).newton_schulz_curvature(A, L, D)


def power_iteration(S, v, shift=0.0, iterations=3):
    """Largest eigenvalue, in magnitude, of ``S + shift I`` by power iteration from ``v``.

    Parameters
    ----------
    S : (..., M, M), symmetric, lower triangle read
    v : (..., M)
        Any length but zero.

    Returns
    -------
    size : (...) float64
        ||(S + shift I) v|| / ||v|| of the last iteration: never more than the largest magnitude.
    v : (..., M)
        To start from the next time, when S has changed a little.

    Cost: 2 M^2 flops, and one pass over half of S, an iteration.
    """
    return twin(S=S, v=v).power_iteration(S, v, shift, iterations)


def newton_schulz_walk(A, L, v, tolerance, steps, start=None, iterations=(3, 3)):
    """Several steps of sizes that follow from where they start.

    On a device nothing waits: sizes and the end are decided there.

    Parameters
    ----------
    A : (..., M, M), symmetric, and L : (..., M, M), lower
        Only their lower triangles are read. Leading axes broadcast.
    v : (..., M)
        For ``power_iteration``: any non-zero vector at first, then the one of the last call; or
        None where no step is taken.
    tolerance : float
        On ||D||_F / sqrt(M).
    steps : int
        At most so many: those of an item end where there is nothing more to do.
    start : (D, stats), optional
        Of ``newton_schulz_gram(A, L)``, for the whole batch. D may be lost.
    iterations : (int, int)
        Of power iteration before the first step, where ten are good at first, and before each of
        the others. With 0 the largest diagonal entry stands for the largest eigenvalue: nothing
        changes where ||D||_F < 0.46 already.

    Returns
    -------
    factors : (steps, ..., M, M)
        After each step; what is there after the last step of an item is not defined.
    D : (..., M, M)
        Of the last factor of each item.
    rows : (steps + 1, ..., 6) float64
        Of each factor, that of the start first: the four of ``newton_schulz_gram``; ``log|L L'|``,
        or -infinity where a diagonal entry of L is not positive; and the size of the step from
        there, 0 where none was taken. From there on rows repeat.
    v : (..., M)

    Notes
    -----
    With lam the largest eigenvalue of L' A L the size is 1 where ||D||_F < 0.46, from where unit
    steps converge quadratically, and while 0.45 < lam < 2 (1.5 where ||D||_F > 0.3 sqrt(M)); else 2
    / (lam + sqrt(lam)), which takes lam to 1. It is 0 where the tolerance is reached, and where D
    is not finite or L' A L has a diagonal entry that is not positive. Such steps mostly lead
    closer; ``fastsvgp.inverse_factor`` looks whether they did.

    Cost: 4/3 M^3 flops a step, and M^3 at first where there is no ``start``.
    """
    named = {} if start is None else {"start[0]": start[0], "start[1]": start[1]}
    return twin(A=A, L=L, v=v, **named).newton_schulz_walk(
        A, L, v, tolerance, steps, start, iterations
    )
