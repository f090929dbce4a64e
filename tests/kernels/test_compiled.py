"""Kernels as Python calls them: from the module built ahead of time, by Numba, and as Python."""

import json
import os
import pathlib
import subprocess
import sys
import threading
from importlib.metadata import version

import numpy as np
import pytest

from fastsvgp.kernels.cpu import factorisations
from fastsvgp.kernels.cpu.common import ahead, blas, blocked, compiled
from fastsvgp.kernels.cpu.common.compiled import MISSES
from fastsvgp.kernels.cpu.common.thread_pool import _watch

ROOT = pathlib.Path(__file__).parents[2]
MODULE = ahead.found()[0] is not None
needs_module = pytest.mark.skipif(not MODULE, reason="no module of kernels is built here")


@pytest.fixture
def misses():
    """The misses of one test, which it may cause."""
    yield MISSES
    MISSES.clear()


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arguments_of_another_form_are_compiled_for(rng, dtype, misses):
    A = rng.standard_normal((6, 9)).astype(dtype)[:, ::-1]
    out = np.zeros((6, 6), dtype)
    square = np.asfortranarray(A[:, :6])
    factorisations.turn_lower(0, 6, square, out)
    np.testing.assert_array_equal(out, np.tril(square[::-1, ::-1].T))
    assert misses == ({factorisations.turn_lower.key: 1} if MODULE else {})


def test_read_only_and_unaligned_arrays_are_not_written_to(rng, misses):
    A = rng.standard_normal((5, 5))
    kept = A.copy()
    A.flags.writeable = False
    with pytest.raises(Exception, match="(?i)readonly|read-only|immutable|cannot modify|mutable"):
        blocked.mirror(A)
    np.testing.assert_array_equal(A, kept)
    B = np.frombuffer(bytes(1) + kept.tobytes(), np.uint8)[1:].view(np.float64).reshape(5, 5)
    out = np.zeros((5, 5))
    factorisations.turn_lower(0, 5, B, out)
    np.testing.assert_array_equal(out, np.tril(kept[::-1, ::-1].T))


@needs_module
def test_each_form_that_is_declared_is_in_the_module():
    ahead.import_every_kernel()
    for kernel in compiled.KERNELS.values():
        if kernel.entry:
            expected = {"d", "f"} if kernel._at is not None else {""}
            assert set(ahead.functions(kernel)) == expected, kernel.key


@needs_module
def test_wrong_arguments_of_the_module_are_refused():
    function = ahead.functions(blas.gemv)["d"]
    A, x, y = np.ones((3, 3)), np.ones(3), np.ones(3)
    for arguments in (
        (A.astype(np.float32), x, y, blas.N),
        (A, x[::-1], y, blas.N),
        (A, np.ones((3, 1)), y, blas.N),
        (A, x, y.astype(">f8"), blas.N),
        (A, x, np.frombuffer(bytes(24)), blas.N),
        (A, x, y),
        (A, x, y, None),
        (None, x, y, blas.N),
    ):
        with pytest.raises(TypeError):
            function(*arguments)
    function(A, x, y, blas.N)
    np.testing.assert_array_equal(y, 3.0)


STEPS = """
import sys, warnings
import numpy as np, fastsvgp as fs
rng = np.random.default_rng(0)
X, y = rng.standard_normal((40, 2)), rng.standard_normal(40)
Z, q = X[:6].copy(), fs.Whitened(np.zeros(6), np.eye(6))
kernel = fs.RBF(1.0, np.ones(2))
models = {
    "SVGP": lambda: fs.elbo_and_grad(fs.SVGP(kernel, Z, q, fs.Gaussian(0.1)), X, y),
    "counts": lambda: fs.elbo_and_grad(fs.SVGP(kernel, Z, q, fs.Poisson()), X, np.abs(y) // 1),
    "marginal": lambda: fs.elbo_and_grad(
        fs.SVGP(kernel, Z, fs.Marginal(np.zeros(6), np.eye(6)), fs.StudentT(1.0, df=4.0)), X, y
    ),
    "SGPR": lambda: fs.collapsed_bound_and_grad(fs.SGPR(kernel, Z, 0.1), X, y),
    "fit": lambda: fs.fit(fs.SVGP(kernel, Z, q, fs.Gaussian(0.1)), X, y, steps=2, batch_size=20),
    "predict": lambda: fs.predict_y(fs.SVGP(kernel, Z, q, fs.Gaussian(0.1)), X),
    "paths": lambda: fs.sample_paths(fs.SVGP(kernel, Z, q, fs.Gaussian(0.1)), 2, rng=0)(X),
    "deep": lambda: fs.elbo_and_grad(fs.layers.deep_gp(X, fs.Gaussian(0.1), 2, 6, rng=0), X, y,
        rng=0),
    "several": lambda: fs.elbo_and_grad(
        fs.layers.multi_gp(X, np.stack([y, y], axis=1), 2, 6, rng=0),
        X, np.stack([y, y], axis=1),
    ),
}
for name in sys.argv[1:] or models:
    models[name]()
    print(name, "numba" in sys.modules)
"""


