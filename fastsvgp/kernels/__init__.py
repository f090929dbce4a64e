"""Compute kernels: arrays in, arrays out, and no word about Gaussian processes.

This is the front door. Each operation is documented here once, with its reverse rule
``op_vjp(output_bar, ...)`` beside it; the arrays decide whether the CPU twin (Numba, LAPACK) or the
CUDA twin runs. Arguments are trusted: the checks for users sit in ``fastsvgp.check``. Matrices may
have any strides; results are C-contiguous and of the dtype of the arrays.

All of them raise ``TypeError`` where some arrays live on a device and others do not (0-d arrays of
NumPy go anywhere), and ``MemoryError`` where a device has no memory left; both name the arguments.
"""

import numpy as np

from ..runtime.dispatch import one_device, shares_memory, twin
from .aliasing import check_out

# --- triangular: lower factors. The strict upper triangle of a factor is never read --------------------------------------


def solve_triangular(L, B, transpose=False, overwrite_b=False):
    """Solve ``L X = B``, or ``L' X = B`` with ``transpose``.

    Parameters
    ----------
    L : (..., M, M)
        Lower factors. One factor (M, M) for many right-hand sides is one call however many axes
        ``B`` has.
    B : (..., M, R)
    overwrite_b : bool
        The result may take the place of ``B`` (it does where ``B`` is C-contiguous).

    Returns
    -------
    X : (..., M, R)

    Cost: M^2 R flops an entry of the batch. The 64-row diagonal blocks are inverted explicitly, the
    rest is products.
    """
    return twin("triangular", L=L, B=B).solve_triangular(L, B, transpose, overwrite_b)


def solve_triangular_vjp(X_bar, L, X, transpose=False):
    """``(L_bar, B_bar)`` from the solution ``X``: B_bar = L^-T X_bar, L_bar = -tril(B_bar X'). 2 M^2 R flops."""
    return twin("triangular", X_bar=X_bar, L=L, X=X).solve_triangular_vjp(X_bar, L, X, transpose)


def solve_moments(L, B, x):
    """``(X' x, sum_i X[i]^2)``, both (..., R), for the solution X of ``L X = B``, which is not kept: means and squared norms.

    L : (..., M, M), B : (..., M, R), x : (..., M); leading axes broadcast. Sums are kept in float64. M^2 R flops. On a device
    X never leaves the chip for M up to 128 (float64 on small devices: 96).
    """
    return twin("triangular", L=L, B=B, x=x).solve_moments(L, B, x)


def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    """``L B``, or ``L' B`` with ``transpose``; arguments as in ``solve_triangular``. M^2 R flops."""
    return twin("triangular", L=L, B=B).multiply_triangular(L, B, transpose, overwrite_b)


def tril_multiply(L, B, overwrite_b=False):
    """Lower triangle of ``L B`` for lower factors L and square B (..., M, M). 2/3 M^3 flops.

    What the result has above its diagonal is not defined. ``overwrite_b``: it may take the place of
    B.
    """
    return twin("triangular", L=L, B=B).tril_multiply(L, B, overwrite_b)


def multiply_triangular_vjp(Y_bar, L, B, transpose=False):
    """``(L_bar, B_bar)`` of ``multiply_triangular``: L_bar = tril(Y_bar B'), B_bar = L' Y_bar. 2 M^2 R flops."""
    return twin("triangular", Y_bar=Y_bar, L=L, B=B).multiply_triangular_vjp(Y_bar, L, B, transpose)


def solve_tril(L, W):
    """``L^-1 W`` for lower triangular L and W (..., M, M): lower, zeros above the diagonal.

    M^3 / 3 flops.

    The strict upper triangles of both are never read.
    """
    return twin("triangular", L=L, W=W).solve_tril(L, W)


def solve_tril_vjp(X_bar, L, X):
    """``(L_bar, W_bar)`` from the result ``X``: with S = L^-T tril(X_bar), W_bar = tril(S), L_bar = -tril(S X')."""
    return twin("triangular", X_bar=X_bar, L=L, X=X).solve_tril_vjp(X_bar, L, X)


def inverse_triangular(L, overwrite_l=False):
    """``L^-1`` (..., M, M), lower, zeros above the diagonal. M^3 / 3 flops.

    ``overwrite_l``: it may take the place of L, which must have zeros there then, as the factors of
    ``cholesky`` do.
    """
    return twin("triangular", L=L).inverse_triangular(L, overwrite_l)


def prefers_inverse(L, columns):
    """Whether products with ``L^-1`` are the better choice for so many columns of solves with a factor L (..., M, M).

    On the CPU up to M = 256, where a product runs at the gemm rate and a solve at 60 to 90 % of it,
    if there are M columns at least. On a device up to 8192 in float64, and 256 in float32: the
    errors grow with cond(L) either way, but in float32 those of values and gradients of a bound at
    M = 300 and 800 were measured to be up to 20 times as large by the inverse as by solves.
    """
    return twin("triangular", L=L).prefers_inverse(L, columns)


def inverse_triangular_vjp(X_bar, X):
    """``L_bar`` from the inverse ``X``: -tril(X' X_bar X'). 2 M^3 flops."""
    return twin("triangular", X_bar=X_bar, X=X).inverse_triangular_vjp(X_bar, X)


def tril_gram(L, w=None):
    """Lower triangle of ``L' diag(w) L`` for lower factors L (..., M, M) and weights w (M,) >= 0, by default 1. M^3 / 3 flops.

    What the result has above its diagonal is not defined: ``symmetrise`` fills it in.
    """
    return twin("triangular", L=L, w=w).tril_gram(L, w)


def tril_product(A, B, out=None, add=False):
    """Lower triangle of ``A B'`` for A, B (..., M, K), zeros above the diagonal.

    M^2 K flops, half of the full product.

    ``out`` (..., M, M), C-contiguous, receives it; with ``add`` it is added to the lower triangle
    that ``out`` holds.
    """
    return twin("triangular", A=A, B=B, out=out).tril_product(A, B, out, add)


def tril(A):
    """Set what is above the diagonals of A (..., M, M), C-contiguous, to zero, in place; returns A."""
    return twin("triangular", A=A).tril(A)


# --- cholesky: factors of positive definite matrices. Only lower triangles are read --------------------------------------


def cholesky(A, jitter=0.0, overwrite_a=False, noise=None):
    """Lower Cholesky factors: ``L L' = A + diag(noise) + jitter I``, positive diagonal, zeros above it.

    Parameters
    ----------
    A : (..., M, M)
    jitter : float
        Absolute amount added to the diagonal. It is never changed behind your back.
    overwrite_a : bool
        The factor may take the place of ``A`` (it does where ``A`` is C-contiguous).
    noise : (M,), optional
        Added to the diagonal too: saves the pass that would make A + diag(noise).

    Raises
    ------
    NotPositiveDefinite
        Names the batch entry, the pivot and the jitter; NaN and infinity come out here too.

    Cost: M^3 / 3 flops an entry.
    """
    return twin("cholesky", A=A, noise=noise).cholesky(A, jitter, overwrite_a, noise)


