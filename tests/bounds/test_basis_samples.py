"""Samples of basis functions: their mean counts, seeds, and draws that are refused."""

import numpy as np
import pytest
from support.weight_problems import BASES, basis_of

import fastsvgp as fs
from fastsvgp.qsgp.bases.samples import num_units


@pytest.mark.parametrize("name", BASES)
def test_draws(rng, name):
    """The mean count of each unit is its multiplicity."""
    basis = basis_of(rng, name, 14)
    units = num_units(basis)
    assert units == (7 if name == "fourier" else 14)
    for scheme in ("stratified", "without", "with"):
        counts = np.zeros(units)
        for seed in range(400):
            sample = fs.qsgp.draw_basis_sample(
                basis, 4, rng=seed, scheme=scheme, pair=seed % 2 == 0
            )
            assert (sample.j is None) == (seed % 2 == 1) and len(sample.i) == 4
            weight = np.full(4, units / 4) if sample.weight_i is None else sample.weight_i
            np.add.at(counts, sample.i, weight)
            if scheme != "with":
                assert (np.diff(sample.i) > 0).all()
            if scheme == "stratified":
                assert weight.sum() == units
        assert np.abs(counts / 400 - 1).max() < 5 * np.sqrt(units / 4 / 400)
    same = [fs.qsgp.draw_basis_sample(basis, 4, rng=5) for _ in range(2)]
    np.testing.assert_array_equal(same[0].i, same[1].i)
    assert list(fs.qsgp.draw_basis_sample(basis, units, scheme="stratified").i) == list(
        range(units)
    )


def test_draws_from_a_seed_and_a_step(rng):
    """A stratified sample is a pure function of both: one unit per block, for i and j."""
    basis = basis_of(rng, "fourier", 4000)
    first, again, later, other = (
        fs.qsgp.draw_basis_sample(basis, 300, rng=pair) for pair in ((7, 5), (7, 5), (7, 6), (8, 5))
    )
    edges = np.arange(301) * 2000 // 300
    for part in (first.i, first.j):
        assert (part >= edges[:-1]).all() and (part < edges[1:]).all()
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first.weight_j, np.diff(edges))
    for different in (first.j, later.i, other.i):
        assert 0.05 < np.mean(first.i == different) < 0.3
    for scheme in ("without", "with"):
        one, two = (
            fs.qsgp.draw_basis_sample(basis, 9, rng=(7, 5), scheme=scheme) for _ in range(2)
        )
        np.testing.assert_array_equal(one.j, two.j)


def test_bad_draws(rng):
    basis = basis_of(rng, "fourier", 6)
    for call, error, said in (
        *(
            (
                lambda pair=pair: fs.qsgp.draw_basis_sample(basis, 2, rng=pair),
                ValueError,
                r"`rng` as a pair must be \(seed, step\)",
            )
            for pair in ((1,), (1, 2, 3), (-1, 2), (1, 2**64), (1.0, 2), (True, 2))
        ),
        (
            lambda: fs.qsgp.draw_basis_sample(basis, 4),
            ValueError,
            "`size` is 4, but the basis has 3 units",
        ),
        (lambda: fs.qsgp.draw_basis_sample(basis, 0), ValueError, "`size`"),
        (
            lambda: fs.qsgp.draw_basis_sample(basis, 2, scheme="some"),
            ValueError,
            "`scheme` must be one of 'stratified'",
        ),
        (
            lambda: fs.qsgp.draw_basis_sample(fs.RBF(), 2),
            TypeError,
            "`basis` must be a fastsvgp.qsgp.RandomFourier",
        ),
        (
            lambda: fs.qsgp.draw_basis_sample(fs.qsgp.RandomFourier, 2),
            TypeError,
            "`basis` must be .*, got RandomFourier, a class",
        ),
        (lambda: fs.qsgp.draw_basis_sample(basis, 2, pair=1), TypeError, "`pair`"),
    ):
        with pytest.raises(error, match=said):
            call()
