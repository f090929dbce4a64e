"""Threads of SciPy's OpenBLAS: one for small matrices, never above the limit, then restored."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.kernels.cpu.common import blas_threads
from fastsvgp.kernels.cpu.common.thread_pool import over_rows
from fastsvgp.runtime.blas_scope import _sizes, blas_threads_for
from fastsvgp.runtime.edge import public_call


class Pool:
    """An OpenBLAS of four threads that records its settings."""

    def __init__(self, count=4):
        self.count, self.settings, self.interrupted = count, [], None

    def get_num_threads(self):
        self._interrupt("get")
        return self.count

    def set_num_threads(self, count):
        self._interrupt("set")
        self.count = count
        self.settings.append(count)

    def _interrupt(self, when):
        if self.interrupted == when:
            self.interrupted = None
            raise KeyboardInterrupt


@pytest.fixture
def pool(monkeypatch):
    pool = Pool()
    monkeypatch.setattr(blas_threads, "scipys", lambda: pool)
    with fs.set_num_threads(3):
        yield pool
    assert not blas_threads._inside and blas_threads._before is None


@public_call(checks=False)
def seen(A, pool):
    return pool.count


SMALL, LARGE = np.eye(20), np.eye(400)


def test_small_matrices_get_one_thread_and_large_ones_all(pool):
    assert seen(SMALL, pool) == 1 and pool.count == 3
    assert seen(LARGE, pool) == 3
    fs.set_num_threads(2)
    assert seen(LARGE, pool) == 2 and seen(SMALL, pool) == 1 and pool.count == 3
    fs.set_num_threads(8)
    assert seen(LARGE, pool) == 3  # never more than the limit
    pool.count = 1
    pool.settings.clear()
    # as with OPENBLAS_NUM_THREADS=1
    assert seen(LARGE, pool) == seen(SMALL, pool) == 1 and not pool.settings
    pool.count = 3


@pytest.mark.parametrize("M, B", [(20, 10**6), (50, 8192), (100, 512)])
def test_sizes_that_one_thread_serves(pool, M, B):
    blas_threads.enter(M, B)
    assert pool.count == 1
    blas_threads.leave()


@pytest.mark.parametrize("M, B", [(150, 256), (200, 256), (200, 1), (100, 1024)])
def test_sizes_that_two_threads_serve_better(pool, M, B):
    blas_threads.enter(M, B)
    assert pool.count == 3
    blas_threads.leave()


def test_error_restores_the_setting(pool):
    @public_call(checks=False)
    def fails(A):
        assert pool.count == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fails(SMALL)
    assert pool.count == 3


@pytest.mark.parametrize("when", ["get", "set"])
def test_an_interrupt_on_the_way_in_leaves_nothing_behind(pool, when):
    pool.interrupted = when
    with pytest.raises(KeyboardInterrupt):
        seen(SMALL, pool)
    assert pool.count == 3 and not blas_threads._inside
    assert seen(SMALL, pool) == 1 and pool.count == 3


@pytest.mark.parametrize("where", ["__exit__", "leave"])
def test_an_interrupt_on_the_way_out_leaves_nothing_behind(pool, where):
    def interrupt(frame, event, _):
        if event == "call" and frame.f_code.co_name == where:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            sys.setprofile(interrupt)
            seen(SMALL, pool)
    finally:
        sys.setprofile(None)
    assert pool.count == 3 and not blas_threads._inside


def test_nested_call_keeps_the_setting_of_the_outer_one(pool):
    @public_call(checks=False)
    def outer(A):
        inner = seen(LARGE, pool), seen(SMALL, pool)
        return pool.count, *inner, pool.count

    pool.settings.clear()
    assert outer(SMALL) == (1, 1, 1, 1) and pool.settings == [1, 3]
    pool.settings.clear()
    assert outer(LARGE) == (3, 3, 3, 3) and pool.settings == []


def test_calls_of_several_threads_share_the_least(pool):
    inside, go = threading.Barrier(2), threading.Event()

    @public_call(checks=False)
    def held(A):
        inside.wait(20)
        go.wait(20)
        return pool.count

    with blas_threads_for((LARGE,)):
        assert pool.count == 3
        other = threading.Thread(target=held, args=(SMALL,))
        other.start()
        inside.wait(20)
        assert pool.count == 1
    assert pool.count == 1  # the other call is still running
    go.set()
    other.join()
    assert pool.count == 3


def test_many_threads_at_once(pool):
    def work():
        for _ in range(200):
            assert seen(SMALL, pool) == 1

    errors = []
    threads = [
        threading.Thread(target=lambda: errors.append(None) or work() or errors.pop())
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and pool.count == 3


def test_a_block_of_set_num_threads_limits_everybody(pool):
    with fs.set_num_threads(2):
        assert (
            pool.count == 2
            and seen(LARGE, pool) == 2
            and seen(SMALL, pool) == 1
            and pool.count == 2
        )
        with fs.set_num_threads(1):
            assert pool.count == 1 and seen(LARGE, pool) == 1 and pool.count == 1
        assert pool.count == 2
    assert pool.count == 3
    with fs.set_num_threads(9):
        assert pool.count == 3
    assert pool.count == 3


def test_a_block_within_a_call(pool):
    with blas_threads_for((SMALL,)):
        with fs.set_num_threads(2):
            assert pool.count == 1
        assert pool.count == 1
    assert pool.count == 3


def test_forked_child_restores_the_setting(pool):
    """It inherits neither another thread's call nor its setting; its own call continues."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork on this platform")
    fork = multiprocessing.get_context("fork")

    def child(alone):
        os._exit(
            pool.count != (3 if alone else 1)
            or len(blas_threads._inside) != (not alone)
            or seen(SMALL, pool) != 1
        )

    inside, go = threading.Event(), threading.Event()
    other = threading.Thread(
        target=public_call(checks=False)(lambda A: inside.set() or go.wait(20)), args=(SMALL,)
    )
    other.start()
    try:
        assert inside.wait(20) and pool.count == 1
        children = [fork.Process(target=child, args=(True,))]
        children[0].start()
        with blas_threads_for((SMALL,)):
            children.append(fork.Process(target=child, args=(False,)))
            children[1].start()
        for process in children:
            process.join(20)
            assert process.exitcode == 0
        assert pool.count == 1
    finally:
        go.set()
        other.join()
    assert pool.count == 3