def cholesky_vjp(L_bar, L):
    """``A_bar`` (symmetric) for the factor L of A: L^-T (Phi(P) + Phi(P)') L^-1 / 2, P = L' L_bar. 2 M^3 flops.

    Phi keeps the lower triangle and halves the diagonal (Murray 2016, "Differentiation of the
    Cholesky decomposition").
    """
    return twin("cholesky", L_bar=L_bar, L=L).cholesky_vjp(L_bar, L)


def whitening_vjp(C, L, overwrite_c=False, inverse=None):
    """``A_bar = -L^-T (Phi(C) + Phi(C)') L^-1 / 2``: the gradient of anything that sees A only through X_k = L^-1 Y_k.

    With L = chol(A) and C = sum_k X_k_bar X_k' (only its lower triangle is read) no derivative of
    the factor is needed: a change dA moves X_k by -Phi(L^-1 dA L^-T) X_k. The cotangents of the Y_k
    are L^-T X_k_bar.

    Parameters
    ----------
    C, L : (..., M, M)
    overwrite_c : bool
        The result may take the place of ``C``.
    inverse : (M, M), optional
        L^-1 for a single L, where it is at hand: two products with it then replace the solves.

    Returns
    -------
    A_bar : (..., M, M), symmetric

    Cost: M^3 flops (a symmetric congruence by blocks); 2 M^3 with ``inverse``, all of them
    products.
    """
    return twin("cholesky", C=C, L=L, inverse=inverse).whitening_vjp(C, L, overwrite_c, inverse)


def cholesky_inverse(L):
    """``(L L')^-1`` (..., M, M), symmetric, from a lower factor. 2/3 M^3 flops."""
    return twin("cholesky", L=L).cholesky_inverse(L)


def cholesky_inverse_vjp(Y_bar, L, Y):
    """``L_bar`` of ``Y = cholesky_inverse(L)``: -tril(Y (Y_bar + Y_bar') L^-T). 3 M^3 flops."""
    return twin("cholesky", Y_bar=Y_bar, L=L, Y=Y).cholesky_inverse_vjp(Y_bar, L, Y)


def cholesky_product(L):
    """``L L'`` of lower factors (..., M, M), both triangles; the upper triangles of L are never read. M^3 / 3 flops each."""
    return twin("cholesky", L=L).cholesky_product(L)


def cholesky_of_inverse(A, jitter=0.0):
    """Lower ``W`` with ``W W' = (A + jitter I)^-1`` and a positive diagonal, without forming the inverse. 2/3 M^3 flops.

    Raises ``NotPositiveDefinite``; the elimination runs from the last row upwards.
    """
    return twin("cholesky", A=A).cholesky_of_inverse(A, jitter)


# --- newton_schulz: natural-gradient steps towards chol(A^-1), products only ---------------------------------------------


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
    module = twin("newton_schulz", A=A, L=L, out=out)
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
    return twin("newton_schulz", L=L, D=D, step_size=step_size).newton_schulz_update(
        L, D, step_size, overwrite_d
    )


def newton_schulz_step(A, L, step_size, out=None):
    """``newton_schulz_gram`` and ``newton_schulz_update`` in one: 4/3 M^3 flops.

    ``out`` (..., M, M), C-contiguous, receives the new factor. It must not share memory with A or
    L; ``ValueError`` where it does, or is not contiguous.
    """
    module = twin("newton_schulz", A=A, L=L, step_size=step_size, out=out)
    check_out(out, A=A, L=L)
    return module.newton_schulz_step(A, L, step_size, out)


def newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need=("A", "L")):
    """``(A_bar, L_bar)`` of ``newton_schulz_step``, with D of ``newton_schulz_gram(A, L)``; None for what is not in ``need``.

    With S = Phi(C) + Phi(C)', C = L' tril(L_new_bar), and F = I - g Phi(D): A_bar = -g/2 L S L',
    symmetric, and L_bar = tril(L_new_bar F') - g tril(A L S). Lower triangles are read. 4/3 M^3
    flops for A_bar, 3 for both.
    """
    module = twin("newton_schulz", L_new_bar=L_new_bar, A=A, L=L, D=D, step_size=step_size)
    return module.newton_schulz_step_vjp(L_new_bar, A, L, D, step_size, need)


def tril_congruence(L, S):
    """Lower triangle of ``L S L'`` for lower L and symmetric S (..., M, M), of which lower triangles are read. M^3 flops.

    What the result has above its diagonal is not defined: ``symmetrise`` fills it in.
    """
    return twin("newton_schulz", L=L, S=S).tril_congruence(L, S)


def newton_schulz_curvature(A, L, D):
    """``(P, c)`` with P = L Phi(D) (..., M, M), the direction of the step, and c = <P, A P> (...) in float64.

    Along ``L - g P`` the trace of L' A L is quadratic in g, with c g^2 as its last term: an exact
    line search needs no more. M^3 flops.
    """
    return twin("newton_schulz", A=A, L=L, D=D).newton_schulz_curvature(A, L, D)


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
    return twin("newton_schulz", S=S, v=v).power_iteration(S, v, shift, iterations)


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
    return twin("newton_schulz", A=A, L=L, v=v, **named).newton_schulz_walk(
        A, L, v, tolerance, steps, start, iterations
    )


# --- products: the one BLAS, and the fused passes over (M, N) arrays between its calls -----------------------------------


def matmul(A, B, transpose_a=False, transpose_b=False):
    """``op(A) op(B)`` for matrices (..., m, k), (..., k, n): the same BLAS, the same threads as all the rest. 2 m n k flops."""
    return twin("products", A=A, B=B).matmul(A, B, transpose_a, transpose_b)


def weighted_gram(A, w, out=None, add=False, overwrite_a=False):
    """Lower triangle of ``A diag(w) A'`` for A (M, N) and weights w (N,) of either sign.

    M^2 N flops, one (M, N) copy.

    What stands above the diagonal is not touched: ``symmetrise`` fills it in. ``out`` (M, M),
    C-contiguous, receives the result; with ``add`` it is added to what ``out`` holds. With
    ``overwrite_a`` the copy is spared where all weights have one sign; ``A`` is then lost.
    """
    return twin("products", A=A, w=w, out=out).weighted_gram(A, w, out, add, overwrite_a)


def chunk_numbers(like):
    """How many numbers a matrix should have of which a long one is made part by part, for its memory: there where ``like`` lives.

    Enough for the work on a part to be efficient: 2^21 (16 MiB in float64), on a device 2^18 for
    each multiprocessor.
    """
    return twin("products", like=like).chunk_numbers(like)


def symmetrise(A):
    """Copy the lower triangles of A (..., M, M), C-contiguous, onto the upper ones, in place; returns A."""
    return twin("products", A=A).symmetrise(A)


