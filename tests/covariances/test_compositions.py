"""Sums and products of covariances: operators, numbers, parts and their checks."""

import numpy as np
import pytest
from support.covariance_problems import cast

from fastsvgp.covariances import RBF, Constant, Linear, Matern12, Product, Sum
from fastsvgp.records import leaves, tree_map


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
        (0, ValueError, r"must be positive, got 0; .* a list by fastsvgp.covariances.Sum\(parts\)"),
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
