"""The emulation finds the defects of deliberately broken kernels, and none in correct ones."""

import ast
import inspect
import pathlib
import re
import shutil

import numpy as np
import pytest
from cuda_host import nccl_on_host, planted, sanitized
from cuda_host.cupy_on_host import FUNCTIONS, cupy as emulated_cupy
from cuda_host.host_module import HostModule, translate

import fastsvgp

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)


@pytest.mark.parametrize(
    "defect, found",
    [
        (1, r"1 threads left while 63 wait at line"),
        (3, r"threads wait at the __syncthreads\(\) of lines \d+ and \d+"),
        (6, "not in its own mask"),
        (7, "different collectives"),
    ],
)
def test_scheduler_finds(defect, found):
    with pytest.raises(RuntimeError, match=rf"block_sum: block \(0,0,0\): .*{found}"):
        planted.is_right(defect)


@pytest.mark.parametrize("defect", [2, 9, 12], ids=["unwritten", "same places", "missing wait"])
def test_result_shows(defect):
    assert not planted.is_right(defect)

    # missing barriers, blocks that write the same place; overruns, misalignment


CAUGHT = {"thread": (4, 8, 9), "address": (5, 10, 11)}


@pytest.mark.parametrize("which", range(3))
def test_sanitizer_finds(sanitizer, which):
    defect = CAUGHT[sanitizer][which]
    done = sanitized.run(sanitizer, "cuda_host.planted", defect, sanitizer)
    assert done.returncode == sanitized.FOUND or "runtime error" in done.stderr, (
        done.returncode,
        done.stderr[-2000:],
    )
    assert "planted.cu:" in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("defect", [13, 14], ids=["before", "after"])
def test_race_check_finds_missing_fences(defect):
    if reason := sanitized.why_not("thread"):
        pytest.skip(reason)
    done = sanitized.run("thread", "cuda_host.planted", defect, "thread")
    assert done.returncode == sanitized.FOUND and "planted.cu:" in done.stderr, (
        done.returncode,
        done.stderr[-2000:],
    )


def test_right_kernels_are_clean():
    assert planted.is_right(0)


def test_right_kernels_are_clean_under(sanitizer):
    done = sanitized.run(sanitizer, "cuda_host.planted", 0, sanitizer)
    assert done.returncode == 0 and not done.stderr, (done.returncode, done.stderr[-2000:])


def test_types_of_arguments_are_checked():
    module = HostModule(planted.__file__.replace(".py", ".cu"), ["-DREAL=float"])
    a = np.zeros(64, np.float32)
    n = np.int32(0)
    for wrong in (
        (a, a.astype(float), n),
        (a, n, n),
        (a, a),
        (a, a, 0),
        (a, a, np.int64(0)),
        (a.astype(np.int32), a, n),
    ):
        with pytest.raises(TypeError, match="block_sum"):
            module.launch("block_sum", (1,), (64,), wrong)


def test_too_much_shared_memory(tmp_path):
    source = tmp_path / "greedy.cu"
    source.write_text(
        'extern "C" __global__ void greedy(float* out) { __shared__ float s[60000]; s[0] = 1;'
        " out[0] = s[0]; }"
    )
    with pytest.raises(RuntimeError, match="240000 bytes of shared memory, the limit is 232448"):
        HostModule(source).launch("greedy", (1,), (1,), (np.zeros(1, np.float32),))


def test_unread_declarations_are_refused():
    with pytest.raises(ValueError, match="__shared__ declaration"):
        translate("__shared__ float a[2], b[2];", "two.cu")


# --- the CuPy of the emulation refuses what the real one refuses ----------------------------------

# these NumPy functions are written in C, and forward their arguments; those written in Python
# (full, ones, eye...) add ``device=``
LIKE_WORKS = {"array", "asarray", "ascontiguousarray", "arange", "empty", "zeros"}


@pytest.mark.parametrize(
    "make",
    [np.ones, np.eye, lambda n, like: np.full(n, 1.0, like=like)],
    ids=["ones", "eye", "full"],
)
def test_functions_that_like_does_not_reach(make):
    there = emulated_cupy.asarray([1.0])
    with pytest.raises(TypeError, match="device"):
        make(3, like=there)
    assert isinstance(np.zeros(3, like=there), emulated_cupy.ndarray)
    with pytest.raises(TypeError, match="keepdims|where"):
        np.sum(there, where=[True])


def test_like_is_used_in_no_other_call():
    found = {}
    for path in pathlib.Path(fastsvgp.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("np."):
                if any(keyword.arg == "like" for keyword in node.keywords):
                    found.setdefault(node.func.attr, path)
    assert {"empty", "zeros"} <= set(found) <= LIKE_WORKS, found


def test_parameters_are_those_of_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for name, ours in FUNCTIONS.items():
        if name != "matmul":  # CuPy's accepts any
            ours, real = (
                list(inspect.signature(f).parameters)
                for f in (eval(f"lambda {ours}: None"), getattr(cupy, name))
            )
            assert set(ours) <= set(real), name


def test_parameters_are_those_of_nccl():
    """CuPy's extension holds them as text, because it cannot be loaded without NCCL."""
    backends = pytest.importorskip("cupy_backends", reason="CuPy is not installed")
    (extension,) = pathlib.Path(backends.__file__).parent.glob("cuda/libs/nccl*.so")
    text = extension.read_bytes().decode("latin-1")
    for name in ("allReduce", "bcast"):
        (real,) = set(re.findall(rf"NcclCommunicator\.{name}\(self, ([^)]*)\)", text))
        _, *ours = inspect.signature(getattr(nccl_on_host.NcclCommunicator, name)).parameters
        assert [one.split()[-1] for one in real.split(", ")] == ours
        assert {one.split()[0] for one in real.split(", ")} <= {"int", "intptr_t", "size_t"}
    assert list(inspect.signature(nccl_on_host.NcclCommunicator).parameters) == [
        "ndev",
        "commId",
        "rank",
    ]
    assert re.search(r"NcclCommunicator\(int ndev, \w+ commId, int rank", text)
    for name in ("get_unique_id", "NCCL_DOUBLE", "NCCL_SUM"):
        assert hasattr(nccl_on_host, name) and name in text


@pytest.mark.parametrize("name", ["get", "set"])
def test_parameters_of_copies_are_those_of_cupy(name):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    (real,) = re.findall(
        rf"{name}\((self, [^)]*)\)", getattr(cupy.ndarray, name).__doc__.splitlines()[0]
    )
    ours = inspect.signature(getattr(emulated_cupy.ndarray, name))
    assert [one.replace(" ", "") for one in real.split(", ")] == [
        str(one).replace(" ", "") for one in ours.parameters.values()
    ]
