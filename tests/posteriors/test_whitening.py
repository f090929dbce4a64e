"""The whitened algebra: its forms are one bound, and each is taken where it is the cheapest."""

import numpy as np
import pytest
from support.posterior_problems import ALL, JITTER, ROWS, back_and_forth, bars_of, problem

import fastsvgp as fs
from fastsvgp.kernels.cpu import triangular
from fastsvgp.posteriors import whitening
from fastsvgp.posteriors.base import PriorFactor
from fastsvgp.posteriors.whitening import base, gram


def form_of(posterior, blocks, columns, need):
    work = posterior.start(blocks.Kuu, JITTER, columns, need)
    if isinstance(work, whitening.SmallWhitenedPass):
        return "small"
    return (
        "long"
        if isinstance(work, whitening.LongWhitenedPass)
        else "Gram"
        if isinstance(work, whitening.GramWhitenedPass)
        else "batch"
    )


@pytest.mark.parametrize("P", [None, 2])
def test_the_form_follows_the_need_and_the_length_of_the_batch(rng, P, monkeypatch):
    posterior, blocks, _ = problem(rng, "whitened", 6, 1, P)
    monkeypatch.setattr(gram, "SMALL", 6 * 6 * (6 + 100))
    for columns, form in ((99, "small"), (100, "long")):
        assert form_of(posterior, blocks, columns, ("blocks",)) == (form if P is None else "long")
        assert form_of(posterior, blocks, columns, ("posterior",)) == "Gram"
    monkeypatch.setattr(gram, "SMALL", 0)
    for columns, form in (
        (0, "batch"),
        (9 * (P or 1), "batch"),
        (10 * (P or 1), "Gram"),
        (25 * (P or 1), "long"),
    ):
        assert form_of(posterior, blocks, columns, ("blocks",)) == form
        assert form_of(posterior, blocks, columns, ("posterior",)) == (
            "Gram" if form == "long" else form
        )
        assert form_of(posterior, blocks, columns, ("natural_step",)) == "Gram"


def numbers_of(back):
    leaves = [*fs.records.leaves(back.f), *fs.records.leaves(back.posterior)]
    return [back.kl, back.Kuu, back.Kuf, *(a for _, _, a in leaves)]


@pytest.mark.parametrize("inverse_up_to", [0, 256])
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", ["whitened", "marginal"])
def test_forms_agree(rng, monkeypatch, name, P, inverse_up_to):
    monkeypatch.setattr(triangular, "INVERSE_UP_TO", inverse_up_to)
    small = gram.SMALL
    monkeypatch.setattr(gram, "SMALL", 0)
    posterior, blocks, _ = problem(rng, name, 12, 40, P)
    results = []
    for columns in (0, 20 * (P or 1), 10**6):
        work = posterior.start(blocks.Kuu, JITTER, columns, ALL)
        assert (work.inverse is None) == (inverse_up_to == 0 or columns == 0)
        back = back_and_forth(work, blocks)
        results.append(numbers_of(back))
    monkeypatch.setattr(gram, "SMALL", small)
    for need in (ALL, (*ALL, "natural_step")):
        work = posterior.start(blocks.Kuu, JITTER, 40, need)
        assert isinstance(work, whitening.SmallWhitenedPass) == (P is None)
        results.append(numbers_of(back_and_forth(work, blocks)))
    for others in zip(*results, strict=True):
        for other in others[1:]:
            np.testing.assert_allclose(other, others[0], rtol=1e-9, atol=1e-9)


def test_rows_of_a_prior_are_solved_for_once(rng, monkeypatch):
    """Passes that reuse kept rows do no solves with the batch and no second factorisation."""
    posterior, blocks, _ = problem(rng, "whitened", 6, 20)
    prior, counts = (
        PriorFactor(blocks.Kuu, JITTER),
        {
            "cholesky": 0,
            "multiply_triangular": 0,
            "inverse_triangular": 0,
        },
    )
    for name in counts:
        plain = getattr(base.kernels, name)

        def counted(*args, name=name, plain=plain, **settings):
            counts[name] += 1
            return plain(*args, **settings)

        monkeypatch.setattr(base.kernels, name, counted)
    work = posterior.start_from(prior, 20, ("posterior",))
    kept = work.rows(blocks.Kuf, blocks.kff)
    work.project_rows(kept)
    assert counts == {"cholesky": 1, "multiply_triangular": 2, "inverse_triangular": 1}
    for _ in range(3):
        q = ROWS["whitened"].make(rng, blocks.Kuu)
        work = q.start_from(prior, 20, ("natural_step",))
        f, rows = work.project_rows(kept)
        work.pull(rows, bars_of(f))
    assert counts == {"cholesky": 1, "multiply_triangular": 2 + 3, "inverse_triangular": 1}


@pytest.mark.parametrize("signs", [(-1, -1), (1, 1), (-1, 1), (0, 0)])
def test_a_small_pass_takes_sites_of_either_sign_in_several_runs(rng, monkeypatch, signs):
    """Convex and concave likelihoods, both in one batch; chunks of rows; single cotangents."""
    posterior, blocks, _ = problem(rng, "whitened", 7, 19)
    results = []
    for small in (gram.SMALL, 0):
        monkeypatch.setattr(gram, "SMALL", small)
        for need in (ALL, ("blocks.Kuf",), ("blocks.Kuu",), ("posterior.mean", "blocks.Kuf")):
            work, found = posterior.start(blocks.Kuu, JITTER, 19, need), []
            assert isinstance(work, whitening.SmallWhitenedPass) == (
                small > 0 and need != ("blocks.Kuu",)
            )
            for start, stop in ((0, 11), (11, 11), (11, 19)):
                f, rows = work.project(
                    blocks.Kuf[:, start:stop].copy(), blocks.kff[start:stop].copy()
                )
                weights = np.linspace(*signs, 19)[start:stop] * (
                    1.5 + np.cos(np.arange(start, stop))
                )
                found += [
                    f.mean,
                    f.var,
                    work.pull(rows, fs.replace(f, mean=np.sin(f.mean), var=weights)),
                ]
            bars = work.finish(-0.7)
            found += [bars.Kuu, *(a for _, _, a in fs.records.leaves(bars.posterior))]
            results.append(found)
    for ours, theirs in zip(results[:4], results[4:], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_a_small_pass_counts_variances_that_rounding_has_lowered(rng):
    """Six of nine variances, by a prior variance that is too small there."""
    for dtype in (np.float64, np.float32):
        K = fs.RBF(1.0, 1.0).matrix(rng.standard_normal((9, 3)).astype(dtype))
        q = fs.Whitened(np.zeros(9, dtype), np.asarray(1e-12 * np.eye(9), dtype))
        work = q.start(K, dtype(0.1), 9, ALL)
        kff = np.where(np.arange(9) < 6, 0.5, 1.5).astype(dtype)
        f, _ = work.project(K, kff)
        assert (
            isinstance(work, whitening.SmallWhitenedPass)
            and f.var.dtype == dtype
            and work.clamped == 6
        )
        np.testing.assert_array_equal(f.var[:6], np.finfo(dtype).eps * kff[:6])
        assert f.var[6:].min() > 0.4
