"""Products with random Fourier features that are never stored.

The feature matrix Phi (N, 2 n) belongs to a model with ``num`` frequencies; ``indices``
names n of them. With the frequency omega_p of index ``indices[p]`` and the phase theta = sum_d X[i,
d] omega_p[d] / lengthscales[d] ::

    Phi[i, 2 p] = sqrt(variance / num) cos(theta),
    Phi[i, 2 p + 1] = sqrt(variance / num) sin(theta).

Over all frequencies Phi Phi' has the expectation K of ``stationary`` and exactly its diagonal
(Rahimi & Recht 2007, "Random features for large-scale kernel machines"); features of prior
precision S = (num / variance) I that are not scaled are the same model.

A frequency is a pure function of (seed, index): normal for "rbf", Student-t with 2 nu degrees of
freedom for a Matern covariance, made from Philox4x32-10 words with key ``seed`` and the index in
the counter, so any of them can be recomputed anywhere. Both twins have the same words; float32
frequencies are those of float64 to rounding. The error of a phase is that of its dtype times the
phase, which matters for "matern12": its spectrum has no mean, so its features include very fast
waves.

Squares follow from the cosines alone, sin^2 being 1 - cos^2: with s^2 = variance / num ::

    (Phi * Phi) v = s^2 sum_p v[2 p + 1] + s^2 sum_p (v[2 p] - v[2 p + 1]) cos^2(theta_p);

because cos(2 theta) = 2 cos^2(theta) - 1 they are also a product with features of the inputs 2 X.

All operations take ``seed``, an int in 0 ... 2^64 - 1, and ``indices`` (n,), integers from 0 to
num - 1; repeats are allowed. An index out of range raises ``IndexError`` on the CPU, on a device
only with FASTSVGP_CUDA_CHECK=1 in the environment.
"""

from ..runtime.dispatch import operation


@operation("indices")
def fourier_frequencies(family, seed, indices, D, dtype=float):
    """Draw the frequencies omega (n, D) of ``indices`` for unit lengthscales.

    Parameters
    ----------
    family : "rbf", "matern12", "matern32" or "matern52"
    seed : int, 0 ... 2^64 - 1
    indices : (n,) integers, 0 ... 2^63 - 1
    D : int
        Components; those of a smaller D are the first of a larger one.
    dtype : numpy.float64 or numpy.float32

    Notes
    -----
    About 50 integer operations and a logarithm, root, sine and cosine per two components. Relative
    error below 16 eps. Normal components end at 5.77 standard deviations, beyond which the normal
    distribution has 8e-9 of its mass.
    """


@operation("X", "w", "indices", "variance", "lengthscales")
def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose=False):
    """Compute ``Phi w``, or ``Phi' w`` with ``transpose``; Phi is never stored in memory.

    Parameters
    ----------
    X : (N, D)
    w : (..., 2 n), or (..., N) with ``transpose``
        Right-hand sides; cosine and sine of a frequency are neighbours.
    family, seed : as in ``fourier_frequencies``
    indices : (n,) integers, 0 ... num - 1
    num : int
        Number of frequencies of the model.
    variance : ()
    lengthscales : () or (D,)

    Returns
    -------
    (..., N), or (..., 2 n) with ``transpose``

    Notes
    -----
    A cosine, a sine and 2 D + 4 R flops per pair of point and frequency, for R right-hand sides. On
    the CPU all right-hand sides share the cosines, on a device four do. Sums are kept in float64;
    their order is fixed (on the CPU for a given number of threads), so results repeat to the bit. A
    NaN in a row of X gives NaN in its row of the result. On a device partial sums take up to 2^25
    numbers (256 MiB in float64) beside the result, cotangents twice that, or as much as one
    of its results if that is more; many frequencies then go through in runs.
    """


