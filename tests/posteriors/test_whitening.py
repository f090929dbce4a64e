"""The whitened algebra: its three forms are one bound, and each is taken where it is the cheapest."""

import numpy as np
import pytest
from posterior_problems import ALL, JITTER, ROWS, back_and_forth, bars_of, problem

import fastsvgp as fs
from fastsvgp.posteriors import whitening
from fastsvgp.posteriors.base import Prior


def form_of(posterior, blocks, columns, need):
    work = posterior.start(blocks.Kuu, JITTER, columns, need)
    return "long" if isinstance(work, whitening.LongWhitening) else "Gram" if work.gram_form else "batch"


@pytest.mark.parametrize("P", [None, 2])
def test_the_form_follows_the_need_and_the_length_of_the_batch(rng, P):
    posterior, blocks, _ = problem(rng, "whitened", 6, 1, P)
    for columns, form in ((0, "batch"), (9 * (P or 1), "batch"), (10 * (P or 1), "Gram"), (25 * (P or 1), "long")):
        assert form_of(posterior, blocks, columns, ("blocks",)) == form
        assert form_of(posterior, blocks, columns, ("posterior",)) == ("Gram" if form == "long" else form)
        assert form_of(posterior, blocks, columns, ("natural_step",)) == "Gram"


@pytest.mark.parametrize("inverse_up_to", [0, 256])
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", ["whitened", "marginal"])
def test_three_forms_agree(rng, monkeypatch, name, P, inverse_up_to):
    monkeypatch.setattr(whitening, "INVERSE_UP_TO", inverse_up_to)
    posterior, blocks, _ = problem(rng, name, 12, 40, P)
    results = []
    for columns in (0, 20 * (P or 1), 10**6):
        work = posterior.start(blocks.Kuu, JITTER, columns, ALL)
        assert (work.inverse is None) == (inverse_up_to == 0 or columns == 0)
        back = back_and_forth(work, blocks)
        leaves = [*fs.leaves(back.f), *fs.leaves(back.posterior)]
        results.append([back.kl, back.Kuu, back.Kuf, *(a for _, _, a in leaves)])
    for others in zip(*results, strict=True):
        for other in others[1:]:
            np.testing.assert_allclose(other, others[0], rtol=1e-9, atol=1e-9)


def test_rows_of_a_prior_are_solved_for_once(rng, monkeypatch):
    """Passes that take kept rows up again do no solve with the batch, and no second factorisation."""
    posterior, blocks, _ = problem(rng, "whitened", 6, 20)
    prior, counts = Prior(blocks.Kuu, JITTER), {"cholesky": 0, "multiply_triangular": 0, "inverse_triangular": 0}
    for name in counts:
        plain = getattr(whitening.kernels, name)

        def counted(*args, name=name, plain=plain, **settings):
            counts[name] += 1
            return plain(*args, **settings)

        monkeypatch.setattr(whitening.kernels, name, counted)
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