def empty(shape, like):
    """An uninitialised array of the dtype, and on the device, of ``like``; big ones reuse memory that is no longer in use."""
    return twin("products", like=like).empty(shape, like)


def full(shape, value, like, dtype=None):
    """An array of one number, where ``like`` is, and of its dtype by default.

    For ``np.full(..., like=)``, which NumPy hands on with arguments that CuPy's function does not
    have.
    """
    one_device(("value", value), ("like", like))
    out = np.empty(shape, like.dtype if dtype is None else dtype, like=like)
    out[...] = value
    return out


def column_moments(A, x, B=None):
    """``(A' x, sum_i A[i] B[i])``, both (N,), in one pass over A and B (M, N), in float64; B is A by default. 4 M N flops."""
    return twin("products", A=A, x=x, B=B).column_moments(A, x, B)


def scale_columns(A, w, out=None):
    """``A diag(w)`` for A (M, N); ``out`` may be A itself. One pass."""
    return twin("products", A=A, w=w, out=out).scale_columns(A, w, out)


def add_outer(T, x, a, w=None):
    """In place ``T += x a'``, or ``T = T diag(w) + x a'``, for T (M, N), C-contiguous, x (M,), a, w (N,); returns T. One pass."""
    return twin("products", T=T, x=x, a=a, w=w).add_outer(T, x, a, w)


def sum_each(groups, factor=1.0):
    """``factor`` times the sum of each group of arrays of one shape, a list of arrays.

    Six groups of three are one launch.
    """
    named = {
        f"groups[{i}][{j}]": array
        for i, arrays in enumerate(groups)
        for j, array in enumerate(arrays)
    }
    return twin("sum_each", **named).sum_each(groups, factor)


def add_scaled(T, A, c):
    """In place ``T += c A`` for T, A (M, N), C-contiguous, and a number c; returns T. One pass."""
    return twin("products", T=T, A=A, c=c).add_scaled(T, A, c)


def add_outer_minus_scaled(T, x, a, A, w, scale=False):
    """In place ``T += x a' - A diag(w)``, or ``T = T diag(w) + x a' - A diag(w)`` with ``scale``; returns ``A a`` (M,). One pass.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """
    return twin("products", T=T, x=x, a=a, A=A, w=w).add_outer_minus_scaled(T, x, a, A, w, scale)


def scale_add_outer(T, w, x, a, A):
    """In place ``T = T diag(w) + x a'``; returns ``A a`` (M,). One pass.

    T, A : (M, N), C-contiguous; x : (M,); a, w : (N,)
    """
    return twin("products", T=T, w=w, x=x, a=a, A=A).scale_add_outer(T, w, x, a, A)


def tril_sum_of_squares(L):
    """Sum of squares over the lower triangles of L (..., M, M), in float64: a float.

    The upper triangle is never read.
    """
    return twin("products", L=L).tril_sum_of_squares(L)


def kl_from_standard(means, trils):
    """``KL[N(m, W W') || N(0, I)] = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``, summed over leading axes, in float64.

    means : (..., M); trils : (..., M, M) W, whose upper triangle is never read
    """
    return twin("products", means=means, trils=trils).kl_from_standard(means, trils)


def raise_to_floor(var, kff, add=False):
    """In place ``var = max(var, eps kff)``, eps that of the dtype; how many were raised: an int, or () int64 on a device.

    var : (N,) or (P, N), of any strides; kff : (N,); add : add kff to var first
    """
    return twin("products", var=var, kff=kff).raise_to_floor(var, kff, add)


def tril_update(C, L, shift, out, transpose=False):
    """``out`` becomes ``tril(C) + shift (L - diag(1 / L_ii))`` for C, L (M, M); ``transpose``: with C' for C.

    Only the lower triangles of L and op(C) are read; zeros above the diagonal. ``out`` may be C
    without ``transpose``; with it ``ValueError``, since entries would be written before they are
    read. One pass.
    """
    if transpose and shares_memory(out, C):
        raise ValueError(
            "tril_update: with `transpose` `out` must not share memory with `C`; give a new array"
        )
    return twin("products", C=C, L=L, out=out).tril_update(C, L, shift, out, transpose)


# --- quadrature: Gauss-Hermite rules ------------------------------------------------------------------------------------


def gauss_hermite_nodes(mean, var, num=20):
    """Nodes of the ``num``-point Gauss-Hermite rule for N(mean, var), elementwise: ``f_k = mean + sqrt(var) z_k``.

    Parameters
    ----------
    mean, var : (..., N)

    Returns
    -------
    F : (num, ..., N), float64 whatever the dtype of ``mean``
        Symmetric about the mean. A variance below eps^(2/3) max(1, mean^2) (3.7e-11 at mean 0) is
        raised to that: closer nodes would be lost in rounding, and the derivative in the variance
        with them.
    """
    return twin("quadrature", mean=mean, var=var).gauss_hermite_nodes(mean, var, num)


def gauss_hermite(G):
    """``sum_k w_k G[k]``: E[g(f)] for values ``G = g(gauss_hermite_nodes(mean, var, num))`` (num, ..., N); weights sum to 1.

    Exact for polynomials of degree 2 num - 1. Any g, also one with a leading axis of its own: ``G``
    (num, whatever...).
    """
    return twin("quadrature", G=G).gauss_hermite(G)


def log_gauss_hermite(log_G):
    """``log sum_k w_k exp(log_G[k])``, by log-sum-exp: log E[g(f)] for log g at the nodes, also where every g underflows."""
    return twin("quadrature", log_G=log_G).log_gauss_hermite(log_G)


def gauss_hermite_vjp(e_bar, G_prime, mean, var):
    """Reverse rule of ``gauss_hermite`` through the nodes, for ``G_prime = g'(nodes)`` (num, ..., N).

    The exact derivative of the *sum*: with f_k = mean + s z_k and s = sqrt(var), d/dmean = sum_k
    w_k g'(f_k) and d/dvar = sum_k w_k g'(f_k) z_k / (2 s), which tends to g''(mean) / 2 as var ->
    0. (The rule applied to g'' / 2 is another number: they differ by 1e-4 for logistic g, 20 nodes,
    at variances around 10.)

    Returns
    -------
    mean_bar, var_bar : (..., N), of the dtype of ``mean``
    """
    return twin("quadrature", e_bar=e_bar, G_prime=G_prime, mean=mean, var=var).gauss_hermite_vjp(
        e_bar, G_prime, mean, var
    )


