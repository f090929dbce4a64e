"""Calls from several Python threads, and from a forked child, give the numbers of a single call."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.posteriors import likelihood_form, relaxed_pass


@pytest.fixture(autouse=True)
def two_threads():
    fs.set_num_threads(2)
    yield
    fs.set_num_threads(None)


def problems():
    """Problems of different sizes, large enough for kernels to divide their rows among threads."""
    rng = generator(3)
    found = []
    for M, B, posterior in ((65, 1500, fs.Whitened), (90, 1100, fs.Marginal)):
        q = posterior(mean=rng.standard_normal(M), scale_tril=np.eye(M))
        model = fs.SVGP(
            fs.RBF(1.3, np.full(4, 2.0)),
            rng.standard_normal((M, 4)),
            q,
            fs.likelihoods.BernoulliLogit(),
        )
        found.append((model, rng.standard_normal((B, 4)), rng.integers(0, 2, B)))
    return found


def numbers(problem):
    value, grad = fs.elbo_and_grad(*problem, num_data=1e4)
    return [value, *(bar for _, _, bar in fs.records.leaves(grad))]


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_threads_that_call_at_once_get_what_each_gets_alone():
    work = problems()
    alone = [numbers(p) for p in work]
    with ThreadPoolExecutor(4) as callers:
        for i, found in enumerate(callers.map(numbers, work * 3)):
            assert_same(found, alone[i % 2])


def test_the_number_of_threads_may_change_while_others_compute():
    work, done = problems(), threading.Event()

    def turn():
        count = 0
        while not done.is_set():
            count = count % 4 + 1
            fs.set_num_threads(count)

    turning = threading.Thread(target=turn)
    turning.start()
    try:
        with ThreadPoolExecutor(2) as callers:
            for found in callers.map(numbers, work * 4):
                assert np.isfinite(found[0])
    finally:
        done.set()
        turning.join()


def test_a_forked_child_goes_on():
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork on this platform")
    problem = problems()[0]
    here = numbers(problem)
    with multiprocessing.get_context("fork").Pool(1) as children:
        assert_same(children.apply_async(numbers, (problem,)).get(timeout=60), here)


# --- passes that compute something at its first use -----------------------------------------------


def lazy_problem(kind):
    """Return a model whose pass computes a cached matrix or diagonal, and (module, function)."""
    rng = np.random.default_rng(5)
    M, Z = 12, rng.standard_normal((12, 2))
    variance = np.full(M, 0.5)
    if kind == "LikelihoodForm":
        posterior, place = (
            fs.posteriors.LikelihoodForm(rng.standard_normal(M), variance),
            (
                likelihood_form.kernels,
                "tril_gram",
            ),
        )
    else:
        K = fs.RBF().matrix(Z) + (0.5 + 1e-6) * np.eye(M)
        posterior = fs.posteriors.Relaxed(
            rng.standard_normal(M), variance, np.linalg.cholesky(np.linalg.inv(K))
        )
        place = relaxed_pass, "congruence_diagonal"
    model = fs.SVGP(fs.RBF(), Z, posterior, fs.Gaussian(0.1))
    return (model, rng.standard_normal((30, 2)), rng.standard_normal(30)), place


@pytest.mark.parametrize("kind", ["LikelihoodForm", "Relaxed"])
def test_threads_with_passes_of_their_own_do_not_take_turns(kind, monkeypatch):
    problem, (module, name) = lazy_problem(kind)
    alone, together, plain = numbers(problem), threading.Barrier(2), getattr(module, name)

    def meeting(*args):
        # the barrier breaks if the second thread must wait for the first
        together.wait(timeout=30)
        return plain(*args)

    monkeypatch.setattr(module, name, meeting)
    with ThreadPoolExecutor(2) as callers:
        for found in callers.map(numbers, [problem] * 2):
            assert_same(found, alone)


@pytest.mark.parametrize("kind", ["LikelihoodForm", "Relaxed"])
def test_a_child_forked_while_another_thread_computes(kind, monkeypatch):
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork on this platform")
    problem, (module, name) = lazy_problem(kind)
    alone, plain = numbers(problem), getattr(module, name)
    inside, forked, waits = threading.Event(), threading.Event(), threading.local()

    def pausing(*args):
        if getattr(waits, "here", False):
            inside.set()
            forked.wait(timeout=60)
        return plain(*args)

    def compute():
        waits.here = True
        return numbers(problem)

    monkeypatch.setattr(module, name, pausing)
    with ThreadPoolExecutor(1) as caller:
        busy = caller.submit(compute)
        try:
            assert inside.wait(timeout=60)
            with multiprocessing.get_context("fork").Pool(1) as children:
                assert_same(children.apply_async(numbers, (problem,)).get(timeout=30), alone)
        finally:
            forked.set()
        assert_same(busy.result(), alone)
