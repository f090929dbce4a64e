"""Flat-vector adapter: both directions, pullback, fixed fields, messages."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from support.numerics import five_point

from fastsvgp.optim.flat import free_paths, ravel
from fastsvgp.records import leaf, leaves, record, replace_at, static


@record
class Part:
    variance: Any = leaf("positive")
    lengthscales: Any = leaf("positive")


@record
class Parts:
    parts: Any


@record
class Toy:
    covariance: Any
    inducing: Any = leaf()
    mean: Any = leaf()
    scale_tril: Any = leaf("tril")
    offset: Any = leaf(default=None)
    flavour: Any = static(default="plain")


def toy(rng, rows=3, batch=(), dtype=np.float64, python=False):
    variance = 0.7 if python else dtype(0.7)
    tril = np.tril(rng.standard_normal(batch + (rows, rows)))
    tril[..., np.arange(rows), np.arange(rows)] = rng.uniform(0.1, 3, batch + (rows,))
    tril[..., *np.triu_indices(rows, 1)] = np.nan
    parts = (Part(variance, rng.uniform(0.2, 2, 2).astype(dtype)), Part(1.5, 2.5))
    return Toy(
        Parts(parts),
        rng.standard_normal((rows, 2)).astype(dtype),
        rng.standard_normal(batch + (rows,)).astype(dtype),
        tril.astype(dtype),
        flavour="odd",
    )


def same(a, b, rtol=0):
    for (path, kind, x), (other, _, y) in zip(leaves(a), leaves(b), strict=True):
        assert path == other
        if x is None:
            assert y is None
            continue
        assert type(x) is type(y) and np.shape(x) == np.shape(y), path
        if kind == "tril":
            assert not np.triu(y, 1).any()
            x = np.tril(x)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol, err_msg=path)
        assert np.asarray(x).dtype == np.asarray(y).dtype


@pytest.mark.parametrize("rows", [1, 3, 17, 65])
@pytest.mark.parametrize("batch", [(), (1,), (3,)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unconstrained", [True, False])
def test_unravel_inverts_pack(rng, rows, batch, dtype, unconstrained):
    model = toy(rng, rows, batch, dtype)
    vector, unravel = ravel(model, unconstrained=unconstrained)
    assert (
        vector.dtype == np.float64 and vector.shape == (unravel.size,) and np.isfinite(vector).all()
    )
    back = unravel(vector)
    same(model, back, rtol=8 * np.finfo(dtype).eps if unconstrained else 0)
    assert back.flavour == "odd"
    np.testing.assert_allclose(
        unravel.pack(back), vector, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps
    )


def test_python_numbers_stay_python_numbers(rng):
    model = toy(rng, python=True)
    back = ravel(model)[1](ravel(model)[0])
    assert (
        type(back.covariance.parts[0].variance) is float
        and type(back.covariance.parts[1].lengthscales) is float
    )


def test_lists_and_integers_become_float64(rng):
    model = Part(1, [1, 2])
    vector, unravel = ravel(model)
    back = unravel(vector)
    assert type(back.variance) is float and back.lengthscales.dtype == np.float64
    np.testing.assert_allclose(back.lengthscales, [1, 2])


def test_vector_has_the_order_of_the_fields(rng):
    model = toy(rng, 3)
    vector, unravel = ravel(model, unconstrained=False)
    assert (
        list(unravel.slices)
        == list(unravel.paths)
        == [
            "covariance.parts.0.variance",
            "covariance.parts.0.lengthscales",
            "covariance.parts.1.variance",
            "covariance.parts.1.lengthscales",
            "inducing",
            "mean",
            "scale_tril",
        ]
    )
    L = model.scale_tril
    rows = [L[0, 0], L[1, 0], L[1, 1], L[2, 0], L[2, 1], L[2, 2]]
    np.testing.assert_array_equal(vector[unravel.slices["scale_tril"]], rows)
    np.testing.assert_array_equal(vector[unravel.slices["inducing"]], model.inducing.ravel())
    assert vector[unravel.slices["covariance.parts.1.lengthscales"]] == [2.5]


def test_fixed_fields_are_left_out_and_kept(rng):
    model = toy(rng, 3)
    vector, unravel = ravel(model, fixed=("inducing", "covariance.parts.0", "mean"))
    assert unravel.paths == (
        "covariance.parts.1.variance",
        "covariance.parts.1.lengthscales",
        "scale_tril",
    )
    moved = unravel(vector + 0.1)
    assert moved.inducing is model.inducing and moved.mean is model.mean
    assert moved.covariance.parts[0].lengthscales is model.covariance.parts[0].lengthscales
    assert moved.covariance.parts[1].variance != 1.5
    assert ravel(model, fixed="covariance")[1].paths == ("inducing", "mean", "scale_tril")


def test_fixed_fields_come_from_the_model_like(rng):
    model = toy(rng, 3)
    vector, unravel = ravel(model, fixed="inducing")
    other = replace_at(model, "inducing", np.zeros((3, 2)))
    assert unravel(vector, like=other).inducing is other.inducing


def test_ravel_of_a_model_with_all_fields_fixed(rng):
    model = toy(rng)
    vector, unravel = ravel(model, fixed=("covariance", "inducing", "mean", "scale_tril"))
    assert vector.shape == (0,) and unravel.paths == ()
    same(model, replace_at(unravel(vector), "scale_tril", np.tril(model.scale_tril)))


@pytest.mark.parametrize("transform", ["softplus", "log"])
@pytest.mark.parametrize("unconstrained", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_pullback_is_the_gradient_by_differences(rng, transform, unconstrained, batch):
    model = toy(rng, 5, batch)
    vector, unravel = ravel(model, unconstrained=unconstrained, transform=transform, fixed="mean")
    weights = {
        path: rng.standard_normal(np.shape(value))
        for path, _, value in leaves(model)
        if value is not None
    }

    def value(m):  # cubic, with cross terms only inside a leaf
        return sum(
            float(np.sum(weights[p] * np.nan_to_num(np.asarray(v)) ** 3))
            for p, _, v in leaves(m)
            if v is not None
        )

    grad = unravel(vector)
    for path in unravel.paths:
        at = dict((p, v) for p, _, v in leaves(grad))[path]
        bar = np.asarray(3 * weights[path] * np.asarray(at) ** 2)
        if path == "scale_tril":
            bar[..., *np.triu_indices(5, 1)] = np.nan
        grad = replace_at(grad, path, bar)
    vector_bar = unravel.pullback(vector, replace_at(grad, "mean", None))
    direction = rng.standard_normal(vector.size)
    numeric = five_point(lambda s: value(unravel(vector + s * direction)))
    assert abs(vector_bar @ direction - numeric) < 1e-8 * max(1, np.abs(vector_bar).max())


def test_every_vector_is_a_valid_model(rng):
    for dtype in (np.float32, np.float64):
        vector, unravel = ravel(toy(rng, dtype=dtype))
        for scale in (1e3, 1e30):
            model = unravel(scale * rng.standard_normal(vector.size))
            for part in model.covariance.parts:
                assert (
                    part.variance > 0
                    and np.all(part.lengthscales > 0)
                    and np.all(np.isfinite(part.lengthscales))
                )
            assert (np.diag(model.scale_tril) > 0).all()


def test_scipy_minimises_a_loss_of_a_record(rng):
    target = np.array([0.3, 4.0])
    vector, unravel = ravel(Part(1.0, np.ones(2)))

    def loss(vector):
        model = unravel(vector)
        gap, gap_v = model.lengthscales - target, model.variance - 2.0
        value, grad = float(gap @ gap + gap_v**2), Part(2 * gap_v, 2 * gap)
        flat = unravel.pullback(vector, grad)
        assert type(value) is float and flat.dtype == np.float64
        return value, flat

    result = minimize(loss, vector, jac=True, method="L-BFGS-B")
    np.testing.assert_allclose(unravel(result.x).lengthscales, target, rtol=1e-4)


def test_bad_arguments_of_ravel_are_rejected(rng):
    model = toy(rng)
    with pytest.raises(
        ValueError,
        match="`fixed` names 'lengthscale', which is no field.* covariance.parts.0.leng",
    ):
        ravel(model, fixed=("lengthscale",))
    with pytest.raises(ValueError, match="'offset'"):  # None in this model: nothing there to fix
        ravel(model, fixed=("offset",))
    vector, unravel = ravel(model)
    with pytest.raises(ValueError, match="'mean' is free here, but None came.*`fixed=`.*`wrt=`"):
        unravel.pullback(vector, replace_at(model, "mean", None))
    with pytest.raises(ValueError, match="'mean' must have shape \\(3,\\) here, got \\(4,\\)"):
        unravel.pullback(vector, replace_at(model, "mean", np.zeros(4)))
    with pytest.raises(TypeError, match="pullback: `grad` must be a .* returns, got ndarray"):
        unravel.pullback(vector, vector)
    with pytest.raises(ValueError, match="must have shape"):
        unravel(vector[1:])
    with pytest.raises(
        ValueError, match="'covariance.parts.1.variance': it must be positive, got -1.0"
    ):
        ravel(replace_at(model, "covariance.parts.1.variance", -1.0))
    with pytest.raises(ValueError, match="'scale_tril': its diagonal must be positive, got 0.0"):
        ravel(replace_at(model, "scale_tril", np.zeros((3, 3))))
    with pytest.raises(ValueError, match="softplus"):
        ravel(model, transform="exp")


def test_free_paths_leave_out_fixed_fields(rng):
    assert free_paths(toy(rng), ("covariance", "mean")) == ("inducing", "scale_tril")