def expectation(function, mean, var, num=20, need=True):
    """The Gauss-Hermite rule of one of the functions that likelihoods are made of, with its derivatives, in one fused pass.

    Parameters
    ----------
    function : str
        "log_ndtr": log Phi(f). "log_sigmoid": -log(1 + exp(-f)). "log1p_square": log(1 + f^2).
        All are accurate, and raise no floating-point flag, for any ``|f|`` up to 1e150.
    mean, var : (..., N)
    num : int
    need : bool
        False: the value alone.

    Returns
    -------
    value, d_mean, d_var : (..., N), of the dtype of ``mean``; computed in float64
        The sum over the nodes and its exact derivatives (see ``gauss_hermite_vjp``). Below the
        smallest variance that nodes resolve (see ``gauss_hermite_nodes``) the value goes on
        linearly in var, so value and derivatives agree down to 0. For "log1p_square", a square near
        0, that variance is 3.7e-11 mean^2: all are accurate relative to their own size. Without
        ``need`` the derivatives are None.
    """
    return twin("quadrature", mean=mean, var=var).expectation(function, mean, var, num, need)


def largest(Y, mean, var, num=20, need=True):
    """Probability that, of C independent Gaussians, the one named by ``Y`` is the largest, by a Gauss-Hermite rule over it.

    ``p = E_{f ~ N(mean_y, var_y)} prod_{c != y} Phi((f - mean_c) / sqrt(var_c))``. Only differences
    of means matter: they may be far from 0.

    Parameters
    ----------
    Y : (N,) integers in 0 ... C - 1
    mean, var : (C, N)
        Variances below 3.7e-11 max(1, (mean_c - mean_y)^2) are raised to that, and derivatives in
        them are 0.
    num : int
    need : bool
        False: the value alone.

    Returns
    -------
    p : (N,);  d_mean, d_var : (C, N)
        Of the dtype of ``mean``, computed in float64: the sum over the nodes and its exact
        derivatives (None without ``need``). Cost num C N normal distribution functions; scratch of
        some 300 kB per thread.
    """
    return twin("quadrature", Y=Y, mean=mean, var=var).largest(Y, mean, var, num, need)


# --- terms: expected log likelihoods in closed form -----------------------------------------------------------------------


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    """Sum over data of E log N(y | f, s) for f ~ N(mean, var) elementwise, and its derivatives.

    Parameters
    ----------
    Y, mean, var : (N,) or (P, N)
    variance : () s > 0
    need : bool
        False: the value alone.
    weights : as ``mean``, optional
        How often each entry counts in these sums.

    Returns
    -------
    value : float, or () float64 on a device
        -1/2 (N log(2 pi s) + sum((y - mean)^2 + var) / s), N all entries; sums in float64.
    mean_bar, var_bar : as ``mean``
    variance_bar : () of that dtype, infinite where that holds no such number
        None without ``need``, as the other two.
    """
    module = twin("gaussian_terms", Y=Y, mean=mean, var=var, variance=variance, weights=weights)
    return module.gaussian_term(Y, mean, var, variance, need, weights)


# --- quadrature: averages over quasi-random points ------------------------------------------------------------------------


def normal_points(dim, num, rng=None, like=None):
    """``num`` quasi-random points (num, dim) of N(0, I): scrambled Sobol, in pairs +-z, of unit second moment.

    The first ``num / 2`` points are whitened (where num >= 4 dim; scaled to unit variances
    otherwise) and the rest are their negatives, so averages are exact for polynomials of degree 3,
    and the derivative of an average over mean + sqrt(var) z in var stays right as var -> 0. Against
    plain scrambled Sobol points that cut the error of a log-sum-exp over 10 terms from 2e-3 to 5e-4
    (128 points, variances around 0.3); Monte Carlo has 3e-2.

    Parameters
    ----------
    dim, num : int
        ``num`` a power of two, at least 2. Beyond the 21 201 dimensions of Sobol points they are
        random.
    rng : None, int or numpy.random.Generator
        None stands for seed 0; points of a seed are always the same. A Generator is advanced, and
        gives new points each time.

    Returns
    -------
    (num, dim) float64, not to be written to; on the device of ``like``.

    Raises
    ------
    TypeError
        ``rng`` is something else, such as a negative seed.
    """
    return twin("quadrature", like=like).normal_points(dim, num, rng)


def expected_logsumexp(mean, var, points, need=True):
    """Average over points z of ``log sum_c exp(mean_c + sqrt(var_c) z_c)``, with its exact derivatives.

    Parameters
    ----------
    mean, var : (C, N)
    points : (S, C)
        Symmetric (with z also -z), so that the derivative in var has a limit at 0; see
        ``normal_points``.
    need : bool
        False: the value alone.

    Returns
    -------
    value : (N,);  d_mean, d_var : (C, N)
        Of the dtype of ``mean``, computed in float64; ``d_mean`` is the average softmax. Below the
        smallest variance that the points resolve (see ``gauss_hermite_nodes``) the value goes on
        linearly in var. None without ``need``. Cost S C N exponentials; scratch of some 100 kB per
        thread.
    """
    return twin("quadrature", mean=mean, var=var, points=points).expected_logsumexp(
        mean, var, points, need
    )


# --- optimisers: packed triangles and fused updates ---------------------------------------------------------------------


def pack_tril(A, out):
    """Write the lower triangles of ``A`` (..., M, M), row by row, to ``out`` (..., M (M + 1) / 2).

    The strict upper triangle is never read. ``out`` is C-contiguous and may have another dtype than
    ``A``. Its reverse rule is ``unpack_tril``. No flops; one pass.
    """
    return twin("packing", A=A, out=out).pack_tril(A, out)


def unpack_tril(packed, size, dtype):
    """New lower-triangular matrices (..., size, size) of ``dtype`` from ``packed`` (..., size (size + 1) / 2), row by row.

    ``packed`` is C-contiguous. The strict upper triangle is zero. The reverse rule is
    ``pack_tril``. No flops; one pass.
    """
    return twin("packing", packed=packed).unpack_tril(packed, size, dtype)


def fold_bits(numbers):
    """(2,) uint64 on the host of ``numbers`` (n,), contiguous float64: exclusive or, and sum modulo 2^64, of their bits.

    The same wherever they live, and in any order. From a device a few hundred numbers are copied.
    One pass.
    """
    return twin("fingerprint", numbers=numbers).fold_bits(numbers)


def deflate(factor, j, pivot, column, variance):
    """Step ``j`` of a pivoted Cholesky factorisation ``K ~ F F'`` of a covariance K (N, N), ``F = factor[:, :j + 1]``.

    ``F[:, j] = (column - F[:, :j] F[pivot, :j]') / sqrt(variance[pivot])`` and
    ``variance -= F[:, j] ** 2``. On the CPU alone.

    Parameters
    ----------
    factor : (N, M) float64, C-contiguous
        Columns before ``j`` are read, column ``j`` is overwritten.
    pivot : int
        The chosen point, ``variance[pivot] > 0``.
    column : (N,) float64
        ``K[:, pivot]``.
    variance : (N,) float64
        Conditional variances given the points chosen before; updated in place.

    Cost: (2 j + 3) N flops, bound by the one pass over ``factor[:, :j]``.
    """
    twin("pivoted_cholesky", factor=factor, column=column, variance=variance).deflate(
        factor, j, pivot, column, variance
    )


