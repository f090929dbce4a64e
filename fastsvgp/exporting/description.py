"""What a file computes: the functions of a row that follow from a predictor and a scaling.

``f`` takes x, in the units of the data, to the mean and the variance of the latent functions, in
those of the model; ``y`` and ``quantile`` take these to new targets, in the units of the data:

    u = scaled x                     k = k(Z, u)
    mean = alpha k + m(u)            var = k(u, u) + sum_r sign_r (C k)_r^2

Those of a ``Mixture`` are the vectors of its models, one after another; its shares enter in ``y``.
"""

from dataclasses import dataclass

import numpy as np

from ..bounds.mixture import Mixture
from ..latents.mixing import matrices
from ..latents.model import MultiGP, layers_of
from ..likelihoods import Gaussian
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
    def latent(self):
        """The number of latent functions, of all models of a mixture."""
        return self.f.sizes[self.f.results[0]]

    @property
    def count(self):
        """The number of numbers of a prediction at one row."""
        return self.outputs[0] if self.outputs else 1


def describe(model, scale, inputs=(), classes=()):
    """Return the ``Description`` of a predictor: ``SVGP``, ``MultiGP`` or ``Mixture``, on the host.

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
    parts = model.models if isinstance(model, Mixture) else (model,)
    f = Function(constants, {"x": D})
    u = _scaled(f, scale, D)
    moments = [_latent(f, one, u) for one in parts]
    joined = [f.join("all", found) for found in zip(*moments, strict=True)]
    f.returns(*joined)
    size = f.sizes[joined[0]]
    y = _new_targets(constants, model, scale, size)
    quantile = _quantile(constants, model, scale, size)
    J = size // len(parts)
    layers = [layer for one in parts for layer in _layers(one)]
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


def _layers(model):
    return layers_of(model) if isinstance(model, MultiGP) else (model,)


def _latent(function, model, u):
    """Write the steps of one model; return the vectors of means and of variances."""
    if not isinstance(model, MultiGP):
        return _layer(function, model, u)
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
    return _add_mean(function, model.mean, mean, u), var


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


def _new_targets(constants, model, scale, size):
    function = Function(constants, {"m": size, "v": size})
    if isinstance(model, Mixture):
        size //= len(model.models)
        mean, var = _mix(function, model, size)
    else:
        mean, var = likelihoods.moments(function, model.likelihood, "m", "v")
        size //= model.likelihood.latents_per_output
    if _has_units(scale):
        shift, unit = _units(function, scale, size)
        mean, var = f"{shift} + {unit} * {mean}", f"{unit} * {unit} * {var}"
    mean, var = function.each("mean", size, mean), function.each("var", size, var)
    if isinstance(scale, LogScale):  # log-normal
        of_y = function.each("mean", size, f"exp({mean}_i + 0.5 * {var}_i)")
        var = function.each("var", size, f"{of_y}_i * {of_y}_i * expm1({var}_i)")
        mean = of_y
    return function.returns(mean, var)


def _pick_models(function, model, size):
    """Yield the likelihood and the vectors of moments of f of each model of a mixture."""
    for k, one in enumerate(model.models):
        own = range(k * size, (k + 1) * size)
        yield one.likelihood, *(function.pick(name, own) for name in "mv")


def _mix(function, model, size):
    """Return expressions of the moments of a mixture."""
    found = []
    for likelihood, m, v in _pick_models(function, model, size):
        moments = likelihoods.moments(function, likelihood, m, v)
        found.append([function.each("part", size, one) for one in moments])
    shares = [number(share) for share in model.shares]
    text = " + ".join(f"{s} * {m}_i" for s, (m, _) in zip(shares, found, strict=True))
    mean, var = function.each("mixed", size, text), None
    for s, (m, v) in zip(shares, found, strict=True):
        text = f"{s} * ({v}_i + ({m}_i - {mean}_i) * ({m}_i - {mean}_i))"
        var = function.each("spread", size, text if var is None else f"{var}_i + {text}")
    return f"{mean}_i", f"{var}_i"


def _quantile(constants, model, scale, size):
    function = Function(constants, {"m": size, "v": size, "level": 1})
    if isinstance(model, Mixture):
        size //= len(model.models)
        text = _quantile_of_mixture(function, model, size)
    else:
        text = likelihoods.quantile(function, model.likelihood, "m", "v", "level")
    if text is None:
        return None
    if _has_units(scale):
        shift, unit = _units(function, scale, size)
        text = f"{shift} + {unit} * {text}"
    if isinstance(scale, LogScale):
        text = f"exp({text})"
    return function.returns(function.each("quantile", size, text))


def _quantile_of_mixture(function, model, size):
    """Return where the distribution function of Gaussian models reaches the level, or None.

    The quantile lies between the least and the largest one of the models.
    """
    if not all(isinstance(one.likelihood, Gaussian) for one in model.models):
        return None
    least = most = below = None
    given = []
    for likelihood, m, v in _pick_models(function, model, size):
        sd = function.each("sd", size, f"sqrt({v}_i + {number(likelihood.variance)})")
        own = function.each("own", size, f"{m}_i + {sd}_i * normal_quantile(level_0)")
        first = least is None
        least = own if first else function.each("least", size, f"fmin({least}_i, {own}_i)")
        most = own if first else function.each("most", size, f"fmax({most}_i, {own}_i)")
        given.append((m, sd))
    for share, (m, sd) in zip(model.shares, given, strict=True):
        term = f"{number(share)} * normal_cdf(({least}_i + {{0}} - {m}_i) / {sd}_i)"
        below = term if below is None else f"{below} + {term}"
    t = function.root("above", size, f"{most}_i - {least}_i", f"{below} - level_0")
    return f"({least}_i + {t}_i)"
