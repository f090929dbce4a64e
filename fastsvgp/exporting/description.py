"""What a file computes: the functions of a row that follow from a predictor and a scaling.

``f`` takes x, in the units of the data, to the mean and the variance of the latent functions, in
those of the model; ``y`` and ``quantile`` take these to new targets, in the units of the data:

    u = scaled x                     k = k(Z, u)
    mean = alpha k + m(u)            var = k(u, u) + sum_r sign_r (C k)_r^2
"""

from dataclasses import dataclass

import numpy as np

from ..latents.mixing import matrices
from ..latents.model import MultiGP, layers_of
from ..means import ConstantMean, LinearMean, ZeroMean
from ..recipes.fitted import check_scale, sizes_of
from ..recipes.scaling import BEYOND, ClassScale, LogScale
from ..records.inducing_sets import stack_sets
from . import covariances, likelihoods
from .steps import Constants, Function, form_of, number

EPS = float(np.finfo(np.float64).eps)
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Description:
    """Functions of one row, for a printer.

    Parameters
    ----------
    constants : Constants
    f, y : Function
    quantile : Function or None
        None if the quantiles have no closed form.
    columns : int
        Number of inputs.
    codes : dict of int: int or None
        Columns of codes, and the number of codes.
    outputs : tuple
        () or (P,): the axes of a prediction at one row.
    about : str
        The model, in words.
    inputs, classes : tuple of str
        Names of the columns of X, and of the classes; empty if there are none.
    """

    constants: Constants
    f: Function
    y: Function
    quantile: Function | None
    columns: int
    codes: dict
    outputs: tuple
    about: str
    inputs: tuple
    classes: tuple

    @property
    def functions(self):
        """The functions of the file."""
        return [one for one in (self.f, self.y, self.quantile) if one is not None]

    @property
    def arrays(self):
        """The arrays that they read, by name."""
        constants = self.constants
        return {name: one for name, one in constants.arrays.items() if name in constants.read}

    @property
    def count(self):
        """The number of numbers of a prediction at one row."""
        return self.outputs[0] if self.outputs else 1


def describe(model, scale, inputs=(), classes=()):
    """Return the ``Description`` of a predictor, an ``SVGP`` or ``MultiGP`` of host arrays.

    ``inputs`` and ``classes`` are names; those of a ``ClassScale`` are known.

    Raises
    ------
    TypeError
        A part of the model has no exported form; the message names it.
    ValueError
        The scaling does not fit the model.
    """
    D, axes = sizes_of(model, None)
    if scale is not None:
        check_scale(scale, model, D, axes)
    constants, likelihood = Constants(), model.likelihood
    f = _latent(constants, model, scale, D)
    J = f.sizes[f.results[0]]
    y = _new_targets(constants, likelihood, scale, J)
    quantile = _quantile(constants, likelihood, scale, J)
    layers = layers_of(model) if isinstance(model, MultiGP) else (model,)
    codes = {c: n for layer in layers for c, n in layer.covariance.code_columns(D).items()}
    outputs = (J,) if likelihood.num_latent and J > 1 else axes
    sizes = ", ".join(str(layer.posterior.alpha.shape[-1]) for layer in layers)
    about = f"{type(model).__name__}, {sizes} inducing inputs, {type(likelihood).__name__} targets"
    known = classes if len(classes) or not isinstance(scale, ClassScale) else scale.classes
    names = (tuple(map(str, one)) for one in (inputs, known))
    return Description(constants, f, y, quantile, D, codes, outputs, about, *names)


# --- inputs ---------------------------------------------------------------------------------------


def _scaled(function, scale, D):
    """Return the vector of inputs in the units of the model."""
    if scale is None:
        return "x"
    shift = function.constant("shift", scale.x_mean)
    unit = function.constant("unit", scale.x_scale)
    u = function.each("u", D, f"(x_i - {shift}_i) / {unit}_i")
    maps = {d: one for d, one in enumerate(scale.x_map or ()) if one is not None}
    if not maps:
        return u
    for d, one in maps.items():
        function.table(u, "x", d, one.knots, one.values)
    # beyond the knots a map goes on with its slopes; other columns have slopes 0
    first, last, below, above = np.zeros((4, D))
    least, most = np.full(D, -LARGEST), np.full(D, LARGEST)
    for d, one in maps.items():
        first[d], last[d] = one.knots[0], one.knots[-1]
        below[d], above[d] = one.slopes()
        least[d], most[d] = one.values[0] - BEYOND, one.values[-1] + BEYOND
    names = ("first", "last", "below", "above", "least", "most")
    first, last, below, above, least, most = (
        f"{function.constant(name, array)}_i"
        for name, array in zip(names, (first, last, below, above, least, most), strict=True)
    )
    text = f"{u}_i + {below} * fmin(x_i - {first}, 0.0) + {above} * fmax(x_i - {last}, 0.0)"
    return function.each("u", D, f"fmin(fmax({text}, {least}), {most})")


