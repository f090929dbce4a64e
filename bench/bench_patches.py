"""Sums over patches of images, values and gradients, for the images of MNIST and CIFAR-10.

E entries (m, n, p) of Kuf, or pairs p <= q of kff, of patches of d numbers: floor 2 d E flops
forward, 4 d E backward, and an exponential for each entry, at the rate of ``stationary`` with one
feature. "black": a frame of one colour, so that equal constant patches are merged; E counts those
that remain. Error: of values against all of ``stationary`` in float64, or one block against
another; of gradients, that in the variance, which follows from the values.
"""

import time

import numpy as np
import pytest
from harness import gemm_rate, record, relative_error

import fastsvgp as fs
from fastsvgp import kernels

SHAPES = {"mnist": ((28, 28, 1), 750, 100), "cifar": ((32, 32, 3), 1000, 64)}  # image, M, images
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
frames = pytest.mark.parametrize("frame", [0, 4], ids=["noise", "black"])
SIZE = 5


def problem(rng, shape, frame, dtype):
    (H, W, C), M, N = SHAPES[shape]
    images = rng.standard_normal((N, H, W, C))
    if frame:
        images[:, :frame], images[:, -frame:], images[:, :, :frame], images[:, :, -frame:] = (
            -0.4,
            -0.4,
            -0.4,
            -0.4,
        )
    X, d = images.reshape(N, -1).astype(dtype), SIZE * SIZE * C
    Z = rng.standard_normal((M, d)).astype(dtype)
    patch = fs.RBF(X.dtype.type(1.3), X.dtype.type(np.sqrt(d)))
    P = (H - SIZE + 1) * (W - SIZE + 1)
    covariance = fs.covariances.Convolutional(
        patch, X.dtype.type(1 / P), image_shape=(H, W, C), patch_shape=(SIZE, SIZE)
    )
    patches = kernels.gather_patches(X[:1], covariance.geometry)[0]
    constant = (patches == patches[:, :1]).all(1).sum()
    return covariance, Z, X, P - max(0, constant - 1), d


def exponential(dtype):
    """Return the seconds per exponential, with all threads: the best of three."""
    x, times = np.linspace(0, 4, 1500, dtype=dtype)[:, None], []
    for _ in range(3):
        start = time.perf_counter()
        kernels.stationary("rbf", x, x[::-1], 1.0, 1.0)
        times.append(time.perf_counter() - start)
    return min(times) / x.size**2


def run(benchmark, call, entries, flops, shape, dtype, error):
    _, M, N = SHAPES[shape]

    def floor():
        return entries * (flops / gemm_rate(M, 8 * N, dtype) + exponential(dtype))

    record(benchmark, call, flops=flops * entries, error=error, floor_seconds=floor)


def unfused(covariance, Z, X):
    """Return Kuf of the first images in float64, by the whole matrix."""
    patches = kernels.gather_patches(X.astype(float), covariance.geometry)
    k = covariance.patch_covariance
    K = kernels.stationary(
        k.family,
        Z.astype(float),
        patches.reshape(-1, Z.shape[1]),
        float(k.variance),
        float(k.lengthscales),
    )
    return K.reshape(len(Z), *patches.shape[:2]).sum(-1) * float(covariance.weights)


@every_dtype
@frames
@every_shape
def bench_inducing_patches_and_images(benchmark, rng, shape, frame, dtype):
    covariance, Z, X, remain, d = problem(rng, shape, frame, dtype)
    error = relative_error(covariance.Kuf(Z, X[:2]), unfused(covariance, Z, X[:2]))
    run(
        benchmark,
        lambda: covariance.Kuf(Z, X),
        Z.shape[0] * len(X) * remain,
        2 * d,
        shape,
        dtype,
        error,
    )


@every_dtype
@frames
@every_shape
def bench_inducing_patches_and_images_reversed(benchmark, rng, shape, frame, dtype):
    covariance, Z, X, remain, d = problem(rng, shape, frame, dtype)
    K_bar = rng.standard_normal((len(Z), len(X))).astype(dtype)
    call = lambda: covariance.Kuf_vjp(K_bar, None, Z, X, ("covariance", "inducing"))  # noqa: E731
    error = relative_error(
        (K_bar * covariance.Kuf(Z, X)).sum(dtype=float) / 1.3, call()[0].patch_covariance.variance
    )
    run(benchmark, call, Z.shape[0] * len(X) * remain, 4 * d, shape, dtype, error)


@every_dtype
@frames
@every_shape
def bench_variances(benchmark, rng, shape, frame, dtype):
    covariance, _, X, remain, d = problem(rng, shape, frame, dtype)
    error = relative_error(covariance.kff(X[:1]), covariance.Kff(X[:1])[0])
    run(
        benchmark,
        lambda: covariance.kff(X),
        len(X) * remain * (remain + 1) / 2,
        2 * d,
        shape,
        dtype,
        error,
    )


@every_dtype
@frames
@every_shape
def bench_variances_reversed(benchmark, rng, shape, frame, dtype):
    covariance, _, X, remain, d = problem(rng, shape, frame, dtype)
    k_bar = rng.standard_normal(len(X)).astype(dtype)
    call = lambda: covariance.kff_vjp(k_bar, X, ("covariance",))  # noqa: E731
    error = relative_error(
        (k_bar * covariance.kff(X)).sum(dtype=float) / 1.3, call()[0].patch_covariance.variance
    )
    run(benchmark, call, len(X) * remain * (remain + 1) / 2, 4 * d, shape, dtype, error)
