"""Functions drawn from a posterior: to make them, at shared points, and at own ones with gradients.

64 functions of 1024 features that all share, 512 inducing inputs, D = 8, float64, one thread: set
OPENBLAS_NUM_THREADS=1. Times are CPU seconds of the process. "peer" is BoTorch with the same q and
as many features, timed between our calls, if it is installed. The unit of the peak extra memory is
2^21 numbers beside the results. Error: against features and covariances written out.
"""

import functools
import time

import numpy as np
import pytest
from harness import peak_extra, relative_error
from problems import D, step_problem
from scipy.linalg.blas import dgemm

import fastsvgp as fs
from fastsvgp import kernels

S, M, FEATURES, JITTER = 64, 512, 1024, 1e-6
RUN = 8 * 2**21  # bytes
cpu_time = pytest.mark.benchmark(timer=time.process_time)


@pytest.fixture(autouse=True)
def one_thread():
    with fs.set_num_threads(1):
        yield


@functools.cache
def model_of():
    p = step_problem(M, 1)
    k, q = fs.RBF(p["variance"], p["lengthscales"]), fs.Whitened(p["mean"], p["scale_tril"])
    return fs.SVGP(k, p["Z"], q, fs.Gaussian(p["noise"]))


@functools.cache
def peer_of():
    """Return the module of peers, BoTorch's model and its functions, or None."""
    try:
        import path_peers
    except ImportError:
        return None
    model = path_peers.OfModel(model_of(), JITTER)
    return path_peers, model, path_peers.sample_paths(model, S, FEATURES)


def sample(frequencies="shared"):
    options = {"num_features": FEATURES, "frequencies": frequencies, "jitter": JITTER, "rng": 0}
    return fs.sample_paths(model_of(), S, **options)


def dense(paths, X):
    """Return values (S, N) at shared points, and slopes (S, N, D), written out."""
    k, Z, found = model_of().covariance, model_of().inducing, paths.functions
    num, w, v = FEATURES // 2, found.weights[:, 0], found.terms[0].weights[:, 0]
    omega = kernels.fourier_frequencies(k.family, found.seeds, np.arange(num), D) / k.lengthscales
    scale, theta = np.sqrt(float(k.variance) / num), X @ omega.T
    c, s, a, b = np.cos(theta), np.sin(theta), w[:, ::2], w[:, 1::2]
    far = (X[:, None] - Z) / k.lengthscales
    K = k.variance * np.exp(-0.5 * (far**2).sum(-1))
    slopes = np.stack([
        scale * ((b * omega[:, d]) @ c.T - (a * omega[:, d]) @ s.T)
        - v @ (K * far[..., d]).T / k.lengthscales[d]
        for d in range(D)
    ], axis=-1)  # fmt: skip
    return scale * (a @ c.T + b @ s.T) + v @ K.T, slopes


def seconds_of(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def row(benchmark, call, peer=None, error=None, results=0, floor=None):
    """Time ``call()``, and ``peer()`` and ``floor()`` between its calls; ``results`` are bytes."""
    call()
    rounds, theirs, floors = int(np.clip(2.0 / seconds_of(call), 8, 100)), [], []
    every, seen = max(1, rounds // 20), 0

    def between():
        nonlocal seen
        if seen % every == 0:
            for other, times in ((peer, theirs), (floor, floors)):
                if other is not None:
                    times.append(seconds_of(other))
            call()  # refills the caches
        seen += 1

    benchmark.pedantic(call, setup=between, rounds=rounds, iterations=1, warmup_rounds=1)
    figures, peak = benchmark.extra_info, peak_extra(call)
    figures.update(peak_extra=peak, peak_units=max(0, peak - results) / RUN)
    if error is not None:
        figures["error"] = error
    if benchmark.stats is None:  # under --benchmark-disable
        return
    stats = benchmark.stats.stats
    if theirs:
        figures.update(peer=float(np.median(theirs)), of_peer=stats.median / np.median(theirs))
    if floors:
        figures.update(floor=float(np.median(floors)), ratio=stats.median / np.median(floors))
        figures["ratio_best"] = stats.min / min(floors)


@cpu_time
@pytest.mark.parametrize("frequencies", ["shared", "own"])
def bench_making(benchmark, frequencies):
    peer = peer_of() if frequencies == "shared" else None
    theirs = peer and (lambda: peer[0].sample_paths(peer[1], S, FEATURES))
    row(benchmark, lambda: sample(frequencies), theirs, results=8 * S * (FEATURES + M))


@cpu_time
@pytest.mark.parametrize("N", [2000, 8000, 32_000])
def bench_shared_points(benchmark, rng, N):
    X, paths, peer = rng.standard_normal((N, D)), sample(), peer_of() if N == 2000 else None
    theirs = peer and (lambda: peer[0].values(peer[2], X))
    few, A = X[:200], np.asfortranarray(rng.standard_normal((S, FEATURES + M)))
    B = np.asfortranarray(rng.standard_normal((FEATURES + M, N)))
    error = relative_error(paths(few), dense(paths, few)[0])
    row(benchmark, lambda: paths(X), theirs, error, 8 * S * N, lambda: dgemm(1.0, A, B))


@cpu_time
def bench_shared_points_of_own_frequencies(benchmark, rng):
    X, paths = rng.standard_normal((2000, D)), sample("own")
    row(benchmark, lambda: paths(X), results=8 * S * 2000)


@cpu_time
@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("frequencies", ["shared", "own"])
def bench_own_points_with_gradients(benchmark, rng, n, frequencies):
    X, paths = rng.standard_normal((S, n, D)), sample(frequencies)
    peer = peer_of() if (n, frequencies) == (10, "shared") else None
    theirs, error = peer and (lambda: peer[0].values_and_slopes(peer[2], X)), None
    if frequencies == "shared":
        due = dense(paths, X[:, :3].reshape(-1, D))
        at = np.arange(S)[:, None], np.arange(3 * S).reshape(S, 3)
        found = paths.and_grad(X[:, :3])
        error = max(relative_error(f, d[at]) for f, d in zip(found, due, strict=True))
    row(benchmark, lambda: paths.and_grad(X), theirs, error, 8 * S * n * (D + 1))
