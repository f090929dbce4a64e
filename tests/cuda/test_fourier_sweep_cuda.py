"""CUDA twin of ``fourier_sweep``, in any combination, against that of the CPU."""

import itertools

import numpy as np
import pytest
from cuda_host.cupy_on_host import copies, cupy
from support import fourier_problems as problems

from fastsvgp import kernels
from fastsvgp.kernels.cuda import fourier as cuda_module

NAMES = "out", "squares", "W", "v", "X", "variance", "lengthscales"
NUM = 40


def check(
    gpu, rng, N, D, n, R, given="WUvu", need=NAMES, dtype=np.float64, shared=False, family="rbf"
):
    """Results of the sides ``given``: nothing is copied, and only needed results come."""
    X, U, W, indices, _, lengthscales = problems.problem(rng, N, D, n, max(R, 1), dtype)
    sides = {
        "W": W[:R],
        "U": U[:R],
        "v": rng.standard_normal(2 * n).astype(dtype),
        "u": rng.standard_normal(N).astype(dtype),
    }
    sides = {name: sides[name] for name in given}
    arrays = (
        X,
        indices % NUM,
        np.array(1.7, dtype),
        dtype(1.3) * np.ones((), dtype) if shared else lengthscales,
    )

    def sweep(place, like):
        X, indices, variance, lengthscales = map(place, like)
        there = {name: place(side) for name, side in sides.items()}
        before = copies.to_host, copies.to_device
        found = kernels.fourier_sweep(
            X, family, 3, indices, NUM, variance, lengthscales, **there, need=need
        )
        assert gpu.cupy is not cupy or (copies.to_host, copies.to_device) == before
        return found

    for name, one, other in zip(
        NAMES, sweep(gpu.there, arrays), sweep(np.copy, arrays), strict=True
    ):
        assert (one is None) is (other is None) is (name not in need), name
        if one is not None:
            assert one.shape == np.shape(other) and one.dtype == dtype, name
            size = (
                np.abs(other).max(initial=0)
                if np.ndim(other) > 1 or name in ("squares", "v")
                else N * n
            )
            np.testing.assert_allclose(
                gpu.back(one),
                other,
                rtol=0,
                atol=200 * np.finfo(dtype).eps * max(1, size),
                err_msg=name,
            )


SHAPES = [
    (1, 1, 1, 1),
    (17, 1, 5, 0),
    (65, 8, 1, 2),
    (130, 17, 33, 5),
    (300, 3, 77, 1),
    (33, 20, 9, 6),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_the_cpu_twin(gpu, rng, shape, dtype):
    R = shape[-1]
    check(
        gpu,
        rng,
        *shape,
        dtype=dtype,
        need=NAMES if R else ("squares", "v", "X", "variance", "lengthscales"),
        given="WUvu" if R else "vu",
    )


@pytest.mark.parametrize("R", [0, 1, 3])
def test_every_combination_of_parts(gpu, rng, R):
    names = NAMES if R else tuple(name for name in NAMES if name not in ("out", "W"))
    for count in range(len(names) + 1):
        for need in itertools.combinations(names, count):
            check(gpu, rng, 9, 2, 5, R, need=need, given="WUvu" if R else "vu")


@pytest.mark.parametrize(
    "given, need",
    [
        ("W", ("out",)),
        ("v", ("squares",)),
        ("U", ("W",)),
        ("u", ("v",)),
        ("Wv", ("out", "squares")),
        ("Uu", ("W", "v")),
        ("WUv", ("out", "squares", "W", "X", "variance")),
        ("Wvu", ("v", "lengthscales")),
        ("WU", ("out", "W", "X", "variance")),
        ("Uvu", ("W", "squares", "v", "X", "variance", "lengthscales")),
    ],
)
def test_sides_that_are_missing(gpu, rng, given, need):
    check(gpu, rng, 33, 3, 13, 2, given=given, need=need)


@pytest.mark.parametrize("family", problems.FAMILIES)
def test_families_and_a_shared_lengthscale(gpu, rng, family):
    check(gpu, rng, 33, 3, 13, 2, shared=True, family=family)


@pytest.mark.parametrize("shape", [(600, 3, 300, 2), (70, 20, 300, 2)])
def test_tiles_runs_and_partial_sums_join(gpu, rng, shape, monkeypatch):
    with monkeypatch.context() as patch:
        for name, value in (("GROUPS_EACH", 1), ("PARTS", 5000), ("TILE", 32 * 70)):
            patch.setattr(cuda_module, name, value)
        check(gpu, rng, *shape)


def test_no_points_no_frequencies(gpu, rng):
    check(gpu, rng, 9, 3, 0, 2)
    check(gpu, rng, 0, 3, 5, 2)
