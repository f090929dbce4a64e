"""Contract of every covariance, over one table.

A new covariance adds one row and, if needed, its definition to the oracles."""

import numpy as np
import pytest
from oracles import covariances as oracle
from support.numerics import assert_adjoint, assert_typically_as_accurate_as, exactly

from fastsvgp import kernels
from fastsvgp.covariances import RBF, Constant, Linear, Matern12, Matern32, Matern52, Product, Sum
from fastsvgp.records import Blocks, is_record, leaves, matches, replace, replace_at, tree_map
from fastsvgp.records.inducing_sets import InducingPair

# name: a covariance for inputs with D columns
TABLE = {
    "rbf": lambda rng, D: RBF(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "rbf shared": lambda rng, D: RBF(variance=0.8, lengthscales=1.1 * np.sqrt(D)),
    "matern12": lambda rng, D: Matern12(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern32": lambda rng, D: Matern32(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern52": lambda rng, D: Matern52(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern52 defaults": lambda rng, D: Matern52(),
    "linear": lambda rng, D: Linear(rng.uniform(0.5, 2.0, D) / D),
    "linear shared": lambda rng, D: Linear(0.7),
    "constant": lambda rng, D: Constant(0.6),
    "sum": (
        lambda rng, D: (
            RBF(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D))
            + Linear(rng.uniform(0.5, 2.0, D))
            + Constant(0.2)
        )
    ),
    "product": lambda rng, D: RBF(1.3, 2.0 * np.sqrt(D)) * Linear(rng.uniform(0.5, 2.0, D)),
    "three factors": (
        lambda rng, D: Matern32(0.9, np.sqrt(D)) * Constant(1.5) * Matern52(0.7, np.full(D, 2.0))
    ),
    "nested": (
        lambda rng, D: (
            (RBF(0.5, 1.5) + Constant(0.3) * Matern12(1.1, np.sqrt(D))) * (Linear(0.4) + Matern32())
        )
    ),
    "sum of one": lambda rng, D: Sum((Product((Matern52(1.2, np.sqrt(D)),)),)),
}
NEED = ("covariance", "inducing", "X")
DIMENSIONS = (1, 3, 8, 40)
everything = pytest.mark.parametrize("name", TABLE)


def cast(covariance, dtype):
    return tree_map(lambda leaf: np.asarray(leaf, dtype)[()], covariance)


def inputs(rng, N1, N2, D, dtype=np.float64):
    """Inputs whose pairs keep a distance, so that no difference is taken across a kink."""
    X = rng.permutation(N1 + N2)[:, None] * 0.1 * rng.choice([-1.0, 1.0], D) + rng.uniform(
        -0.03, 0.03, (N1 + N2, D)
    )
    X -= X.mean(0)
    return X[:N1].astype(dtype), X[N1:].astype(dtype)


def symmetric(rng, N):
    A = rng.standard_normal((N, N))
    return A + A.T


def assert_same(a, b):
    """Check that two cotangents agree, records or arrays."""
    for u, v in zip(
        *([w for _, _, w in leaves(x)] if is_record(x) else [x] for x in (a, b)), strict=True
    ):
        np.testing.assert_allclose(u, v, rtol=1e-10, atol=1e-12)


@everything
@pytest.mark.parametrize("D", DIMENSIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_matrix_and_diag(rng, name, D, dtype):
    covariance = cast(TABLE[name](rng, D), dtype)
    exact = cast(covariance, np.longdouble)
    for N1, N2 in ((17, 65), (1, 3), (3, 1)):
        fast, plain, truth = [], [], []
        for X1, X2 in [inputs(rng, N1, N2, D, dtype) for _ in range(15)]:
            K = covariance.matrix(X1, X2)
            assert K.dtype == dtype and K.shape == (N1, N2)
            fast.append(K)
            plain.append(oracle.matrix(covariance, X1, X2))
            truth.append(oracle.matrix(exact, *exactly(X1, X2)))
        assert_typically_as_accurate_as(fast, plain, truth, dtype=dtype)
    K = covariance.matrix(X1 := inputs(rng, 65, 0, D, dtype)[0])
    np.testing.assert_array_equal(K, K.T)
    eps = np.finfo(dtype).eps
    np.testing.assert_allclose(
        K, oracle.matrix(covariance, X1, X1), rtol=0, atol=40 * eps * K.max()
    )
    k = covariance.diag(X1)
    assert k.dtype == dtype
    np.testing.assert_allclose(k, np.diag(K), rtol=8 * eps)


@everything
@pytest.mark.parametrize("D", DIMENSIONS)
def test_blocks_reversed(rng, name, D):
    """Check each field and input along a random direction by differences of the definition."""
    covariance = TABLE[name](rng, D)
    Z, X = inputs(rng, 17, 65, D)
    blocks = covariance.blocks(Z, X, full_cov=True)
    bar = Blocks(
        symmetric(rng, 17),
        rng.standard_normal((17, 65)),
        rng.standard_normal(65),
        symmetric(rng, 65),
    )
    kept = tree_map(np.copy, bar)
    covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    for (_, _, a), (_, _, b) in zip(leaves(bar), leaves(kept), strict=True):
        np.testing.assert_array_equal(a, b)  # cotangents are not overwritten
    assert type(covariance_bar) is type(covariance)
    assert [np.shape(v) for _, _, v in leaves(covariance_bar)] == [
        np.shape(v) for _, _, v in leaves(covariance)
    ]
    pairs = zip(leaves(covariance), leaves(covariance_bar), strict=True)
    paths, fields, field_bars = zip(
        *((path, a, b) for (path, _, a), (_, _, b) in pairs), strict=True
    )

    def together(*parts):
        return np.concatenate([np.ravel(part) for part in parts])

    def f(*arguments):
        *fields, Z, X = arguments
        moved = covariance
        for path, field in zip(paths, fields, strict=True):
            moved = replace_at(moved, path, field)
        K = oracle.matrix(moved, X, X)
        return together(oracle.matrix(moved, Z, Z), oracle.matrix(moved, Z, X), np.diag(K), K)

    y_bar = together(bar.Kuu, bar.Kuf, bar.kff, bar.Kff)
    # far from the kinks
    assert_adjoint(f, exactly(*fields, Z, X), (*field_bars, Z_bar, X_bar), y_bar, rng, h=1e-4)


@everything
def test_cotangents_are_none_unless_needed(rng, name):
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 7, 3)
    blocks = covariance.blocks(Z, X)
    assert blocks.Kff is None
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    complete = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    for i, need in enumerate(NEED):
        results = covariance.blocks_vjp(bar, blocks, Z, X, need=(need,))
        assert [r is None for r in results] == [j != i for j in range(3)]
        assert_same(results[i], complete[i])
    nothing = Blocks(None, None, None)
    alone = [replace(nothing, **{part: getattr(bar, part)}) for part in ("Kuu", "Kuf", "kff")]
    parts = [covariance.blocks_vjp(one, blocks, Z, X, NEED) for one in alone]
    assert_same(tree_map(lambda *v: sum(v), *(part[0] for part in parts)), complete[0])
    for i in (1, 2):
        assert_same(sum(part[i] for part in parts), complete[i])
    zero = covariance.blocks_vjp(nothing, blocks, Z, X, NEED)
    assert_same(zero[0], tree_map(lambda v: 0 * v, covariance))
    assert not zero[1].any() and not zero[2].any()


@everything
def test_single_fields(rng, name):
    """A dotted name gives that field, or all fields below it, and requested inputs."""
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 7, 3)
    blocks = covariance.blocks(Z, X)
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    complete, Z_bar, _ = covariance.blocks_vjp(bar, blocks, Z, X)
    complete = {path: value for path, _, value in leaves(complete)}
    above = {path.rsplit(".", 1)[0] for path in complete if "." in path} | (
        {"parts"} if hasattr(covariance, "parts") else set()
    )
    for field in (*complete, *above):
        for more in ((), ("inducing",)):
            covariance_bar, some_Z_bar, X_bar = covariance.blocks_vjp(
                bar, blocks, Z, X, (f"covariance.{field}", *more)
            )
            got = {path: value for path, _, value in leaves(covariance_bar) if value is not None}
            assert set(got) == {path for path in complete if matches(path, (field,))}
            for path, value in got.items():
                np.testing.assert_allclose(
                    value, complete[path], rtol=1e-10, atol=1e-12, err_msg=path
                )
            assert X_bar is None and (some_Z_bar is None) == (not more)
            if more:
                assert_same(some_Z_bar, Z_bar)


@pytest.fixture
def asked(monkeypatch):
    """Record ``need`` of each call of the reverse kernels of stationary and linear covariances."""
    calls = []
    for name in ("stationary_vjp", "inner_vjp"):
        plain = getattr(kernels, name)

        def spy(*args, need, plain=plain, **kwargs):
            calls.append(set(need))
            return plain(*args, need=need, **kwargs)

        monkeypatch.setattr(kernels, name, spy)
    return calls


@pytest.mark.parametrize(
    "need, kernels_do",
    [
        (("covariance.parts.0.parts.0.variance",), [{"variance"}]),
        (
            ("covariance.parts.0.parts.0.lengthscales", "inducing"),
            [{"X1", "lengthscales"}, {"X1"}, {"X1"}],
        ),
        (("covariance.parts.0.parts.1",), [{"variance", "lengthscales"}]),
        (
            ("covariance.parts.1.variance", "covariance.parts.0.parts.1.variance"),
            [{"variance"}, {"weights"}],
        ),
        (("covariance.parts.2",), []),
        (("inducing",), [{"X1"}, {"X1"}, {"X1"}]),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_kernels_are_asked_for_nothing_else(rng, asked, need, kernels_do):
    covariance = RBF(1.1, np.full(3, 2.0)) * Matern52(0.8, 1.5) + Linear(0.5) + Constant(0.2)
    Z, X = inputs(rng, 5, 7, 3)
    bar = Blocks(symmetric(rng, 5), rng.standard_normal((5, 7)), rng.standard_normal(7))
    covariance.blocks_vjp(bar, covariance.blocks(Z, X), Z, X, need)
    # once for Kuu, once for Kuf
    assert sorted(map(sorted, asked)) == sorted(map(sorted, 2 * kernels_do))


@everything
def test_matrix_reversed_without_the_matrix(rng, name):
    covariance = TABLE[name](rng, 3)
    X1, X2 = inputs(rng, 5, 7, 3)
    K, K_bar = covariance.matrix(X1, X2), rng.standard_normal((5, 7))
    for a, b in zip(
        covariance.matrix_vjp(K_bar, None, X1, X2),
        covariance.matrix_vjp(K_bar, K, X1, X2),
        strict=True,
    ):
        assert_same(a, b)


# --- blocks by name -----------------------------------------------------------------------------


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
@pytest.mark.parametrize("first", [1, 3])
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


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gradients_have_the_dtype_of_the_arrays(rng, name, dtype):
    covariance = cast(TABLE[name](rng, 3), dtype)
    Z, X = inputs(rng, 5, 7, 3, dtype)
    bar = Blocks(symmetric(rng, 5).astype(dtype), np.ones((5, 7), dtype), np.ones(7, dtype))
    covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(
        bar, covariance.blocks(Z, X), Z, X, need=NEED
    )
    assert Z_bar.dtype == dtype and X_bar.dtype == dtype
    assert all(v.dtype == dtype for _, _, v in leaves(covariance_bar))


@pytest.mark.parametrize("D", [2, 50])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", [RBF, Matern12, Matern32, Matern52])
def test_lengthscales_may_be_tiny(rng, family, dtype, D):
    """No overflow (a warning would be an error), and only equal points are correlated."""
    Z, X = inputs(rng, 5, 7, D, dtype)
    X[3] = Z[2]
    bar = Blocks(
        symmetric(rng, 5).astype(dtype),
        rng.standard_normal((5, 7)).astype(dtype),
        np.ones(7, dtype),
    )
    for lengthscales in (
        np.finfo(dtype).tiny,
        np.finfo(dtype).tiny ** 0.5,
        np.finfo(dtype).smallest_subnormal,
    ):
        for shape in ((), (D,)):
            covariance = family(dtype(1.5), np.full(shape, lengthscales, dtype)[()])
            blocks = covariance.blocks(Z, X)
            np.testing.assert_array_equal(blocks.Kuu, dtype(1.5) * np.eye(5, dtype=dtype))
            np.testing.assert_array_equal(
                blocks.Kuf, dtype(1.5) * (np.arange(5)[:, None] == 2) * (np.arange(7) == 3)
            )
            covariance_bar, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, NEED)
            expected = np.trace(bar.Kuu, dtype=float) + bar.Kuf[2, 3] + 7
            np.testing.assert_allclose(covariance_bar.variance, expected, rtol=1e-5)
            assert not np.any(covariance_bar.lengthscales) and not Z_bar.any() and not X_bar.any()


@everything
def test_empty_batch(rng, name):
    covariance = TABLE[name](rng, 3)
    Z, X = inputs(rng, 5, 0, 3)
    blocks = covariance.blocks(Z, X, full_cov=True)
    assert blocks.Kuf.shape == (5, 0) and blocks.kff.shape == (0,) and blocks.Kff.shape == (0, 0)
    bar = Blocks(symmetric(rng, 5), np.zeros((5, 0)), np.zeros(0))
    _, Z_bar, X_bar = covariance.blocks_vjp(bar, blocks, Z, X, need=NEED)
    assert Z_bar.shape == (5, 3) and X_bar.shape == (0, 3)


def test_operators_flatten_like_with_like():
    a, b, c, d = RBF(), Linear(), Constant(), Matern12()
    assert (a + b + c).parts == (a, b, c) and (a + (b + c)).parts == (a, b, c)
    assert (a * b * c).parts == (a, b, c)
    mixed = a * b + c * d
    assert type(mixed) is Sum and [type(part) for part in mixed.parts] == [Product, Product]
    with pytest.raises(TypeError, match="unsupported operand"):
        a + "1.0"
    with pytest.raises(TypeError):
        [a] * b


@pytest.mark.parametrize(
    "two", [2, 2.0, np.float64(2.0), np.float32(2.0), np.int64(2), np.array(2.0)], ids=repr
)
def test_a_number_beside_a_covariance_is_a_constant(rng, two):
    a, X = RBF(0.7, 1.3), rng.standard_normal((5, 2))
    for found, kind, order in (
        (two * a, Product, (Constant, RBF)),
        (a * two, Product, (RBF, Constant)),
        (two + a, Sum, (Constant, RBF)),
        (a + two, Sum, (RBF, Constant)),
        (two * a * two, Product, (Constant, RBF, Constant)),
        (two + (a + two), Sum, (Constant, RBF, Constant)),
    ):
        assert type(found) is kind and tuple(map(type, found.parts)) == order
        constant, *_ = (part for part in found.parts if type(part) is Constant)
        # a Python number: float32 models stay in float32
        assert type(constant.variance) is float and constant.variance == 2.0
    np.testing.assert_allclose((two * a + 0.5).matrix(X), 2 * a.matrix(X) + 0.5, rtol=1e-14)
    assert (two * cast(a, np.float32)).matrix(X.astype(np.float32)).dtype == np.float32
    assert [type(part) for part in (1.0 + two * a * Linear()).parts] == [Constant, Product]


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (-1.0, ValueError, "`variance of the Constant` must be positive, got -1"),
        (0, ValueError, r"must be positive, got 0; .* a list by fastsvgp.Sum\(parts\)"),
        (np.float64(-2.0), ValueError, "must be positive, got -2"),
        (np.nan, ValueError, "`variance of the Constant` must be finite, got nan"),
        (np.float32(np.inf), ValueError, "must be finite, got inf"),
        (True, TypeError, "must be a number, got True"),
        (1j, TypeError, "must be a number, got 1j"),
        (np.ones(3), TypeError, r"must be a number, got an array of shape \(3,\)"),
        (np.ones((2, 2)), TypeError, r"must be a number, got an array of shape \(2, 2\)"),
    ],
)
def test_invalid_constants_beside_covariances_are_refused(wrong, error, message):
    for combine in (
        lambda a: a + wrong,
        lambda a: wrong + a,
        lambda a: a * wrong,
        lambda a: wrong * a,
    ):
        with pytest.raises(error, match=message):
            combine(RBF())