@operation("X", "w", "seeds", "variance", "lengthscales", "factors")
def fourier_multiply_rows(X, w, family, seeds, num, variance, lengthscales, factors=None):
    """Products with features of S functions: each has its own rows of ``w``, and its own points.

    Frequency p of function s is ``factors[s, p] omega_p``, with omega_p that of index p and of
    ``seeds[s]``: all ``num`` frequencies of a model.

    Parameters
    ----------
    X : (S, n, D), or (n, D)
        Points of each function, or the same ones for all.
    w : (S, R, 2 num)
        Right-hand sides; cosine and sine of a frequency are neighbours.
    family : as in ``fourier_frequencies``
    seeds : int, or (S,) unsigned integers
        One for all functions, or one of each.
    num : int
        Number of frequencies.
    variance : ()
    lengthscales : () or (D,)
    factors : (num,) or (S, num), optional
        Those of a mixture of lengthscales; the second form with seeds of each function.

    Returns
    -------
    (S, R, n)

    Notes
    -----
    Per pair of point and frequency a cosine, a sine and 2 D + 4 R flops, for each function, and the
    draw of the frequencies, for each function or for all. With one set of points and one seed the
    functions share cosines and sines. Sums are kept in float64 in a fixed order, so results repeat
    to the bit. Inputs that all functions share are not copied for each. Beside the result it takes
    up to 2^21 numbers, or one tile of points for all right-hand sides; on a device, partial sums of
    up to 2^25 numbers.
    """


@operation("out_bar", "X", "w", "seeds", "variance", "lengthscales", "factors")
def fourier_multiply_rows_vjp(
    out_bar, X, w, family, seeds, num, variance, lengthscales, factors=None
):
    """The cotangent of X in ``fourier_multiply_rows``, shaped like X.

    Parameters
    ----------
    out_bar : (S, R, n)

    Notes
    -----
    With the phase theta of a pair ::

        g[s, i, p] = sum_r out_bar[s, r, i] (w[s, r, 2 p + 1] Phi[s, i, 2 p]
                                             - w[s, r, 2 p] Phi[s, i, 2 p + 1]),
        X_bar[s, i, d] = sum_p g[s, i, p] factors[s, p] omega_p[d] / lengthscales[d],

    summed over s if the functions share their points. 2 D flops per pair more than the product.
    """


@operation("X", "indices", "variance", "lengthscales", "W", "v", "U", "u")
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
    """Products with features and with their squares, and cotangents, from one set of cosines.

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
    need : names of the results to compute; the others are None
    kept : list, optional
        An empty list can receive phases; a later sweep over the same points and frequencies that
        gets the list reuses them. Up to 64 MiB in float64. Nothing is kept if there are few
        features, or on a device.

    Returns
    -------
    out (R, N), squares (N,)
        W Phi', (Phi * Phi) v.
    W (R, 2 n), v (2 n,), X (N, D), variance (), lengthscales () or (D,)
        Cotangents of these, in this order: the derivatives of sum(U * out) + sum(u * squares).

    Notes
    -----
    A cosine, a sine and 2 D flops per pair of point and frequency; 4 R for each of "out", "W" and,
    together, "X" and "lengthscales", which take 2 D more; 3 for each part of the squares. On
    the CPU gemm does the products. With the slope g of a pair in its phase theta, linear in
    x / l, and cos^2 as above ::

        g[i, p] = sum_r U[r, i] (W[r, 2 p + 1] Phi[i, 2 p] - W[r, 2 p] Phi[i, 2 p + 1])
                  - 2 s^2 u[i] (v[2 p] - v[2 p + 1]) cos sin,
        X_bar[i, d] = sum_p g[i, p] omega_p[d] / l_d,
        l_bar[d] = -sum_i X_bar[i, d] X[i, d] / l_d,    W_bar = U Phi,
        v_bar[2 p] = s^2 sum_i u[i] cos^2,    v_bar[2 p + 1] = s^2 sum_i u[i] - v_bar[2 p],
        variance_bar = (sum(W * W_bar) / 2 + sum(v * v_bar)) / variance.

    On a device one right-hand side goes with the squares, and four others per pass.
    """