# --- the latent functions -------------------------------------------------------------------------


def _latent(constants, model, scale, D):
    function = Function(constants, {"x": D})
    u = _scaled(function, scale, D)
    if not isinstance(model, MultiGP):
        return function.returns(*_layer(function, model, u))
    pairs = [_layer(function, layer, u) for layer in layers_of(model)]
    mean, var = (
        function.join(name, found)
        for name, found in zip(("means", "vars"), zip(*pairs, strict=True), strict=True)
    )
    if model.mixing is not None:
        from scipy.linalg import block_diag

        W = block_diag(*matrices(model.mixing))
        mean = function.product("mixed", W, mean)
        var = function.product("mixed", np.square(W), var)
    return function.returns(_add_mean(function, model.mean, mean, u), var)


def _layer(function, layer, u):
    """Write the steps of one layer; return the vectors of means and of variances."""
    q, Z = layer.posterior, stack_sets(layer.inducing)
    alpha = np.atleast_2d(q.alpha)
    P, M = alpha.shape
    k, kff = covariances.blocks(function, layer.covariance, Z, u)
    k = function.each("k", M, k)
    mean = _add_mean(function, layer.mean, function.product("mean", alpha, k, "alpha"), u)
    changes, R = [], q.C.shape[-2]
    for C, sign in zip(q.C.reshape(-1, R, M), q.sign.reshape(-1, R), strict=True):
        t = function.product("t", C, k, "C", lower=q.triangular)
        s = function.constant("sign", sign)
        changes.append(function.sums("change", 1, R, f"{s}_j * {t}_j * {t}_j"))
    change, index = function.join("changes", changes), "0" if len(changes) < P else "i"
    kff = f"{function.each('kff', 1, kff)}_0"
    text = f"fmax({kff} + {change}_{index}, {number(EPS)} * {kff})"
    return mean, function.each("var", P, text)


def _add_mean(function, mean, name, u):
    """Add a mean function, or none, to the vector ``name``."""
    size, level = function.sizes[name], form_of("mean", mean, MEANS)(mean)
    if level is None:
        return name
    b = function.constant("level", np.broadcast_to(level, size))
    text = f"{name}_i + {b}_i"
    if isinstance(mean, LinearMean):
        W = np.broadcast_to(mean.weights, (size, function.sizes[u]))
        text = f"{text} + {function.product('trend', W, u)}_i"
    return function.each("mean", size, text)


MEANS = {
    type(None): lambda mean: None,
    ZeroMean: lambda mean: None,
    ConstantMean: lambda mean: mean.value,
    LinearMean: lambda mean: mean.bias,
}


# --- targets --------------------------------------------------------------------------------------


def _has_units(scale):
    """Whether targets have other units than those of the model."""
    return scale is not None and bool(np.any(scale.y_mean != 0) or np.any(scale.y_scale != 1))


def _units(function, scale, size):
    """Return expressions of the mean and the scale of targets."""
    values = (np.broadcast_to(one, size) for one in (scale.y_mean, scale.y_scale))
    shift, unit = map(function.constant, ("shift", "unit"), values)
    return f"{shift}_i", f"{unit}_i"


def _new_targets(constants, likelihood, scale, size):
    function = Function(constants, {"m": size, "v": size})
    mean, var = likelihoods.moments(function, likelihood, "m", "v")
    if _has_units(scale):
        shift, unit = _units(function, scale, size)
        mean, var = f"{shift} + {unit} * {mean}", f"{unit} * {unit} * {var}"
    mean, var = function.each("mean", size, mean), function.each("var", size, var)
    if isinstance(scale, LogScale):  # log-normal
        of_y = function.each("mean", size, f"exp({mean}_i + 0.5 * {var}_i)")
        var = function.each("var", size, f"{of_y}_i * {of_y}_i * expm1({var}_i)")
        mean = of_y
    return function.returns(mean, var)


def _quantile(constants, likelihood, scale, size):
    function = Function(constants, {"m": size, "v": size, "level": 1})
    text = likelihoods.quantile(function, likelihood, "m", "v", "level")
    if text is None:
        return None
    if _has_units(scale):
        shift, unit = _units(function, scale, size)
        text = f"{shift} + {unit} * {text}"
    if isinstance(scale, LogScale):
        text = f"exp({text})"
    return function.returns(function.each("quantile", size, text))
