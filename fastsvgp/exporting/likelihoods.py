"""Moments and quantiles of new targets, as expressions of the moments of f.

Formulas and their derivations are those of the likelihoods. Where one has no closed form, the
function is left out.
"""

from typing import NamedTuple

import numpy as np

from .. import kernels
from ..likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Gaussian,
    HeteroskedasticGaussian,
    Laplace,
    Poisson,
    Softmax,
    StudentT,
)
from ..likelihoods.base import SMALLEST
from ..likelihoods.bernoulli import reciprocal
from ..likelihoods.laplace import SMALLEST as LEAST
from .steps import form_of, number


class Moments(NamedTuple):
    """Expressions of the mean and the variance of y_i."""

    mean: str
    var: str


def moments(function, likelihood, m, v):
    """Write the steps from the moments of f to those of y; they are probabilities for classes.

    Parameters
    ----------
    function : Function
    likelihood : Likelihood
    m, v : str
        The vectors of means and variances of f.

    Raises
    ------
    TypeError
        The likelihood cannot be exported.
    """
    return form_of("likelihood", likelihood, FORMS)(function, likelihood, m, v)


def _additive(function, likelihood, m, v):
    return Moments(f"{m}_i", f"({v}_i + {number(_noise_of(likelihood))})")


def _noise_of(likelihood):
    if isinstance(likelihood, Gaussian):
        return likelihood.variance
    if isinstance(likelihood, Laplace):
        return 2 * likelihood.scale**2
    df = likelihood.df
    return likelihood.scale**2 * (df / (df - 2)) if df > 2 else np.inf


def _varying(function, likelihood, m, v):
    P = function.sizes[m] // 2
    m, v, g, u = (
        function.pick(name, range(k * P, (k + 1) * P)) for k in range(2) for name in (m, v)
    )
    return Moments(f"{m}_i", f"({v}_i + exp({g}_i + 0.5 * {u}_i))")


def _of_chance(function, m, text):
    p = function.each("chance", function.sizes[m], text)
    return Moments(f"{p}_i", f"{p}_i * (1.0 - {p}_i)")


def _probit(function, likelihood, m, v):
    return _of_chance(function, m, f"normal_cdf({m}_i / sqrt(1.0 + {v}_i))")


def _logit(function, likelihood, m, v):
    # the terms of ``likelihoods.bernoulli``: the chance of the less likely label
    size, a = function.sizes[m], reciprocal()
    orders = function.constant("orders", np.arange(1.0, len(a) + 1))
    a = function.constant("coefficients", a)
    low = function.each("low", size, f"-fabs({m}_i)")
    var = function.each("var", size, f"fmax({v}_i, {number(SMALLEST)})")
    peak = function.each("peak", size, f"-0.5 * {low}_i * {low}_i / {var}_i")
    text = f"choose({low}_i < -{var}_i, {low}_i + 0.5 * {var}_i, {peak}_i)"
    top = function.each("top", size, text)
    half = function.each("half", size, f"0.5 * exp({peak}_i - {top}_i)")
    root = function.each("root", size, f"sqrt(2.0 * {var}_i)")
    z, j = f"({low}_i + {orders}_j * {var}_i) / {root}_i", f"{orders}_j"
    body = f"exp(fmin({j} * {low}_i + 0.5 * {j} * {j} * {var}_i - {top}_i, 1.0))"
    outer = f"{half}_i * erfcx(fabs({z}))"
    left = f"choose({z} > 0.0, {outer}, {body} - {outer})"
    right = f"{half}_i * erfcx((({j} - 1.0) * {var}_i - {low}_i) / {root}_i)"
    terms = function.sums("terms", size, len(reciprocal()), f"{a}_j * ({left} + {right})")
    less = function.each("less", size, f"exp({top}_i + log({terms}_i))")
    p = function.each("chance", size, f"choose({m}_i > 0.0, 1.0 - {less}_i, {less}_i)")
    return Moments(f"{p}_i", f"{less}_i * (1.0 - {less}_i)")


def _poisson(function, likelihood, m, v):
    exposure = 1.0 if len(likelihood.target_columns) > 1 else likelihood.exposure
    log_rate = f"({m}_i + {number(np.log(exposure))})"
    rate = function.each("rate", function.sizes[m], f"exp({log_rate} + 0.5 * {v}_i)")
    spread = f"log(fmax(-expm1(-{v}_i), {number(SMALLEST)}))"
    return Moments(f"{rate}_i", f"({rate}_i + exp(2.0 * {log_rate} + 2.0 * {v}_i + {spread}))")


def _softmax(function, likelihood, m, v):
    # the average over the points that ``predict_y`` takes: those of seed 0
    C, S = likelihood.num_classes, likelihood.num_samples
    points = kernels.normal_points(C, S)
    by_point = function.constant("points", points)
    by_class = function.constant("points", points.T)
    top = function.sums("top", 1, C, f"{m}_j", largest=True)
    centre = function.each("centre", C, f"{m}_i - {top}_0")
    sd = function.each("sd", C, f"sqrt({v}_i)")
    f = f"{centre}_j + {sd}_j * {by_point}_ij"
    most = function.sums("most", S, C, f, largest=True)
    total = function.sums("total", S, C, f"exp({f} - {most}_i)")
    term = f"exp({centre}_i + {sd}_i * {by_class}_ij - {most}_j) / {total}_j"
    sums = function.sums("sums", C, S, term)
    return _of_chance(function, m, f"{sums}_i / {number(S)}")


FORMS = {
    Gaussian: _additive,
    HeteroskedasticGaussian: _varying,
    Laplace: _additive,
    StudentT: _additive,
    BernoulliProbit: _probit,
    BernoulliLogit: _logit,
    Poisson: _poisson,
    Softmax: _softmax,
}


def quantile(function, likelihood, m, v, level):
    """Write the steps to a quantile of y; return its expression, or None without a closed form."""
    if isinstance(likelihood, Gaussian):
        noise = number(likelihood.variance)
        return f"({m}_i + sqrt({v}_i + {noise}) * normal_quantile({level}_0))"
    if not isinstance(likelihood, Laplace):
        return None
    # at the distance t from the mean the mass beyond is Phi(-t / s) + [U(t) - U(-t)] / 4; the
    # bracket is that of ``likelihoods.quantiles``
    size, b = function.sizes[m], number(likelihood.scale)
    least = number(LEAST * float(likelihood.scale) ** 2)
    var = function.each("var", size, f"fmax({v}_i, {least})")
    tail = function.each("mass", 1, f"fmin({level}_0, 1.0 - {level}_0)")
    high = f"-normal_quantile(0.5 * fmin({level}_0, 1.0 - {level}_0))"
    high = f"{high} * sqrt({var}_i) - {b} * log({tail}_0)"
    beyond = f"normal_cdf(-{{0}} / sqrt({var}_i))"
    beyond += f" + 0.25 * (tail({{0}}, {var}_i, {b}) - tail(-{{0}}, {var}_i, {b}))"
    t = function.root("distance", size, high, f"{tail}_0 - ({beyond})")
    return f"({m}_i + choose({level}_0 < 0.5, -1.0, 1.0) * {t}_i)"