def adam(vector, vector_bar, first, second, out, *, step_size, beta1, beta2, epsilon, count):
    """One ascent step of Adam (Kingma & Ba 2015, algorithm 1, with the sign turned) in one pass.

    ``first <- beta1 first + (1 - beta1) g``, ``second <- beta2 second + (1 - beta2) g^2`` and
    ``vector <- vector + step_size m / (sqrt(v) + epsilon)`` with ``m = first / (1 - beta1^count)``,
    ``v = second / (1 - beta2^count)``.

    Parameters
    ----------
    vector, vector_bar, first, second : (n,) float64
        Parameters, gradient g of what is maximised, and the two moments. Not modified unless
        ``out`` holds them.
    out : tuple of three (n,) float64
        Receives the new ``vector``, ``first`` and ``second``.
    count : int
        Number of this step, from 1. On a device it and ``step_size`` may also be 0-d arrays there.

    Cost: 13 flops, one square root and one division an entry.
    """
    outputs = {f"out[{i}]": array for i, array in enumerate(out)}
    module = twin(
        "adam_update", vector=vector, vector_bar=vector_bar, first=first, second=second, **outputs
    )
    return module.adam(
        vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count
    )


# --- sparse_rows: some rows of arrays that may have millions ---------------------------------------------------------------


def gather_rows(A, rows, out):
    """``A[rows]'`` into ``out`` (k, r), C-contiguous: the rows of A (m, k), of any strides, as columns. Indices are trusted."""
    return twin("sparse_rows", A=A, rows=rows, out=out).gather_rows(A, rows, out)


def sum_rows(rows, values):
    """``(distinct (u,), sums (u, ...))``: the rows that are named, increasing, and what the values of each add up to.

    rows : tuple of (r,) integers.  values : tuple of as many (r, ...), of one dtype and width, and of any strides. Rows in order
    are merged in O(r). On a device, where nobody waits to know how many are distinct, u is the sum of all r: the last row comes
    again, with zeros.
    """
    named = {f"rows[{i}]": part for i, part in enumerate(rows)} | {
        f"values[{i}]": part for i, part in enumerate(values)
    }
    return twin("sparse_rows", **named).sum_rows(rows, values)


def adagrad_rows(array, sums, rows, bar, *, step_size, epsilon, positive=False, period=0):
    """A step of AdaGrad uphill (Duchi, Hazan and Singer 2011) for some rows of an array, in place, in one pass.

    ``sums <- sums + g^2``, ``x <- x + step_size g / (sqrt(sums) + epsilon)``. Positive numbers move
    in the coordinate log x, where x g takes the place of g, and x is multiplied by the exponential.

    Parameters
    ----------
    array, sums : (m, k), C-contiguous
    rows : (r,) integers, none twice
        Trusted. On a device one may come again right after itself, and is passed over.
    bar : (r, k) C-contiguous
    positive : bool
        Whether all numbers are.
    period : int
        The entry ``i % period`` of row i, if there is one, is positive: M for the diagonals of
        factors (M, M). 0: none.

    Cost: 6 flops, one square root and one division an entry; an exponential for positive ones.
    """
    module = twin("sparse_rows", array=array, sums=sums, rows=rows, bar=bar)
    module.adagrad_rows(array, sums, rows, bar, step_size, epsilon, positive, period)


# --- strata: which units a step looks at ----------------------------------------------------------------------------------------


def stratified_units(num, size, seed, step, stream, like):
    """``(units (size,), widths (size,))``: one of each of ``size`` blocks of neighbours, and how many there were to draw from.

    Block b is [b num // size, (b + 1) num // size) of ``num`` units; of int64 and float64. A pure
    function of seed and step, of 64 bits, and of ``stream``, of 32: the same on a device. ``like``:
    an array that lives where these are to be.
    """
    return twin("stratified", like=like).stratified_units(num, size, seed, step, stream, like)


# --- whitened: all of the algebra of a small whitened posterior between two compiled calls. On the CPU only ---------------------


def whitened_marginals(inverse, Kuf, kff, mean, tril):
    """``(Lam, V, mean, var, raised)`` with Lam = L^-1 Kuf, V = W' Lam, Lam' m and kff + colsum(V^2 - Lam^2).

    inverse : (M, M), L^-1; Kuf : (M, N); kff : (N,); mean m : (M,); tril W : (M, M), its strict upper triangle is never read.
    ``raised`` variances were below eps kff, and are that now. 2 M^2 N flops.
    """
    return twin(
        "small_whitened", inverse=inverse, Kuf=Kuf, kff=kff, mean=mean, tril=tril
    ).whitened_marginals(inverse, Kuf, kff, mean, tril)


def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    """The way back: V becomes L^-T (m a' + 2 (W V - Lam) diag(b)), Lam_a gains Lam a, and G gains Lam diag(2 b) Lam'.

    a, b : (N,), the cotangents of mean and var. G, of which the lower triangle is right, is overwritten without ``add``.
    3 M^2 N flops.
    """
    twin(
        "small_whitened",
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
    return twin("small_whitened", tril=tril, G=G, mean=mean, Lam_a=Lam_a).whitened_bars(
        tril, G, mean, Lam_a, kl_bar, need_C
    )


def whitened_kl(mean, tril):
    """``(|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii``."""
    return twin("small_whitened", mean=mean, tril=tril).whitened_kl(mean, tril)


# --- pairwise ----------------------------------------------------------------------------------------------------------


def stationary(family, X1, X2, variance, lengthscales):
    """Matrix of a stationary function of r^2 = sum_d ((x_d - x'_d) / l_d)^2 between the rows of two arrays.

    Parameters
    ----------
    family : "rbf", "matern12", "matern32" or "matern52"
        s exp(-r^2/2); s exp(-r); s (1 + t) exp(-t), t = sqrt(3) r; s (1 + t + t^2/3) exp(-t), t =
        sqrt(5) r.
    X1, X2 : (..., N1, D), (..., N2, D), the same leading axes
        ``X2=None`` stands for ``X1``: the result is exactly symmetric and its diagonal exactly
        ``variance``.
    variance : s, ()
    lengthscales : l, () or (D,)

    Returns
    -------
    (..., N1, N2)

    Notes
    -----
    About 3 D + 20 flops an entry for few features; for many, a product of 2 D flops an entry and a
    second look at those pairs whose distance would cancel in it. Either way r keeps its relative
    accuracy for near points far from the origin. NaN in a row of the inputs is NaN in its row or
    column of the result.
    """
    module = twin("pairwise", X1=X1, X2=X2, variance=variance, lengthscales=lengthscales)
    return module.stationary(family, X1, X2, variance, lengthscales)


def stationary_vjp(
    K_bar,
    family,
    X1,
    X2,
    variance,
    lengthscales,
    need=("X1", "X2", "variance", "lengthscales"),
    K=None,
):
    """Contraction of a cotangent of ``stationary`` to its arguments in one pass; no temporary as large as K.

    Parameters
    ----------
    K_bar : (..., N1, N2)
        For ``X2=None`` it must be symmetric.
    need : names among "X1", "X2", "variance", "lengthscales"
    K : (..., N1, N2), optional
        The matrix, where it is at hand: saves the exponentials, and for the RBF the distances too.
        It should have the memory order of K_bar, either one; in another order it is not used.

    Returns
    -------
    X1_bar, X2_bar : (..., N1, D), (..., N2, D)
        For ``X2=None``, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    variance_bar, lengthscales_bar : (), () or (D,)
        Summed over the batch. Anything not in ``need`` is None.

    Notes
    -----
    With q = -2 dk / d(r^2) and w = K_bar q: X1_bar_i = sum_j w_ij (x'_j - x_i) / l^2, X2_bar_j =
    sum_i w_ij (x_i - x'_j) / l^2, l_bar = sum_ij w_ij (x_i - x'_j)^2 / l^3, s_bar = sum K_bar K /
    s. About 6 D flops an entry. The derivative of the Matern-1/2 function at r = 0 is taken as 0.
    """
    module = twin(
        "pairwise", K_bar=K_bar, X1=X1, X2=X2, variance=variance, lengthscales=lengthscales, K=K
    )
    return module.stationary_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K)


