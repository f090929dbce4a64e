"""Kernels at sizes of several waves of blocks: what only a GPU can show.

There each result is compared with another form, 1,000 repetitions are to be equal bit for bit, and
two streams run at once. The same code runs at small sizes over the emulation and the stand-in
driver, where the large ones would take hours. ``bench/first_gpu.sh`` runs this file on a GPU.
"""

import sys

import numpy as np
import pytest
from support.wave_problems import CASES, WORST, reference

import fastsvgp as fs
from fastsvgp.kernels.cuda.common import scratch
from fastsvgp.runtime import tuning

REPETITIONS = {"small": 2, "large": 1000}
TURNS = {"small": 2, "large": 200}  # of two streams
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def places(most, *others):
    """Parametrise a test by all cases, each with up to ``most`` sizes, and small ones elsewhere."""
    found = []
    for name, case in CASES.items():
        for size in case.sizes[:most]:
            kind, words = "large" if size in case.sizes[1:] else "small", "x".join(map(str, size))
            for place in ("device", *others) if kind == "small" else ("device",):
                mark = pytest.mark.on_device if place == "device" else ()
                given = place, name, size
                found.append(pytest.param(*given, marks=mark, id=f"{kind}-{place}-{name}-{words}"))
    return pytest.mark.parametrize("gpu, name, size", found, indirect=["gpu"])


def require_card(cupy):
    """Skip a test of a large size where no GPU runs it."""
    if "fakegpu" in sys.modules or cupy is not sys.modules.get("cupy"):
        pytest.skip("takes hours on the stand-in driver: large sizes run on a GPU only")


class Call:
    """A case with its arrays, on the device."""

    def __init__(self, gpu, rng, name, size, dtype):
        self.case, self.kind = CASES[name], "small" if size == CASES[name].sizes[0] else "large"
        if self.kind == "large":
            require_card(gpu.cupy)
        self.real = gpu.cupy is sys.modules.get("cupy")
        dtype = np.dtype(dtype)

        def draw(*shape):  # float32 is drawn faster, and is enough for both
            drawn = gpu.cupy.asarray(rng.random(shape, np.float32))
            return drawn.astype(dtype) * dtype.type(2) - dtype.type(1)

        self.arrays = [
            a if a.dtype.kind == "i" else a.astype(dtype)
            for a in self.case.arrays(draw, gpu.cupy, *size)
        ]

    def __call__(self):
        """Return the results, a tuple of arrays."""
        found = self.case.call(*self.arrays)
        return found if isinstance(found, tuple) else (found,)

    def home(self, arrays):
        """Return arrays for a reference: they stay on a GPU, but leave the emulation."""
        return [a.get() if hasattr(a, "get") and not self.real else a for a in arrays]

    def differs(self, found, first):
        """Return whether two results differ in a bit; on a GPU without waiting for it."""
        if not self.real:
            pairs = zip(self.home(found), self.home(first), strict=True)
            return sum(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in pairs)
        bits = [
            (a.view(f"i{a.itemsize}") != b.view(f"i{b.itemsize}")).any()
            for a, b in zip(found, first, strict=True)
        ]
        return sum(one.astype(np.int64) for one in bits)


@pytest.fixture(autouse=True)
def memory_goes_back():
    """Large arrays of one test leave no room for those of another worker."""
    yield
    if (cupy := sys.modules.get("cupy")) and cupy.cuda.is_available():
        cupy.get_default_memory_pool().free_all_blocks()


@every_dtype
@places(4, "emulated")
def test_equals_another_form(gpu, rng, name, size, dtype):
    call = Call(gpu, rng, name, size, dtype)
    xp = gpu.cupy if call.real else np
    found, arrays = call.home(call()), call.home(call.arrays)
    for one, other in call.case.pairs(xp, found, *arrays):
        assert reference.error_of(xp, (one,), (other,)) < WORST[dtype]


@every_dtype
@places(2)
def test_repetitions_are_equal(gpu, rng, name, size, dtype):
    """Sums of slices are added in one order, whichever block comes last."""
    call = Call(gpu, rng, name, size, dtype)
    first, differing = call(), 0
    for _ in range(REPETITIONS[call.kind]):
        differing = differing + call.differs(call(), first)
    assert int(differing) == 0


@every_dtype
@places(2)
def test_two_streams_at_once(gpu, rng, name, size, dtype):
    """They share neither counters nor sums of slices."""
    calls = [Call(gpu, rng, name, size, dtype) for _ in range(2)]
    expected, streams = [call() for call in calls], []
    assert scratch.of_stream().parts or not calls[0].case.cut, "no sum was cut"
    for _ in calls:
        streams.append(gpu.cupy.cuda.Stream(non_blocking=True))
    gpu.cupy.cuda.get_current_stream().synchronize()
    differing = [0, 0]
    for _ in range(TURNS[calls[0].kind]):
        for i, stream in enumerate(streams):
            with stream:
                found = calls[i].differs(calls[i](), expected[i])
                differing[i] = differing[i] + found
    for stream in streams:
        stream.synchronize()
    assert [int(count) for count in differing] == [0, 0]


SMALL, LARGE = (20, 300, 60), (1000, 100_000, 4000)


@pytest.mark.parametrize(
    "gpu, size",
    [
        pytest.param("emulated", SMALL, id="small-emulated"),
        pytest.param("device", SMALL, id="small-device", marks=pytest.mark.on_device),
        pytest.param("device", LARGE, id="large", marks=pytest.mark.on_device),
    ],
    indirect=["gpu"],
)
def test_a_step_in_one_chunk_equals_a_step_in_many(gpu, rng, size):
    """Value and gradient of a bound of N rows."""
    M, N, columns = size
    if size == LARGE:
        require_card(gpu.cupy)
    X, Z = rng.uniform(-2, 2, (N, 3)), rng.uniform(-2, 2, (M, 3))
    q = fs.Whitened(0.1 * rng.standard_normal(M), np.eye(M))
    model = fs.SVGP(fs.RBF(np.float64(1.3), np.full(3, 0.5)), Z, q, fs.Gaussian(np.float64(0.3)))
    given = [fs.to_device(model), *map(gpu.cupy.asarray, (X, np.sin(X).sum(1)))]
    whole = fs.elbo_and_grad(*given, jitter=1e-4)
    numbers = {"bound_chunk_numbers_on_device": M * columns, "bound_chunk_columns": columns}
    with tuning.override(**numbers):
        pieces = fs.elbo_and_grad(*given, jitter=1e-4)
    np.testing.assert_allclose(float(pieces[0]), float(whole[0]), rtol=1e-10)
    for (path, _, one), (_, _, other) in zip(
        *(fs.records.leaves(fs.to_host(grad)) for _, grad in (pieces, whole)), strict=True
    ):
        atol = 1e-9 * max(1, np.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=path)