def test_parts_may_come_as_a_list():
    a, b = RBF(), Linear()
    assert Sum([a, b]).parts == (a, b) and Product(parts=[a, b]).parts == (a, b)
    with pytest.raises(ValueError, match="Sum: `parts` is empty"):
        Sum([]).check_dim(2)


def test_check_dim_names_field_shape_and_columns():
    RBF(1.0, np.ones(3)).check_dim(3)
    RBF().check_dim(7)
    with pytest.raises(
        ValueError,
        match=r"RBF: `lengthscales` has shape \(2,\), but the inputs have D = 3 columns.*\(3,\)",
    ):
        RBF(1.0, np.ones(2)).check_dim(3)
    with pytest.raises(ValueError, match=r"RBF: `lengthscales` has shape \(1, 3\)"):
        RBF(1.0, np.ones((1, 3))).check_dim(3)
    with pytest.raises(ValueError, match=r"RBF: `variance` has shape \(3,\).*give it shape \(\)"):
        RBF(np.ones(3)).check_dim(3)
    with pytest.raises(
        ValueError, match=r"Sum.parts.1: Product.parts.0: Linear: `variance` has shape \(4,\)"
    ):
        (RBF() + Linear(np.ones(4)) * Constant()).check_dim(3)


def test_compositions_have_a_depth(rng):
    X, covariance = rng.standard_normal((3, 1)), RBF()
    for _ in range(25):
        covariance = Sum((Product((covariance,)),))
    np.testing.assert_array_equal(covariance.matrix(X), RBF().matrix(X))
    assert len(list(leaves(tree_map(lambda v: 2 * v, covariance)))) == 2
    with pytest.raises(ValueError, match="Sum: `parts` are nested more than 50 deep"):
        Sum((covariance,))


def test_parts_are_covariances():
    with pytest.raises(
        TypeError,
        match=r"Sum.parts.1: `parts` must be covariances such as fastsvgp.RBF\(...\), got float",
    ):
        Sum((RBF(), 1.0)).check_dim(2)