def inner(X1, X2, weights):
    """Weighted inner products X1 diag(weights) X2' of rows: (N1, N2), 2 D flops an entry.

    ``weights`` is () or (D,). ``X2=None`` stands for ``X1``: then the weights must not be negative,
    half the flops are spent and the result is exactly symmetric.
    """
    return twin("pairwise", X1=X1, X2=X2, weights=weights).inner(X1, X2, weights)


def inner_vjp(K_bar, X1, X2, weights, need=("X1", "X2", "weights")):
    """Cotangents (X1_bar, X2_bar, weights_bar) of ``inner``; None for what is not in ``need``; 2 D flops an entry for each side.

    For ``X2=None`` K_bar must be symmetric, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    K_bar in either order is used without a copy.
    """
    return twin("pairwise", K_bar=K_bar, X1=X1, X2=X2, weights=weights).inner_vjp(
        K_bar, X1, X2, weights, need
    )


# --- patches: sums of a covariance over the windows of images ------------------------------------------------------------
#
# An image is a row of X (N, H W C): its pixels row by row, channels last. ``geometry`` is (H, W, C,
# h, w, stride): windows of h x w pixels whose first pixels lie ``stride`` apart, R = (H - h) //
# stride + 1 rows of S = (W - w) // stride + 1 of them. Window p = r S + s holds a patch x[p] of d =
# h w C numbers in the same order. ``windows`` is a range (start, stop) of them, None all: P = stop
# - start. Each pair of ranges of windows may be a call of its own, so that no weights (P, P) need
# to exist.


def gather_patches(X, geometry, windows=None):
    """The patches (N, P, d) of images X (N, H W C)."""
    return twin("patches", X=X).gather_patches(X, geometry, windows)


def gather_patches_vjp(patches_bar, geometry, windows=None):
    """``X_bar`` (N, H W C) of ``gather_patches``: each pixel sums over the windows that it is in.

    N P d additions.
    """
    return twin("patches", patches_bar=patches_bar).gather_patches_vjp(
        patches_bar, geometry, windows
    )


def window_places(geometry, like, windows=None):
    """Where windows are: row and column of their first pixels, (P, 2), of the dtype of ``like`` and where that is."""
    return twin("patches", like=like).window_places(geometry, like, windows)


def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    """``out[m, n] = sum_p A[m, p] k(z_m, x_n[p])`` for a function k of ``stationary``.

    Parameters
    ----------
    family, variance, lengthscales
        As of ``stationary``; lengthscales () or (d,).
    Z : (M, d)
    X : (N, H W C)
    A : (M, P), or (P,) for weights that all rows share

    Returns
    -------
    (M, N)

    Notes
    -----
    On the CPU equal constant patches of an image count once, their weights summed. With E entries
    (m, n, p) that remain, (2 d + 25) E flops; nothing of M N P numbers exists. The error of k is
    that of ``stationary``.
    """
    module = twin("patches", Z=Z, X=X, A=A, variance=variance, lengthscales=lengthscales)
    return module.patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows)


def patch_sums_vjp(
    K_bar,
    family,
    Z,
    X,
    A,
    variance,
    lengthscales,
    geometry,
    windows=None,
    need=("Z", "X", "A", "variance", "lengthscales"),
):
    """Cotangents ``(Z_bar, X_bar, A_bar, variance_bar, lengthscales_bar)`` of ``patch_sums``; None for what is not in ``need``.

    With q of ``stationary_vjp`` and E_mnp = K_bar_mn A_mp q(z_m, x_n[p]): Z_bar_m = sum_np E
    (x_n[p] - z_m) / l^2, the patches' cotangents sum_m E (z_m - x_n[p]) / l^2, l_bar = sum E
    (x_n[p] - z_m)^2 / l^3, A_bar_mp = sum_n K_bar_mn k, summed over m for A (P,), s_bar = sum K_bar
    A k / s. (4 d + 30) E flops, 2 d E more for X. Patches are not merged where X is needed.
    """
    module = twin(
        "patches", K_bar=K_bar, Z=Z, X=X, A=A, variance=variance, lengthscales=lengthscales
    )
    return module.patch_sums_vjp(
        K_bar, family, Z, X, A, variance, lengthscales, geometry, windows, need
    )


def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    """``out[n] = sum_pq B[p, q] k(x_n[p], x_n[q])`` for a function k of ``stationary``.

    Parameters
    ----------
    family, variance, lengthscales
        As of ``stationary``.
    X : (N, H W C)
    B : (P, P) symmetric, or (P,) for b b'; with ``others`` (P, Q), any
    windows : (start, stop), optional
        What p runs over.
    others : (start, stop), optional
        What q runs over; None: the same windows.

    Returns
    -------
    (N,)

    Notes
    -----
    Merged as in ``patch_sums``. Only pairs p <= q are computed without ``others``; sums are kept in
    float64.
    """
    module = twin("patches", X=X, B=B, variance=variance, lengthscales=lengthscales)
    return module.patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows, others)


def patch_pair_sums_vjp(
    k_bar,
    family,
    X,
    B,
    variance,
    lengthscales,
    geometry,
    windows=None,
    others=None,
    need=("X", "B", "variance", "lengthscales"),
):
    """Cotangents ``(X_bar, B_bar, variance_bar, lengthscales_bar)`` of ``patch_pair_sums``; None for what is not in ``need``.

    B_bar is sum_n k_bar_n k(x_n[p], x_n[q]), symmetric (P, P) or (P, Q); for B (P,) it is 2 sum_n
    k_bar_n sum_q b_q k, (P,).
    """
    module = twin("patches", k_bar=k_bar, X=X, B=B, variance=variance, lengthscales=lengthscales)
    return module.patch_pair_sums_vjp(
        k_bar, family, X, B, variance, lengthscales, geometry, windows, others, need
    )


