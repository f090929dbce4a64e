"""Each block of a covariance by its name: values, reverse rules, and pairs of inducing inputs."""

import numpy as np
from oracles import covariances as oracle
from support.covariance_problems import NEED, TABLE, assert_same, everything, inputs
from support.looped import looped
from support.numerics import assert_adjoint, exactly, symmetric

from fastsvgp.records import Blocks, leaves, replace_at
from fastsvgp.records.inducing_sets import InducingPair


def pair_of(Z, first):
    return InducingPair(Z[:first].copy(), Z[first:].copy())


def both(pair):
    return np.vstack([pair.Z, pair.O])


@everything
def test_blocks_by_name_are_those_of_matrix_and_diag(rng, name):
    covariance = TABLE[name](rng, 3)
    (Z, X), (Z2, X2) = inputs(rng, 5, 7, 3), inputs(rng, 4, 6, 3)
    assert covariance.num_inducing(Z) == (5,) and covariance.num_columns(Z) == 3
    for ours, theirs in (
        (covariance.Kuu(Z), covariance.matrix(Z)),
        (covariance.Kuu(Z, Z2), covariance.matrix(Z, Z2)),
        (covariance.Kuf(Z, X), covariance.matrix(Z, X)),
        (covariance.kff(X), covariance.diag(X)),
        (covariance.Kff(X), covariance.matrix(X)),
        (covariance.Kff(X, X2), covariance.matrix(X, X2)),
    ):
        np.testing.assert_array_equal(ours, theirs)
    blocks = covariance.blocks(Z, X, full_cov=True)
    for ours, theirs in (
        (blocks.Kuu, covariance.Kuu(Z)),
        (blocks.Kuf, covariance.Kuf(Z, X)),
        (blocks.kff, covariance.kff(X)),
        (blocks.Kff, covariance.Kff(X)),
    ):
        np.testing.assert_array_equal(ours, theirs)


@everything
def test_each_block_reversed(rng, name):
    """Check every field and input by differences of the definition, with other inputs too."""
    covariance = TABLE[name](rng, 3)
    (Z, Z2), (X, X2) = (
        np.split(A, [n]) for A, n in zip(inputs(rng, 9, 13, 3), (5, 7), strict=True)
    )
    paths = [path for path, _, _ in leaves(covariance)]

    def moved(fields):
        result = covariance
        for path, field in zip(paths, fields, strict=True):
            result = replace_at(result, path, field)
        return result

    def check(bars, K_bar, *arguments, of):
        fields = [value for _, _, value in leaves(covariance)]
        field_bars = [value for _, _, value in leaves(bars[0])]

        def f(*values):
            return of(moved(values[: len(fields)]), *values[len(fields) :])

        assert_adjoint(
            f, exactly(*fields, *arguments), (*field_bars, *bars[1:]), K_bar, rng, h=1e-4
        )

    cross, square = oracle.matrix, lambda k, A: oracle.matrix(k, A, A)
    for K_bar, vjp, arguments, of in (
        (symmetric(rng, 5), covariance.Kuu_vjp, (Z,), square),
        (rng.standard_normal((5, 4)), covariance.Kuu_vjp, (Z, Z2), cross),
        (rng.standard_normal((5, 7)), covariance.Kuf_vjp, (Z, X), cross),
        (symmetric(rng, 7), covariance.Kff_vjp, (X,), square),
        (rng.standard_normal((7, 6)), covariance.Kff_vjp, (X, X2), cross),
    ):
        for K in (None, covariance.matrix(*arguments)):
            bars = vjp(K_bar, K, *arguments)
            if len(arguments) == 1:
                assert bars[2] is None
            check(bars[: 1 + len(arguments)], K_bar, *arguments, of=of)
    k_bar = rng.standard_normal(7)
    check(covariance.kff_vjp(k_bar, X), k_bar, X, of=lambda k, X: np.diag(oracle.matrix(k, X, X)))