@needs_module
def test_no_kind_of_model_imports_numba():
    said = run(STEPS).splitlines()
    assert [line for line in said if not line.endswith(" False")] == [] and len(said) == 9


TRAINING = """
import hashlib, sys
import numpy as np, fastsvgp as fs
rng = np.random.default_rng(0)
X = rng.standard_normal((200, 8))
y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(200)
q = fs.Whitened(np.zeros(100), np.eye(100))
model = fs.SVGP(fs.RBF(1.0, np.ones(8)), X[:100].copy(), q, fs.Gaussian(0.1))
model, _ = fs.fit(model, X, y, steps=3, batch_size=128, rng=1)
digest = hashlib.sha256(fs.ravel(model)[0].tobytes())
print(digest.hexdigest()[:16])
"""
COUNTED = f"""
import json, sys
sys.path.insert(0, {str(ROOT / "bench")!r})
from one_first_call import counted
with counted() as counts:
    exec({TRAINING!r})
print(json.dumps(counts))
"""
# functions that Numba compiles, and instructions of LLVM, for the training above; with these
# versions they repeat to the unit
BUDGET = {"functions": 71, "lowered": 77_174, "optimised": 110_609}
VERSIONS = (3, 11), "0.68", "0.50"


@pytest.fixture(scope="module")
def compiling(tmp_path_factory):
    """The environment for a cache of Numba, and what the process that filled it said."""
    place = {
        "FASTSVGP_KERNELS": "none",
        "NUMBA_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
    }
    digest, counts = run(COUNTED, **place).splitlines()
    return place, digest, json.loads(counts)


def test_bits_do_not_depend_on_what_is_compiled_already(compiling):
    """An empty cache and one that is filled give the same numbers; so does the module each time."""
    place, digest, _ = compiling
    assert run(TRAINING, **place) == digest
    if MODULE:
        assert run(TRAINING) == run(TRAINING)


def test_compiling_a_step_keeps_to_its_budget(compiling):
    counts = compiling[2]
    assert counts["generated"] <= 1.53 * counts["distinct"]  # few functions are in several entries
    found = sys.version_info[:2], version("numba")[:4], version("llvmlite")[:4]
    if found == VERSIONS:
        over = {name: counts[name] for name, most in BUDGET.items() if counts[name] > 1.02 * most}
        assert not over, f"{BUDGET} by 2 % at most"


def test_python_code_runs_where_compiling_is_disabled():
    code = """
import numpy as np
from fastsvgp.kernels import scale_columns
print(scale_columns(np.ones((2, 3)), np.arange(3.0)).tolist())
"""
    assert run(code, NUMBA_DISABLE_JIT="1") == run(code)


def test_the_environment_can_forbid_the_module_or_name_one():
    code = "from fastsvgp.kernels.cpu.common import ahead; print(*ahead.found())"
    said = run(code, FASTSVGP_KERNELS="none")
    assert said == "None None FASTSVGP_KERNELS=none"
    with pytest.raises(
        AssertionError, match="it can be none, x86_64_v4, x86_64_v3, x86_64_v2, aarch64"
    ):
        run(code, FASTSVGP_KERNELS="z80")


def test_a_module_of_other_sources_is_not_used(tmp_path, monkeypatch):
    if not MODULE:
        pytest.skip("no module of kernels is built here")
    monkeypatch.setattr(ahead, "sources", lambda: "others")
    ahead.found.cache_clear()
    try:
        level, module, reason = ahead.found()
        assert level is None and module is None and "built from other sources" in reason
    finally:
        monkeypatch.undo()
        ahead.found.cache_clear()


def test_plain_njit_takes_over_where_numba_has_changed(tmp_path):
    code = """
from fastsvgp.kernels.cpu.common import compiled
compiled.ready()
from fastsvgp.kernels.cpu.common import link_once
def changed():
    raise ImportError("cannot import name 'JITCodeLibrary'")
link_once.classes = changed
import numpy as np
from fastsvgp.kernels import scale_columns
print(scale_columns(np.ones((2, 3)), np.arange(3.0)).tolist(), link_once.works())
"""
    said = run(code, FASTSVGP_KERNELS="none", NUMBA_CACHE_DIR=str(tmp_path))
    assert said == "[[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]] False"


def test_other_threads_run_beside_a_kernel():
    finished, begun, done = np.zeros(1, np.uint8), threading.Event(), []

    def poll():
        begun.set()
        _watch(finished, 2_000_000_000)  # until the line below has run, or for seconds
        done.append(True)

    _watch(np.ones(1, np.uint8), 1)  # compiled
    thread = threading.Thread(target=poll)
    thread.start()
    begun.wait()
    assert not done
    finished[0] = 1
    thread.join()
    assert done


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this platform")
def test_kernels_work_in_a_forked_child(rng):
    L = np.tril(rng.standard_normal((90, 90))) + 20 * np.eye(90)
    expected = L.copy()
    blocked.inverse(expected)
    child = os.fork()
    if child == 0:
        own = L.copy()
        blocked.inverse(own)
        os._exit(0 if np.array_equal(own, expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_an_intrinsic_is_for_compiled_code():
    with pytest.raises(NotImplementedError, match="_call works in compiled code only"):
        blas._call()
