"""Outputs with common cotangents share products: equal to those of each output."""

import numpy as np
import pytest
from support.fit_problems import cast
from support.posterior_problems import ALL, JITTER, problem

import fastsvgp as fs
from fastsvgp.kernels.cpu import triangular
from fastsvgp.posteriors.whitening import common_cotangents
from fastsvgp.posteriors.whitening.common_cotangents import common_row
from fastsvgp.records import Marginals

N, M = 31, 7
NEEDS = [ALL, ("posterior",), ("blocks.Kuf",), ("blocks.Kuu",), ("posterior.mean", "blocks")]


def weights(rng, kind, P, N):
    equal = -rng.uniform(0.5, 2.0, N)
    constant = rng.uniform(-2.0, -0.5, P)
    return {
        "all": np.full((P, N), -0.7),
        "rows": np.tile(equal, (P, 1)),
        "constant": np.repeat(constant[:, None], N, axis=1),
        "own": rng.standard_normal((P, N)),
    }[kind]


def found(posterior, blocks, need, columns, parts):
    """Return what a pass gives for parts of the rows with these cotangents (a, b)."""
    work = posterior.start(blocks.Kuu, JITTER, columns, need)
    results, start = [], 0
    for a, b in parts:
        rows = slice(start, start := start + a.shape[1])
        f, saved = work.project(blocks.Kuf[:, rows].copy(), blocks.kff[rows].copy())
        results.append(work.pull(saved, Marginals(a, b)))
    if "natural_step" in need:
        return results + [leaf for _, _, leaf in fs.records.leaves(work.natural_step(0.5))]
    bars = work.finish(-0.7)
    return [*results, bars.Kuu, *(leaf for _, _, leaf in fs.records.leaves(bars.posterior))]


@pytest.mark.parametrize("kinds", [
    ("all",), ("rows",), ("constant",), ("all", "rows"), ("constant", "all", "constant"),
    ("all", "own"), ("own", "constant"), ("own", "rows", "own"),
])  # fmt: skip
@pytest.mark.parametrize("name", ["whitened", "marginal", "absorbed-sites", "dual-sites"])
def test_sums_are_those_of_each_output(rng, monkeypatch, name, kinds):
    posterior, blocks, _ = problem(rng, name, M, N, 3)
    edges = np.linspace(0, N, len(kinds) + 1).astype(int)
    parts = [
        (rng.standard_normal((3, stop - start)), weights(rng, kind, 3, stop - start))
        for kind, start, stop in zip(kinds, edges, edges[1:], strict=False)
    ]
    natural = () if "own" in kinds else (("natural_step",),)
    monkeypatch.setattr(triangular, "INVERSE_UP_TO", 0)
    for need in (*NEEDS, *natural):
        for columns in (N, 40, 10**6):  # the batch, the Gram and the long form
            results = []
            for least in (np.inf, 0):
                monkeypatch.setattr(common_cotangents, "LEAST", least)
                results.append(found(posterior, blocks, need, columns, parts))
            for theirs, ours in zip(*results, strict=True):
                assert (theirs is None) == (ours is None)
                if ours is not None:
                    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_rows_are_common_only_to_the_bit(rng, monkeypatch):
    monkeypatch.setattr(common_cotangents, "LEAST", 0)
    for kind in ("all", "rows", "constant"):
        b = weights(rng, kind, 4, 5)
        c, w = common_row(b, M)
        np.testing.assert_array_equal(c[:, None] * w, b)
    b[1, 2] = np.nextafter(b[1, 2], 0)
    assert common_row(b, M) is None
    assert common_row(np.full((4, 5), np.nan), M) is None
    assert common_row(np.empty((4, 0)), M) is None
    assert common_row(b[:2], M) is None  # two outputs gain nothing


def test_small_products_are_those_of_each_output():
    assert common_row(np.ones((3, 100)), 20) is None
    assert common_row(np.ones((3, 200)), 100) is not None


@pytest.mark.parametrize("N", [20, 400])
def test_sums_of_large_matrices_are_those_of_each_output(rng, monkeypatch, N):
    """By panels, which leave scratch above diagonals: in the batch and the Gram form."""
    M = 140
    posterior, blocks, _ = problem(rng, "whitened", M, N, 3)
    parts = [(rng.standard_normal((3, N)), weights(rng, "constant", 3, N))]
    for need in (ALL, ("natural_step",)):
        results = []
        for least in (np.inf, 0):
            monkeypatch.setattr(common_cotangents, "LEAST", least)
            results.append(found(posterior, blocks, need, N, parts))
        for theirs, ours in zip(*results, strict=True):
            if ours is not None:
                scale = max(1.0, np.abs(theirs).max())
                np.testing.assert_allclose(ours / scale, theirs / scale, atol=1e-8)


@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-12), ("float32", 2e-4)])
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("M", [7, 150])
def test_a_bound_of_many_outputs(rng, monkeypatch, dtype, tolerance, by_row, M):
    """Weights of rows, and means, inputs and jitter, through the public function.

    At M = 150 products go by panels, and leave scratch above diagonals.
    """
    P, D = 4, 2
    q = fs.Whitened(rng.standard_normal((P, M)), np.tril(rng.standard_normal((P, M, M)), -1))
    q.scale_tril[:, range(M), range(M)] = rng.uniform(0.5, 1.0, (P, M))
    model = fs.SVGP(
        fs.Matern52(0.9, np.ones(D)), 2 * rng.standard_normal((M, D)), q, fs.Gaussian(0.3),
        fs.means.ConstantMean(np.zeros(P)),
    )  # fmt: skip
    X, Y = rng.standard_normal((50, D)), rng.standard_normal((50, P))
    model, X, Y = cast(model, dtype), X.astype(dtype), Y.astype(dtype)
    options = {"weights": rng.uniform(0.5, 2.0, 50)} if by_row else {}
    results = []
    for least in (np.inf, 0):
        monkeypatch.setattr(common_cotangents, "LEAST", least)
        value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, jitter=1e-2, **options)
        results.append([value, X_bar, *(leaf for _, _, leaf in fs.records.leaves(grad))])
    for theirs, ours in zip(*results, strict=True):
        scale = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=tolerance)
