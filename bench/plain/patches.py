"""Sums over patches of images, against loops over pairs of patches. RBF, one lengthscale each."""

import numpy as np

from fastsvgp import kernels
from fastsvgp.kernels.cpu.common.elementwise import exp

from .common import Case, plain


@plain
def gather(image, geometry, scale, patches):
    _, W, C, h, w, stride = geometry
    columns, half = (W - w) // stride + 1, patches.dtype.type(0.5)
    for p in range(patches.shape[1]):
        corner, k = (p // columns * W + p % columns) * C * stride, 0
        for i in range(h):
            for j in range(corner + i * W * C, corner + (i * W + w) * C):
                patches[k, p] = image[j] * scale[k]
                k += 1
    return -half


@plain
def profile(z, patches, count, minus_half, k):
    k[:count] = 0
    for d in range(z.size):
        for p in range(count):
            e = patches[d, p] - z[d]
            k[p] += e * e
    for p in range(count):
        k[p] = exp(minus_half * k[p])


@plain
def patch_sums(Z, X, A, variance, scale, geometry, out):
    patches, k = np.empty((scale.size, A.size), X.dtype), np.empty(A.size, X.dtype)
    for n in range(len(X)):
        minus_half = gather(X[n], geometry, scale, patches)
        for m in range(len(Z)):
            profile(Z[m], patches, A.size, minus_half, k)
            total = X.dtype.type(0)
            for p in range(A.size):
                total += A[p] * k[p]
            out[m, n] = variance * total
    return out


@plain
def patch_sums_vjp(K_bar, Z, X, A, variance, scale, geometry, Z_bar, A_bar, squares):
    patches, k = np.empty((scale.size, A.size), X.dtype), np.empty(A.size, X.dtype)
    Z_bar[:], A_bar[:], squares[:] = 0, 0, 0
    for n in range(len(X)):
        minus_half = gather(X[n], geometry, scale, patches)
        for m in range(len(Z)):
            profile(Z[m], patches, A.size, minus_half, k)
            for p in range(A.size):
                k[p] *= K_bar[m, n] * variance
                A_bar[p] += k[p]
                k[p] *= A[p]
            for d in range(scale.size):
                first, second = Z.dtype.type(0), Z.dtype.type(0)
                for p in range(A.size):
                    e = patches[d, p] - Z[m, d]
                    first += k[p] * e
                    second += k[p] * e * e
                Z_bar[m, d] += first * scale[d]
                squares[d] += second * scale[d]


@plain
def patch_pair_sums(X, b, variance, scale, geometry, out):
    patches, k = np.empty((scale.size, b.size), X.dtype), np.empty(b.size, X.dtype)
    for n in range(len(X)):
        minus_half = gather(X[n], geometry, scale, patches)
        out[n] = 0
        for i in range(b.size):
            profile(patches[:, i], patches, i, minus_half, k)
            total = X.dtype.type(0)
            for j in range(i):
                total += b[j] * k[j]
            out[n] += b[i] * variance * (2 * total + b[i])


@plain
def patch_pair_sums_vjp(k_bar, X, b, variance, scale, geometry, b_bar, squares):
    patches, k = np.empty((scale.size, b.size), X.dtype), np.empty(b.size, X.dtype)
    b_bar[:], squares[:] = 0, 0
    for n in range(len(X)):
        minus_half = gather(X[n], geometry, scale, patches)
        for i in range(b.size):
            profile(patches[:, i], patches, b.size, minus_half, k)
            total, factor = X.dtype.type(0), k_bar[n] * variance
            for j in range(b.size):
                total += b[j] * k[j]
                k[j] *= factor * b[i] * b[j]
            b_bar[i] += 2 * factor * total
            for d in range(scale.size):
                second = X.dtype.type(0)
                for j in range(b.size):
                    e = patches[d, j] - patches[d, i]
                    second += k[j] * e * e
                squares[d] += second * scale[d]


def problem(rng, shape, frame, M, N, dtype):
    """Return images with a frame of one colour, inducing patches, and the geometry."""
    H, W, C = shape
    images = np.full((N, H, W, C), -0.4)
    inner = slice(frame, H - frame), slice(frame, W - frame)
    images[:, *inner] = rng.standard_normal((N, H - 2 * frame, W - 2 * frame, C))
    d, P = 25 * C, (H - 4) * (W - 4)
    Z = rng.standard_normal((M, d)).astype(dtype)
    return images.reshape(N, -1).astype(dtype), Z, np.full(P, 1 / P, dtype), (H, W, C, 5, 5, 1)


def cases(dtype):
    rng, near = np.random.default_rng(0), 2000 * np.finfo(dtype).eps
    for name, shape, frame, M, N in (
        ("MNIST", (28, 28, 1), 0, 100, 8),
        ("MNIST with a frame", (28, 28, 1), 8, 100, 8),
        ("CIFAR", (32, 32, 3), 0, 100, 4),
    ):
        X, Z, A, geometry = problem(rng, shape, frame, M, N, dtype)
        variance, scales = dtype.type(1.3), np.full(Z.shape[1], np.sqrt(Z.shape[1]), dtype)
        given, k = (
            (variance, 1 / scales, geometry),
            ("rbf", Z, X, A, variance, scales),
        )
        K_bar, k_bar = rng.standard_normal((M, N)).astype(dtype), np.ones(N, dtype)
        out, bars = (
            np.empty((M, N), dtype),
            (np.empty_like(Z), np.empty_like(A), np.empty_like(scales)),
        )

        def pulled(function, *arguments):
            function(*arguments)
            return arguments[-len(bars) :]

        yield Case(
            f"patch_sums, {name}",
            lambda: kernels.patch_sums(*k, geometry),
            lambda: patch_sums(Z / scales, X, A, *given, out),
            near,
        )
        need = "Z", "A", "lengthscales"
        yield Case(
            f"patch_sums_vjp, {name}",
            lambda: kernels.patch_sums_vjp(K_bar, *k, geometry, None, need)[::2],
            lambda: pulled(patch_sums_vjp, K_bar, Z / scales, X, A, *given, *bars),
            near,
        )
        pairs = "rbf", X, A, variance, scales
        yield Case(
            f"patch_pair_sums, {name}",
            lambda: kernels.patch_pair_sums(*pairs, geometry),
            lambda: (patch_pair_sums(X, A, *given, out[0]), out[0])[1],
            near,
        )
        need = "B", "lengthscales"
        yield Case(
            f"patch_pair_sums_vjp, {name}",
            lambda: kernels.patch_pair_sums_vjp(k_bar, *pairs, geometry, None, None, need)[1::2],
            lambda: pulled(patch_pair_sums_vjp, k_bar, X, A, *given, *bars[1:])[-2:],
            near,
        )
