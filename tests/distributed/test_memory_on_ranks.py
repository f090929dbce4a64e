"""A rank takes the memory of a step on its rows, and two buffers; data are not copied."""

import gc
import tracemalloc
import weakref
from functools import partial

import numpy as np
import pytest
from support.peak_memory import peak_numbers
from support.rank_models import layers_to_train

import fastsvgp as fs
from fastsvgp.distributed.reduce import RowPartition
from fastsvgp.layers.draws import RUN, hidden_draws

M, N, D = 150, 6000, 4


class First:
    """Rank 0 of two ranks with equal data, without the memory of the other rank."""

    rank, size = 0, 2

    def __init__(self, rows):
        self.rows, self._tried = rows, False

    def sum(self, buffer):
        # at first the ranks' numbers are summed: 1, rank, rank^2; two are the counts of both ranks
        other = buffer[::-1].copy() if buffer.size == self.size else buffer
        buffer += other if self._tried else [1, 1, 1, 0, 0]
        self._tried = True

    def broadcast(self, buffer):
        pass


@pytest.mark.parametrize("rows", ["all", "own"])
@pytest.mark.parametrize("kind", ["svgp", "sgpr", "two sets", "deep"])
def test_step_takes_memory_of_its_rows_and_two_buffers(rng, rows, kind):
    X, Y = rng.standard_normal((N, D)), rng.standard_normal(N)
    covariance, Z, q = (
        fs.RBF(1.0, np.ones(D)),
        rng.standard_normal((M, D)),
        fs.Whitened(np.zeros(M), np.eye(M)),
    )
    half, group, triangle = slice(0, N // 2), First(rows), M * (M + 1) // 2
    given = half if rows == "own" else slice(None)
    if kind == "svgp":
        model, bound = fs.SVGP(covariance, Z, q, fs.Gaussian(0.1)), fs.elbo_and_grad
        more = 0
    elif kind == "deep":
        hidden = fs.layers.Layer(
            covariance, Z, fs.Whitened(np.zeros((2, M)), np.stack([np.eye(M)] * 2))
        )
        top = fs.layers.Layer(fs.RBF(1.0, np.ones(2)), Z[:, :2].copy(), q)
        model, bound = fs.DeepGP((hidden, top), fs.Gaussian(0.1)), partial(fs.elbo_and_grad, rng=0)
        more = 2 * RUN  # rows of draws that are of others
    elif kind == "two sets":
        model, bound = (
            fs.bounds.OrthogonalSGPR(
                covariance, fs.posteriors.InducingPair(Z[: M // 2], Z[M // 2 :]), 0.1
            ),
            fs.collapsed_bound_and_grad,
        )
        more = triangle + M + 4  # the sums of the first all-reduce
    else:
        model, bound = fs.SGPR(covariance, Z, 0.1), fs.collapsed_bound_and_grad
        more = triangle + M + 4  # the sums of the first all-reduce
    with fs.set_num_threads(1):  # parallel ranges of rows overlap by chance
        alone = peak_numbers(lambda: bound(model, X[half], Y[half]))
        found = peak_numbers(lambda: bound(model, X[given], Y[given], group=group))
    gradient = 1 + sum(
        np.size(value) if kind != "tril" else triangle * (np.size(value) // M**2)
        for _, kind, value in fs.records.leaves(model)
        if value is not None
    )
    assert found < alone + 2 * (gradient + more) + 4000


def test_group_is_freed_with_its_last_reference(rng):
    """Its buffers are freed with it."""
    model = fs.SVGP(
        fs.RBF(1.0, 1.0),
        rng.standard_normal((5, D)),
        fs.Whitened(np.zeros(5), np.eye(5)),
        fs.Gaussian(0.1),
    )
    X, Y = rng.standard_normal((9, D)), rng.standard_normal(9)
    group = First("all")
    fs.elbo_and_grad(model, X, Y, group=group)
    held = weakref.ref(group)
    del group
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_draws_of_a_rank_take_the_memory_of_its_rows(rng, samples):
    model, _, _ = layers_to_train(rng)
    X, rows = np.zeros((40_000, 2)), slice(9_990, 10_010)
    (all_of_them,) = hidden_draws(model, X, None, samples, 7)
    for chosen in (rows, np.r_[5, rows, 30_000]):
        own = X[chosen]
        tracemalloc.start()
        try:
            (found,) = hidden_draws(model, own, None, samples, 7, RowPartition(len(X), chosen))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        np.testing.assert_array_equal(found, all_of_them[:, chosen])
        assert peak < 4 * 4096 * 2 * 8  # some chunks of rows, not all 40,000