# --- chevron: lower triangular with dense first columns and, beyond them, a diagonal alone -------------------------------
#
# C (m, m) has k dense columns, ``dense`` (m, k), and the diagonal of the rest, ``diagonal`` (m -
# k,): C[i, j] = dense[i, j] for j <= min(i, k - 1), C[i, i] = diagonal[i - k] for i >= k, and 0
# elsewhere. What ``dense`` holds above the diagonal of its first k rows is never read, and
# cotangents are 0 there. The rows of ``dense`` are contiguous, with any distance between them.
# Where that distance is a multiple of 16 bytes (k a multiple of 4 in float32, of 2 in float64, or
# rows padded to it) the CUDA kernels load 128 bits at a time. Indices have 64 bits: m may be 1e7
# and more. Right-hand sides are leading axes. float32 sums over rows are kept in float64. Every sum
# has a fixed order (on the CPU for a given number of threads), so results repeat to the bit.
# ``rows`` (n,) names rows of C; repeats are allowed. An index out of range raises ``IndexError`` on
# the CPU; on a device only with FASTSVGP_CUDA_CHECK=1 in the environment, because the check has to
# wait for the device.


def chevron_multiply(dense, diagonal, z, transpose=False):
    """``C z``, or ``C' z`` with ``transpose``, for z (..., m).

    Bound by one read of ``dense``; 2 m k flops a right-hand side.
    """
    return twin("chevron", dense=dense, diagonal=diagonal, z=z).multiply(
        dense, diagonal, z, transpose
    )


def chevron_multiply_vjp(y_bar, dense, diagonal, z, transpose=False):
    """``(dense_bar, diagonal_bar, z_bar)``: the places of C in ``y_bar z'`` (``z y_bar'``), summed over the right-hand sides,
    and ``C' y_bar`` (``C y_bar``). One read of ``dense`` and one write of its cotangent.
    """
    module = twin("chevron", y_bar=y_bar, dense=dense, diagonal=diagonal, z=z)
    u, v = (z, y_bar) if transpose else (y_bar, z)
    return *module.outer(dense.shape[1], u, v), module.multiply(
        dense, diagonal, y_bar, not transpose
    )


def chevron_gram(dense, diagonal, x):
    """``C (C' x)`` for x (..., m): two reads of ``dense``, 4 m k flops a right-hand side."""
    module = twin("chevron", dense=dense, diagonal=diagonal, x=x)
    return module.multiply(dense, diagonal, module.multiply(dense, diagonal, x, True), False)


def chevron_gram_vjp(y_bar, dense, diagonal, x):
    """``(dense_bar, diagonal_bar, x_bar)``: the places of C in ``y_bar (C' x)' + x (C' y_bar)'``, and ``C (C' y_bar)``.

    Two reads of ``dense`` and one write of its cotangent.
    """
    return twin("chevron", y_bar=y_bar, dense=dense, diagonal=diagonal, x=x).gram_vjp(
        y_bar, dense, diagonal, x
    )


def chevron_multiply_rows(dense, diagonal, rows, head, rest):
    """The rows of ``C z`` named by ``rows``, (..., n), for the parts of z that they meet.

    Parameters
    ----------
    rows : (n,) integers
    head : (..., k)
        The first k entries of z.
    rest : (..., n)
        ``z[rows]``; entries whose row is below k are not used.
    """
    module = twin("chevron", dense=dense, diagonal=diagonal, rows=rows, head=head, rest=rest)
    return module.multiply_rows(dense, diagonal, rows, head, rest)


def chevron_multiply_rows_vjp(y_bar, dense, diagonal, rows, head, rest):
    """``(dense_bar, diagonal_bar, head_bar, rest_bar)``, the first two (n, k) and (n,): what each named row adds to the
    cotangents of ``dense[rows]`` and ``diagonal[rows - k]`` (0 for rows below k). Repeated rows are
    not added up.
    """
    module = twin(
        "chevron", y_bar=y_bar, dense=dense, diagonal=diagonal, rows=rows, head=head, rest=rest
    )
    head_bar, rest_bar = module.multiply_rows_transposed(dense, diagonal, rows, y_bar)
    return *module.outer_rows(rows, y_bar, head, rest), head_bar, rest_bar


def chevron_multiply_rows_transposed(dense, diagonal, rows, x):
    """``C[rows]' x`` for x (..., n), in two parts: ``head`` (..., k), its first k entries, and ``rest`` (..., n), what each row
    adds at its own place ``rows[i]`` (0 for rows below k).
    """
    return twin("chevron", dense=dense, diagonal=diagonal, rows=rows, x=x).multiply_rows_transposed(
        dense, diagonal, rows, x
    )


def chevron_multiply_rows_transposed_vjp(head_bar, rest_bar, dense, diagonal, rows, x):
    """``(dense_bar (n, k), diagonal_bar (n,), x_bar)``, row by row as in ``chevron_multiply_rows_vjp``."""
    module = twin(
        "chevron",
        head_bar=head_bar,
        rest_bar=rest_bar,
        dense=dense,
        diagonal=diagonal,
        rows=rows,
        x=x,
    )
    x_bar = module.multiply_rows(dense, diagonal, rows, head_bar, rest_bar)
    return *module.outer_rows(rows, x, head_bar, rest_bar), x_bar


def chevron_log_det(dense, diagonal, rows=None):
    """``sum_i log C_ii`` over all rows, or over ``rows``; 0-d, in float64.

    A negative entry makes it NaN, a zero -infinity.
    """
    return twin("chevron", dense=dense, diagonal=diagonal, rows=rows).log_det(dense, diagonal, rows)


def chevron_log_det_vjp(log_det_bar, dense, diagonal, rows=None):
    """Cotangents of the diagonal entries C_ii, (m,) or (n,): ``log_det_bar / C_ii``.

    They belong to ``dense[i, i]`` for i below k, else to ``diagonal[i - k]``.
    """
    module = twin("chevron", log_det_bar=log_det_bar, dense=dense, diagonal=diagonal, rows=rows)
    return module.log_det_vjp(log_det_bar, dense, diagonal, rows)


