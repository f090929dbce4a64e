"""Random Fourier features: draws of frequencies, and sweeps, against plain loops."""

import math

import numpy as np

from fastsvgp import kernels
from fastsvgp.kernels.cpu.common.elementwise import cos_sin
from fastsvgp.kernels.cpu.fourier.philox import DEGREES, draw

from .common import Case, plain

NUM, LENGTHSCALE = 100_000, 3.0
WORD, HALF = np.uint64(2**32 - 1), np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
K0, K1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


@plain
def plain_words(seed, index, block, stream, words):
    k0, k1 = seed & WORD, seed >> HALF
    a, b, c, d = index & WORD, index >> HALF, block, stream
    for _ in range(10):
        p, q = M0 * a, M1 * c
        a, b, c, d = (q >> HALF) ^ b ^ k0, q & WORD, (p >> HALF) ^ d ^ k1, p & WORD
        k0, k1 = (k0 + K0) & WORD, (k1 + K1) & WORD
    for k, word in enumerate((a, b, c, d)):
        words[k] = ((word >> np.uint64(9)) + 0.5) / 2.0**23


@plain
def plain_draw(seed, indices, degrees, omega):
    w = np.empty(4)
    for p in range(indices.size):
        factor = 1.0
        if degrees:
            plain_words(seed, np.uint64(indices[p]), np.uint64(0), np.uint64(1), w)
            chi_square = -2 * math.log(w[0]) * math.sin(2 * math.pi * w[1]) ** 2
            chi_square -= 2 * math.log(w[2]) if degrees > 1 else 0.0
            chi_square -= 2 * math.log(w[3]) if degrees > 3 else 0.0
            factor = math.sqrt(degrees / chi_square)
        for d in range(0, len(omega), 4):
            plain_words(seed, np.uint64(indices[p]), np.uint64(d // 4), np.uint64(0), w)
            for k in range(0, 4, 2):
                radius = factor * math.sqrt(-2 * math.log(w[k]))
                omega[d + k, p] = radius * math.cos(2 * math.pi * w[k + 1])
                omega[d + k + 1, p] = radius * math.sin(2 * math.pi * w[k + 1])


@plain
def waves(omega, p, X, t, c, s):
    t[:] = 0
    for d in range(len(X)):
        w, x = omega[d, p], X[d]
        for i in range(t.size):
            t[i] += w * x[i]
    for i in range(t.size):
        c[i], s[i] = cos_sin(t[i])


@plain
def plain_forward(omega, X, W, scale):
    n, N = omega.shape[1], X.shape[1]
    t, c, s = np.empty(N, X.dtype), np.empty(N, X.dtype), np.empty(N, X.dtype)
    out = np.zeros((len(W), N))
    for p in range(n):
        waves(omega, p, X, t, c, s)
        for r in range(len(W)):
            a, b, row = scale * W[r, 2 * p], scale * W[r, 2 * p + 1], out[r]
            for i in range(N):
                row[i] += a * c[i] + b * s[i]
    return out


@plain
def plain_back(omega, X, U, scale):
    n, N = omega.shape[1], X.shape[1]
    t, c, s = np.empty(N, X.dtype), np.empty(N, X.dtype), np.empty(N, X.dtype)
    back = np.zeros((len(U), 2 * n))
    for p in range(n):
        waves(omega, p, X, t, c, s)
        for r in range(len(U)):
            u, a, b = U[r], X.dtype.type(0), X.dtype.type(0)
            for i in range(N):
                a += u[i] * c[i]
                b += u[i] * s[i]
            back[r, 2 * p], back[r, 2 * p + 1] = scale * a, scale * b
    return back


@plain
def plain_slopes(omega, X, W, U, scale):
    n, N = omega.shape[1], X.shape[1]
    t, c, s = np.empty(N, X.dtype), np.empty(N, X.dtype), np.empty(N, X.dtype)
    X_bar = np.zeros(X.shape)
    for p in range(n):
        waves(omega, p, X, t, c, s)
        t[:] = 0
        for r in range(len(W)):
            u, a, b = U[r], scale * W[r, 2 * p], scale * W[r, 2 * p + 1]
            for i in range(N):
                t[i] += u[i] * (b * c[i] - a * s[i])
        for d in range(len(X)):
            row, w = X_bar[d], omega[d, p]
            for i in range(N):
                row[i] += w * t[i]
    return X_bar.T / LENGTHSCALE


def drawing(family, n, D, dtype, tolerance):
    indices, seed, degrees = np.arange(n), np.uint64(7), DEGREES[family]
    tuned, other = np.empty((2, -(-D // 4) * 4, n), dtype)

    def run(function, *given):
        function(*given)
        return given[-1]

    return Case(
        f"draw, {family}, n = {n}, D = {D}",
        lambda: run(draw, 0, n, seed, indices, degrees, tuned),
        lambda: run(plain_draw, seed, indices, degrees, other),
        tolerance,
    )


def cases(dtype):
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    yield drawing("rbf", 5000, 8, dtype, 50 * eps)
    yield drawing("matern32", 5000, 8, dtype, 50 * eps)
    scale, given = NUM**-0.5, ("rbf", 7)
    for N, n, D, R in ((500, 5000, 8, 1), (500, 5000, 8, 11), (500, 1000, 30, 1)):
        X, W, U = (
            rng.standard_normal(shape).astype(dtype) for shape in ((N, D), (R, 2 * n), (R, N))
        )
        model = (
            *given,
            np.sort(rng.choice(NUM, n, replace=False)),
            NUM,
            1.0,
            dtype.type(LENGTHSCALE),
        )
        turns = np.ascontiguousarray((X / LENGTHSCALE / (2 * np.pi)).T.astype(dtype))

        def omega(n=n, D=D, model=model):
            drawn = np.empty((-(-D // 4) * 4, n), dtype)
            draw(0, n, np.uint64(7), model[2], 0, drawn)
            return drawn

        def sweep(need, X=X, W=W, U=U, model=model):
            out, _, W_bar, _, X_bar, *_ = kernels.fourier_sweep(X, *model, W=W, U=U, need=(need,))
            return {"out": out, "W": W_bar, "X": X_bar}[need]

        sizes = f"N = {N}, n = {n}, D = {D}, R = {R}"
        for name, need, other, sides in (
            ("forward", "out", plain_forward, (W,)),
            ("back", "W", plain_back, (U,)),
            ("slopes", "X", plain_slopes, (W, U)),
        ):
            yield Case(
                f"{name}, {sizes}",
                lambda sweep=sweep, need=need: sweep(need),
                lambda omega=omega, turns=turns, other=other, sides=sides: other(
                    omega(), turns, *sides, dtype.type(scale)
                ),
                2000 * eps,
            )
