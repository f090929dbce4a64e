"""k(Z, x) and k(x, x) of each covariance that can be exported, as expressions."""

import math
from typing import NamedTuple

import numpy as np

from ..covariances import (
    RBF,
    Categorical,
    Constant,
    Cosine,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    On,
    OnFeatures,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
)
from ..recipes.beyond_range import FURTHEST, BeyondRange
from .steps import form_of, number


class Blocks(NamedTuple):
    """Expressions of k(z_i, x), and of k(x, x), a scalar."""

    Kuf: str
    kff: str


def blocks(function, covariance, Z, x):
    """Write the steps of a covariance.

    Parameters
    ----------
    function : Function
    covariance : Covariance
    Z : (M, D) array
        Inducing inputs.
    x : str
        The vector of inputs.

    Raises
    ------
    TypeError
        The covariance, or a part of it, cannot be exported.
    """
    return form_of("covariance", covariance, FORMS)(function, covariance, Z, x)


def _squared_distances(function, Z, x, lengthscales):
    """Return the vector of squared distances of x and the rows of Z, over lengthscales."""
    M, D = Z.shape
    scale = 1 / np.broadcast_to(np.asarray(lengthscales, np.float64), D)
    u = function.each("scaled", D, f"{x}_i * {function.constant('inverse', scale)}_i")
    Z = function.constant("inducing", Z * scale)
    return function.sums("square", M, D, f"({u}_j - {Z}_ij) * ({u}_j - {Z}_ij)")


def _stationary(function, covariance, Z, x):
    r2, v = (
        _squared_distances(function, Z, x, covariance.lengthscales),
        number(covariance.variance),
    )
    if isinstance(covariance, RBF):
        return Blocks(f"{v} * exp(-0.5 * {r2}_i)", v)
    if isinstance(covariance, RationalQuadratic):
        alpha = float(covariance.alpha)
        text = f"exp({number(-alpha)} * log1p({r2}_i * {number(0.5 / alpha)}))"
        return Blocks(f"{v} * {text}", v)
    nu, polynomial = MATERN[type(covariance)]
    t = function.each("distance", len(Z), f"sqrt({number(nu)} * {r2}_i)")
    return Blocks(f"{v} * {polynomial.format(t)} * exp(-{t}_i)", v)


MATERN = {
    Matern12: (1, "1.0"),
    Matern32: (3, "(1.0 + {0}_i)"),
    Matern52: (5, "(1.0 + {0}_i + {0}_i * {0}_i / 3.0)"),
}


def _constant(function, covariance, Z, x):
    return Blocks(number(covariance.variance), number(covariance.variance))


def _inner_products(function, weights, Z, x):
    """Return expressions of sum_d weights_d z_d x_d, and of sum_d weights_d x_d^2."""
    D = Z.shape[1]
    weights = np.broadcast_to(np.asarray(weights, np.float64), D)
    s = function.product("inner", Z * weights, x)
    w = function.constant("weights", weights)
    return f"{s}_i", f"{function.sums('norm', 1, D, f'{w}_j * {x}_j * {x}_j')}_0"


def _linear(function, covariance, Z, x):
    return Blocks(*_inner_products(function, covariance.variance, Z, x))


def _polynomial(function, covariance, Z, x):
    offset, degree = number(covariance.offset), covariance.degree
    found = []
    for size, text in zip(
        (len(Z), 1), _inner_products(function, covariance.weights, Z, x), strict=True
    ):
        name = function.each("base", size, f"{text} + {offset}")
        index = "_i" if size > 1 or not found else "_0"
        found.append(f"({' * '.join([name + index] * degree)})")
    return Blocks(*found)


