"""SOLVE-GP's posteriors for tests, and blocks for them."""

import numpy as np
import pytest
from support.gp_problems import lower_factor

import fastsvgp as fs

KINDS = [
    fs.posteriors.WhitenedOrthogonal,
    fs.posteriors.Orthogonal,
    fs.posteriors.Decoupled,
    fs.posteriors.DecoupledWeights,
]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def problem(rng, kind, M, M2, N, P=None):
    """A posterior with NaN where values must not be read, and blocks of a joint covariance."""
    size, batch = M + M2 + N, () if P is None else (P,)
    A = rng.standard_normal((size, size + 3)) / np.sqrt(size)
    K = A @ A.T + 0.2 * np.eye(size)
    fields = []
    for m in (M, M2):
        tril = lower_factor(rng, *batch, m, off=0.3 / np.sqrt(m))
        fields += [rng.standard_normal((*batch, m)), tril + np.triu(np.full((m, m), np.nan), 1)]
    u = M + M2
    blocks = fs.records.Blocks(
        K[:u, :u].copy(), K[:u, u:].copy(), K[u:, u:].diagonal().copy(), K[u:, u:].copy()
    )
    return kind(*fields[: len(kind._record_fields)]), blocks


def cleaned(q):
    """Without the NaN."""
    return fs.replace(
        q, **{path: np.tril(value) for path, kind, value in fs.records.leaves(q) if kind == "tril"}
    )
