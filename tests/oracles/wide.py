"""Constants of densities, for parameters at which float64 would lose digits; wide averages.

Log gamma functions are Stirling's series in decimal numbers: ``likelihoods.decimal_log_gamma``.
"""

from decimal import Decimal, localcontext

import numpy as np
from oracles.likelihoods import decimal_log_gamma

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


def decimals(terms):
    """Return ``terms(log_gamma)`` in long double; ``log_gamma`` takes and returns decimals."""
    with localcontext() as context:
        context.prec = 90
        log_2pi = (2 * PI).ln()
        return np.longdouble(str(terms(lambda x: decimal_log_gamma(Decimal(x), log_2pi))))


def gamma_constant(a):
    """a log a - a - log Gamma(a)."""
    a = Decimal(a)
    return decimals(lambda log_gamma: a * a.ln() - a - log_gamma(a))


def poisson_constant(y):
    """log Poisson(y; y)."""
    y = Decimal(y)
    return decimals(lambda log_gamma: y * y.ln() - y - log_gamma(y + 1))


def binomial_constant(y, z):
    """log Binomial(y; n, y / n) with n = y + z."""
    y, z = Decimal(y), Decimal(z)
    n = y + z
    return decimals(
        lambda log_gamma: (
            log_gamma(n + 1)
            - log_gamma(y + 1)
            - log_gamma(z + 1)
            + y * (y / n).ln()
            + z * (z / n).ln()
        )
    )


def average(function, mean, var, centre, width, num=6001):
    """E function(f), f ~ N(mean, var), for functions that change within ``width`` of ``centre``."""
    sd = np.sqrt(var)
    low, high = (np.arcsinh((mean + k * sd - centre) / width) for k in (-12, 12))
    u = np.linspace(low, high, num)
    f = centre + width * np.sinh(u)
    weight = np.cosh(u) * np.exp(-0.5 * ((f - mean) / sd) ** 2)
    return float((weight * function(f)).sum() / weight.sum())