def _periodic(function, covariance, Z, x):
    # cos t = sin(t + pi / 2)
    D = Z.shape[1]
    period = np.broadcast_to(np.asarray(covariance.period, np.float64), D)
    both = function.pick(x, (*range(D), *range(D)))
    period = function.constant("period", np.tile(period, 2))
    turn = function.each("turn", 2 * D, f"{both}_i / {period}_i")
    phase = function.constant("phase", np.repeat([0.5 * math.pi, 0.0], D))
    text = f"sin({number(2 * math.pi)} * ({turn}_i - rint({turn}_i)) + {phase}_i)"
    circle = function.each("circle", 2 * D, text)
    return blocks(function, covariance.inside(), covariance.map(Z, Z[:1])[0], circle)


def _cosine(function, covariance, Z, x):
    M, D = Z.shape
    frequencies = np.broadcast_to(np.asarray(covariance.frequencies, np.float64), D)
    f, Z = function.constant("frequencies", frequencies), function.constant("inducing", Z)
    turn = function.sums("turn", M, D, f"{f}_j * ({x}_j - {Z}_ij)")
    v = number(covariance.variance)
    return Blocks(f"{v} * cos({number(2 * math.pi)} * ({turn}_i - rint({turn}_i)))", v)


def _categorical(function, covariance, Z, x):
    M, D = Z.shape
    rates = 1 / np.broadcast_to(np.asarray(covariance.lengthscales, np.float64), D)
    rates, Z = function.constant("rates", rates), function.constant("inducing", Z)
    s = function.sums("unequal", M, D, f"{rates}_j * ({x}_j != {Z}_ij)")
    v = number(covariance.variance)
    return Blocks(f"{v} * exp(-{s}_i)", v)


def _sum(function, covariance, Z, x):
    parts = [blocks(function, part, Z, x) for part in covariance.parts]
    return Blocks(*(f"({' + '.join(texts)})" for texts in zip(*parts, strict=True)))


def _product(function, covariance, Z, x):
    parts = [blocks(function, part, Z, x) for part in covariance.parts]
    return Blocks(*(" * ".join(f"({one})" for one in texts) for texts in zip(*parts, strict=True)))


def _on(function, covariance, Z, x):
    columns = list(covariance.columns)
    return blocks(function, covariance.part, Z[:, columns], function.pick(x, columns))


def _on_features(function, covariance, Z, x):
    network = covariance.network
    activation = {"tanh": "tanh({0})", "relu": "fmax({0}, 0.0)"}[network.activation]
    *hidden, last = network.weights
    for W, b in zip(hidden, network.biases, strict=True):
        s, b = function.product("sum", W.T, x), function.constant("bias", b)
        x = function.each("unit", W.shape[1], activation.format(f"{s}_i + {b}_i"))
    return blocks(function, covariance.covariance, Z, function.product("feature", last.T, x))


def _beyond_range(function, covariance, Z, x):
    # as ``recipes.beyond_range``: b is the nearest point of the box, s the distance from it
    D, names = len(covariance.low), ("low", "high", "below", "above")
    ends = covariance.low, covariance.high, *covariance.slopes()
    low, high, below, above = map(function.constant, names, ends)
    b = function.each("nearest", D, f"fmin(fmax({x}_i, {low}_i), {high}_i)")
    slope, far = f"choose({x}_i < {b}_i, {below}_i, {above}_i)", number(FURTHEST)
    text = f"fmin(fmax(({x}_i - {b}_i) * {slope}, -{far}), {far})"
    s = function.each("outside", D, text)
    q = function.sums("beyond", 1, D, f"{s}_j * {s}_j")
    inside = blocks(function, covariance.covariance, Z, b if covariance.held else x)
    change = f"{number(covariance.variance)} * {q}_0 / (1.0 + {q}_0)"
    return inside._replace(kff=f"({inside.kff} + {change})")


FORMS = {
    RBF: _stationary,
    Matern12: _stationary,
    Matern32: _stationary,
    Matern52: _stationary,
    RationalQuadratic: _stationary,
    Constant: _constant,
    Linear: _linear,
    Polynomial: _polynomial,
    Periodic: _periodic,
    Cosine: _cosine,
    Categorical: _categorical,
    Sum: _sum,
    Product: _product,
    On: _on,
    OnFeatures: _on_features,
    BeyondRange: _beyond_range,
}