def test_other_blas_is_not_set(monkeypatch):
    monkeypatch.setattr(blas_threads, "scipys", lambda: None)
    assert blas_threads.facts() is None
    with fs.set_num_threads(1), blas_threads_for((SMALL,)):
        assert not blas_threads._inside
    assert public_call(checks=False)(lambda A: len(A))(SMALL) == 20


def model(posterior=None, M=5):
    q = fs.Whitened(np.zeros(M), np.eye(M)) if posterior is None else posterior
    return fs.SVGP(
        fs.RBF(1.0, np.ones(2)),
        np.random.default_rng(1).standard_normal((M, 2)),
        q,
        fs.Gaussian(0.1),
    )


X, Y = np.random.default_rng(2).standard_normal((30, 2)), np.zeros(30)
SGPR = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:5], 0.1)
RELAXED = fs.posteriors.Relaxed(np.zeros(5), np.ones(5), 0.1 * np.eye(5))
BLOCKS = fs.records.Blocks(np.eye(5), np.zeros((5, 30)), np.ones(30))
CALLS = {
    "elbo": lambda: fs.elbo(model(), X, Y),
    "by keyword": lambda: fs.elbo(X=X, Y=Y, model=model()),
    "elbo_and_grad": lambda: fs.elbo_and_grad(model(), X, Y),
    "data_term_and_grad": lambda: fs.bounds.data_term_and_grad(model(), X, Y),
    "kl_term_and_grad": lambda: fs.bounds.kl_term_and_grad(model()),
    "elbo_and_grad_from_blocks": lambda: fs.bounds.elbo_and_grad_from_blocks(
        BLOCKS, model().posterior, fs.Gaussian(0.1), Y
    ),
    "collapsed_bound": lambda: fs.collapsed_bound(SGPR, X, Y),
    "collapsed_bound_and_grad": lambda: fs.collapsed_bound_and_grad(SGPR, X, Y),
    "optimal_svgp": lambda: fs.optimal_svgp(SGPR, X, Y),
    "predict_f": lambda: fs.predict_f(model(), X),
    "predict_y": lambda: fs.predict_y(model(), X),
    "predict_log_density": lambda: fs.predict_log_density(model(), X, Y),
    "sample_f": lambda: fs.sample_f(model(), X, rng=0),
    "natural_step": lambda: fs.natural_step(model(), X, Y),
    "newton_schulz_step": lambda: fs.optim.newton_schulz_step(np.eye(5), np.eye(5), 0.5),
    "inverse_factor": lambda: fs.optim.inverse_factor(np.eye(5)),
    "update_inverse_factor": lambda: fs.optim.update_inverse_factor(model(RELAXED)),
    "variance_interval": lambda: fs.optim.variance_interval(
        np.eye(5), np.eye(5), np.ones((5, 3)), np.ones(3), 1.0
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_public_functions_set_threads_once_and_restore_them(name, pool):
    pool.settings.clear()
    CALLS[name]()
    assert pool.settings == [1, 3]


def test_scipy_training_sets_threads_once_and_for_its_last_pass(pool):
    pool.settings.clear()
    fs.fit(SGPR, X, Y + X[:, 0], steps=2)
    assert pool.settings == [1, 3, 1, 3]


def test_sizes_of_arguments():
    wide = np.zeros((400, 2))
    assert _sizes((model(), X, Y, 3.0), False) == (5, 30)
    assert _sizes((model(),), False) == (5, 0)
    assert _sizes((BLOCKS, model().posterior, Y), False) == (5, 30)
    assert _sizes((np.eye(7), np.eye(7), 0.5), False) == (7, 7)
    assert _sizes((model(), wide), True) == (400, 400)
    assert _sizes(("nonsense", None, 2, [1.0]), False) is None
    assert _sizes((fs.replace(model(), inducing=np.float64(3)), X), False) is None


def test_joint_predictions_count_by_their_covariance(pool):
    wide = np.linspace(0, 1, 800).reshape(400, 2)
    for call in (
        lambda: fs.predict_f(model(), wide, full_cov=True),
        lambda: fs.sample_f(model(), wide, rng=0, jitter=1e-3),
    ):
        pool.settings.clear()
        call()
        assert pool.settings == []
    fs.predict_f(model(), wide)
    assert pool.settings == [1, 3]


REAL = """
import numpy as np, fastsvgp as fs
from fastsvgp.kernels.cpu.common import blas_threads as openblas
from fastsvgp.runtime.edge import public_call
blas = openblas.scipys()
# OPENBLAS_NUM_THREADS=1 is kept, whatever the limit
assert blas.get_num_threads() == 1, openblas.facts()
fs.set_num_threads(2)
seen = public_call(checks=False)(lambda A: blas.get_num_threads())
assert seen(np.eye(20)) == seen(np.eye(400)) == 1
blas.set_num_threads(2)
assert seen(np.eye(20)) == 1 and seen(np.eye(400)) == 2 and blas.get_num_threads() == 2
import scipy.linalg
is_same = public_call(checks=False)(lambda A: np.allclose(scipy.linalg.cholesky(A), A))
assert is_same(np.eye(300)) and blas.get_num_threads() == 2
import os
if hasattr(os, "fork"):
    child = os.fork()
    if not child:
        os._exit(seen(np.eye(20)) != 1 or blas.get_num_threads() != 2)
    assert os.waitpid(child, 0)[1] == 0
assert seen(np.eye(20)) == 1 and blas.get_num_threads() == 2
print(openblas.facts())
"""


def test_the_pool_of_scipy():
    if blas_threads.scipys() is None:
        pytest.skip("SciPy's BLAS is not an OpenBLAS that can be reached")
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", REAL], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    version, core, threads = done.stdout.strip().split(", ")
    assert version.startswith("OpenBLAS ") and core.endswith(" kernels") and threads == "2 threads"


def ranges_see(pool, after=lambda: None):
    """Run two ranges whose products use BLAS, and return the threads that each saw."""
    seen = []

    def kernel(start, stop):
        seen.append(pool.count)
        after()

    over_rows(kernel, 2, 1e6, chunks=1, products=True)
    return seen


def test_products_of_parallel_ranges_use_one_thread_each(pool):
    assert pool.count == 3
    assert ranges_see(pool) == [1, 1] and pool.count == 3
    with blas_threads_for((LARGE,)):
        assert ranges_see(pool) == [1, 1] and pool.count == 3
    with blas_threads_for((SMALL,)):
        assert ranges_see(pool) == [1, 1] and pool.count == 1
    assert pool.count == 3


def test_an_error_in_a_range_restores_the_threads(pool):
    def fail():
        raise ValueError

    with pytest.raises(ValueError):
        ranges_see(pool, fail)
    assert pool.count == 3


def test_a_setting_of_another_thread_outlasts_parallel_ranges(pool):
    ranges_see(pool, lambda: pool.set_num_threads(2))
    assert pool.count == 2


@pytest.mark.parametrize("when", ["get", "set"])
def test_an_interrupt_before_parallel_ranges_changes_nothing(pool, when):
    pool.interrupted = when
    with pytest.raises(KeyboardInterrupt):
        ranges_see(pool)
    assert pool.count == 3