@everything
def test_each_block_gives_what_is_needed_alone(rng, name):
    covariance = TABLE[name](rng, 3)
    (Z, X), (Z2, X2) = inputs(rng, 5, 7, 3), inputs(rng, 4, 6, 3)
    for vjp, names, K_bar, *arguments in (
        (
            covariance.Kuu_vjp,
            ("covariance", "inducing", "other"),
            rng.standard_normal((5, 4)),
            Z,
            Z2,
        ),
        (covariance.Kuf_vjp, ("covariance", "inducing", "X"), rng.standard_normal((5, 7)), Z, X),
        (covariance.Kff_vjp, ("covariance", "X", "other"), rng.standard_normal((7, 6)), X, X2),
    ):
        whole = vjp(K_bar, None, *arguments)
        for i, need in enumerate(names):
            some = vjp(K_bar, None, *arguments, need=(need,))
            assert [bar is None for bar in some] == [j != i for j in range(3)]
            assert_same(some[i], whole[i])


@everything
@looped("first", [1, 3])
def test_a_pair_of_inducing_inputs_is_stacked(rng, name, first):
    """Kuu and Kuf are those of one stacked array, and their reverse rules return a pair."""
    covariance = TABLE[name](rng, 3)
    (Z, X), (Z2, _) = inputs(rng, 5, 7, 3), inputs(rng, 4, 0, 3)
    pair, other = pair_of(Z, first), pair_of(Z2, 2)
    assert covariance.num_inducing(pair) == (first, 5 - first) and covariance.num_columns(pair) == 3
    np.testing.assert_array_equal(covariance.Kuu(pair), covariance.Kuu(Z))
    np.testing.assert_array_equal(covariance.Kuf(pair, X), covariance.Kuf(Z, X))
    for left, right in ((pair, other), (pair, Z2), (Z, other)):
        np.testing.assert_array_equal(covariance.Kuu(left, right), covariance.Kuu(Z, Z2))
    K_bar = symmetric(rng, 5)
    bars, truth = covariance.Kuu_vjp(K_bar, None, pair), covariance.Kuu_vjp(K_bar, None, Z)
    assert type(bars[1]) is InducingPair and bars[1].Z.shape == (first, 3) and bars[2] is None
    assert_same(both(bars[1]), truth[1])
    assert_same(bars[0], truth[0])
    K_bar = rng.standard_normal((5, 4))
    truth = covariance.Kuu_vjp(K_bar, None, Z, Z2)
    for left, right in ((pair, other), (pair, Z2), (Z, other)):
        bars = covariance.Kuu_vjp(K_bar, None, left, right)
        assert [type(bar) for bar in bars[1:]] == [type(left), type(right)]
        for bar, one in zip(bars, truth, strict=True):
            assert_same(both(bar) if type(bar) is InducingPair else bar, one)
    K_bar = rng.standard_normal((5, 7))
    bars, truth = covariance.Kuf_vjp(K_bar, None, pair, X), covariance.Kuf_vjp(K_bar, None, Z, X)
    for bar, one in zip(bars, truth, strict=True):
        assert_same(both(bar) if type(bar) is InducingPair else bar, one)
    assert covariance.Kuf_vjp(K_bar, None, pair, X, ("covariance",))[1] is None
    bar = Blocks(symmetric(rng, 5), K_bar, rng.standard_normal(7))
    bars = covariance.blocks_vjp(bar, covariance.blocks(pair, X), pair, X, NEED)
    for mine, one in zip(
        bars, covariance.blocks_vjp(bar, covariance.blocks(Z, X), Z, X, NEED), strict=True
    ):
        assert_same(both(mine) if type(mine) is InducingPair else mine, one)
    zero = covariance.blocks_vjp(Blocks(None, None, None), None, pair, X, NEED)[1]
    assert type(zero) is InducingPair and not both(zero).any()