# --- fourier: products with random Fourier features that are never stored ------------------------------------------------
#
# Feature matrix Phi (N, 2 n) of a model with ``num`` frequencies, for n of them that ``indices``
# names: with frequency omega_p of index ``indices[p]`` and theta = sum_d X[i, d] omega_p[d] /
# lengthscales[d],
#     Phi[i, 2 p] = sqrt(variance / num) cos(theta),   Phi[i, 2 p + 1] = sqrt(variance / num) sin(theta).
# Over all frequencies Phi Phi' has the expectation K of ``stationary`` and exactly its diagonal
# (Rahimi & Recht 2007, "Random features for large-scale kernel machines"); features of prior
# precision S = (num / variance) I that are not scaled are the same model. A frequency is a pure
# function of (seed, index): normal for "rbf", Student-t with 2 nu degrees of freedom for a Matern
# covariance, made from Philox4x32-10 words with key ``seed`` and the index in the counter, so any
# of them is made again anywhere. Both twins have the same words; float32 frequencies are those of
# float64 to rounding. The error of a phase is that of its dtype times the phase, which matters for
# "matern12": its spectrum has no mean, so there are very fast waves among its features. Squares
# follow from the cosines alone, sin^2 being 1 - cos^2: with s^2 = variance / num
#     (Phi * Phi) v = s^2 sum_p v[2 p + 1] + s^2 sum_p (v[2 p] - v[2 p + 1]) cos^2(theta_p);
# as cos(2 theta) = 2 cos^2(theta) - 1 they are a product with features of the inputs 2 X, too.
#
# seed : int, 0 ... 2^64 - 1.  indices : (n,) integers in 0 ... num - 1, repeats allowed. One out of range raises ``IndexError``
# on the CPU, on a device only with FASTSVGP_CUDA_CHECK=1 in the environment.


def fourier_frequencies(family, seed, indices, D, dtype=float):
    """The frequencies omega (n, D) of ``indices`` for unit lengthscales.

    Parameters
    ----------
    family : "rbf", "matern12", "matern32" or "matern52"
    seed, indices : see above; any index up to 2^63 - 1
    D : int
        Components; those of a smaller D are the first of a larger one.
    dtype : numpy.float64 or numpy.float32

    Notes
    -----
    Some 50 integer operations and a logarithm, root, sine and cosine for two components. Relative
    error below 16 eps. Normal components end at 5.77 standard deviations, beyond which the normal
    distribution has 8e-9 of its mass.
    """
    return twin("fourier", indices=indices).frequencies(family, seed, indices, D, dtype)


def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose=False):
    """``Phi w``, or ``Phi' w`` with ``transpose``; Phi, in parts, is in registers and caches alone.

    Parameters
    ----------
    X : (N, D)
    w : (..., 2 n), or (..., N) with ``transpose``
        Right-hand sides; cosine and sine of a frequency are neighbours.
    family, seed, indices, num : see above
    variance : ()
    lengthscales : () or (D,)

    Returns
    -------
    (..., N), or (..., 2 n) with ``transpose``

    Notes
    -----
    A cosine, a sine and 2 D + 4 R flops for each pair of point and frequency and R right-hand
    sides. On the CPU any number of right-hand sides shares the cosines, on a device four do. Sums
    are kept in float64; their order is fixed (on the CPU for a given number of threads), so results
    repeat to the bit. A NaN in a row of X is NaN in its row of the result. On a device partial sums
    take up to 2^25 numbers (256 MiB in float64) beside the result, the reverse rule twice that, or
    as much as one of its results does where that is more; many frequencies then go through in runs.
    """
    module = twin(
        "fourier", X=X, w=w, indices=indices, variance=variance, lengthscales=lengthscales
    )
    return module.multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose)


def fourier_multiply_vjp(
    out_bar,
    X,
    w,
    family,
    seed,
    indices,
    num,
    variance,
    lengthscales,
    transpose=False,
    need=("X", "w", "variance", "lengthscales"),
):
    """Cotangents of ``fourier_multiply`` in one pass over the pairs: ``(X_bar, w_bar, variance_bar, lengthscales_bar)``.

    Parameters
    ----------
    out_bar : as the result of ``fourier_multiply``
    need : names of those that are wanted; the others are None

    Notes
    -----
    Let U (R, N) and W (R, 2 n) be out_bar and w, or w and out_bar with ``transpose``: either way
    sum(out_bar * out) is sum(U * (W Phi')). It changes with the phase of a pair by ::

        g[i, p] = sum_r U[r, i] (W[r, 2 p + 1] Phi[i, 2 p] - W[r, 2 p] Phi[i, 2 p + 1]),

    theta is linear in x / l, and Phi in w and in sqrt(s), hence ::

        X_bar[i, d] = sum_p g[i, p] omega_p[d] / l_d,         l_bar[d] = -sum_i X_bar[i, d] X[i, d] / l_d,
        w_bar = Phi' out_bar (Phi out_bar with ``transpose``),          s_bar = sum(w * w_bar) / (2 s).

    4 R + 2 D flops a pair beyond those of ``fourier_multiply``.
    """
    module = twin(
        "fourier",
        out_bar=out_bar,
        X=X,
        w=w,
        indices=indices,
        variance=variance,
        lengthscales=lengthscales,
    )
    return module.multiply_vjp(
        out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need
    )


def fourier_sweep(
    X,
    family,
    seed,
    indices,
    num,
    variance,
    lengthscales,
    *,
    W=None,
    v=None,
    U=None,
    u=None,
    need=("out",),
    kept=None,
):
    """Products with the features and with their squares, forward and back, from one set of cosines and sines.

    Parameters
    ----------
    X : (N, D)
    family, seed, indices, num, variance, lengthscales : as in ``fourier_multiply``
    W : (R, 2 n), optional
        Weights.
    v : (2 n,), optional
        Weights of the squares.
    U : (R, N), optional
        Cotangents of W Phi'.
    u : (N,), optional
        Cotangents of (Phi * Phi) v.
    need : names of the results that are wanted; the others are None
    kept : list, optional
        Empty, it may receive phases; a later sweep over the same points and frequencies that is
        given it, too, need not make them again. Up to 64 MiB in float64. Nothing is kept where
        there are few features, or on a device.

    Returns
    -------
    out (R, N), squares (N,)
        W Phi', (Phi * Phi) v.
    W (R, 2 n), v (2 n,), X (N, D), variance (), lengthscales () or (D,)
        Cotangents of these, in this order: the derivatives of sum(U * out) + sum(u * squares).

    Notes
    -----
    A cosine, a sine and 2 D flops a pair of point and frequency; 4 R for each of "out", "W" and,
    together, "X" and "lengthscales", which take 2 D more; 3 for each part of the squares. From 16
    right-hand sides on the products are gemm's. With cos^2 as above the reverse rule of the squares
    is ::

        v_bar[2 p] = s^2 sum_i u[i] cos^2,    v_bar[2 p + 1] = s^2 sum_i u[i] - v_bar[2 p],
        g[i, p] = ... - 2 s^2 u[i] (v[2 p] - v[2 p + 1]) cos sin

    beside that of ``fourier_multiply_vjp``. On a device one right-hand side goes with the squares,
    four others a pass.
    """
    arrays = {
        "X": X,
        "indices": indices,
        "variance": variance,
        "lengthscales": lengthscales,
        "W": W,
        "v": v,
        "U": U,
        "u": u,
    }
    return twin("fourier", **arrays).sweep(
        X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept
    )
