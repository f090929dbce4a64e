"""Translate scikit-learn kernels to fastsvgp covariances."""

import math
from dataclasses import dataclass
from functools import reduce
from operator import add, mul
from typing import Any

import numpy as np
from sklearn.gaussian_process import kernels

from ..covariances import (
    RBF,
    Constant,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Polynomial,
    RationalQuadratic,
)
from ..covariances.stationary import OfDistance
from ..records import leaves, replace, tree_map

MATERN = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, np.inf: RBF}


@dataclass(frozen=True)
class _Number:
    """A leaf of a covariance, and whether it is fixed: None if the kernel has no such parameter."""

    value: Any
    fixed: bool | None


ONE = _Number(1.0, None)  # the variance of an RBF


def from_kernel(kernel):
    """Translate a scikit-learn kernel to a covariance and a noise variance.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        ``ConstantKernel``, ``RBF``, ``Matern`` with nu 0.5, 1.5, 2.5 or infinity,
        ``RationalQuadratic``, ``ExpSineSquared`` for inputs of one column, ``DotProduct``,
        ``WhiteKernel``, their sums, products and powers of whole numbers. Parameters keep their
        values; bounds are ignored. ``fixed_fields`` returns the parameters that are "fixed".

    Returns
    -------
    covariance : Covariance
    noise_variance : float or None
        Noise of the ``WhiteKernel`` in a sum, which is not part of the function; None without one.

    Raises
    ------
    TypeError, ValueError
        The kernel has no counterpart, is only noise, or multiplies noise by something other than a
        constant.

    Notes
    -----
    A power of a ``DotProduct`` is a ``Polynomial``, and of an ``RBF`` an ``RBF``. Other powers are
    products, whose factors have parameters of their own in training.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from fastsvgp.sklearn import from_kernel
    >>> covariance, noise = from_kernel(2.0 * RBF(0.5) + WhiteKernel(0.1))
    >>> covariance, noise
    (RBF(variance=2.0, lengthscales=0.5), 0.1)
    """
    covariance, noise = _translate(kernel)
    return tree_map(lambda number: number.value, covariance), None if noise is None else noise.value


def fixed_fields(kernel):
    """Return the fields of a model that are "fixed" in a scikit-learn kernel.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        As in ``from_kernel``.

    Returns
    -------
    tuple of str
        Paths in an SVGP, for the argument ``fixed`` of ``fastsvgp.fit``: paths of the covariance,
        and "likelihood.variance" if a ``WhiteKernel`` is fixed ("noise_variance" in an SGPR).

    Raises
    ------
    TypeError, ValueError
        As in ``from_kernel``.

    Notes
    -----
    A number made of several, for example the product of two constants, is fixed if all of them are.
    A fixed constant also fixes variances of its product that scikit-learn does not have: in
    ``ConstantKernel(2.0, "fixed") * RBF() * RBF()`` both variances.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from fastsvgp.sklearn import fixed_fields
    >>> fixed_fields(ConstantKernel(2.0, "fixed") * RBF(0.5) + RBF(1.0, "fixed"))
    ('covariance.parts.0.variance', 'covariance.parts.1.lengthscales')
    """
    covariance, noise = _translate(kernel)
    names = [path for path, _, number in leaves(covariance, "covariance.") if number.fixed]
    return (*names, *["likelihood.variance"] * bool(noise and noise.fixed))


def _translate(kernel):
    """Return ``(covariance, noise or None)``, in which each number is a ``_Number``."""
    if not isinstance(kernel, kernels.Kernel):
        raise TypeError(
            "from_kernel: `kernel` must be a kernel of sklearn.gaussian_process.kernels, got"
            f" {kernel!r:.200}"
        )
    covariance, noise = _sum(kernel)
    if covariance is None:
        raise ValueError(
            f"from_kernel: {kernel} is only noise; add a kernel of the function, for example RBF()"
        )
    return covariance, noise


def _number(kernel, name):
    """Return a parameter of a kernel; of several lengthscales, all or none are fixed."""
    value, bounds = np.asarray(getattr(kernel, name), np.float64), getattr(kernel, f"{name}_bounds")
    return _Number(
        value if value.ndim else value.item(), isinstance(bounds, str) and bounds == "fixed"
    )


def _combine(how, numbers):
    """Combine numbers by ``how``, a sum or product."""
    return _Number(
        float(how(number.value for number in numbers)), all(number.fixed for number in numbers)
    )


def _sum(kernel):
    """Return ``(covariance or None, noise or None)`` of any kernel."""
    parts = [_term(term) for term in _flat(kernel, kernels.Sum)]
    covariances, noises = ([part[i] for part in parts if part[i] is not None] for i in (0, 1))
    return reduce(add, covariances) if covariances else None, (
        _combine(sum, noises) if noises else None
    )


def _term(kernel):
    """``_sum`` for a kernel that is not a sum.

    Constants among its factors become the variance of another factor.
    """
    factors = _flat(kernel, kernels.Product)
    constants = [
        _number(f, "constant_value") for f in factors if isinstance(f, kernels.ConstantKernel)
    ]
    others = [f for f in factors if not isinstance(f, kernels.ConstantKernel)]
    if not others:
        return Constant(_combine(math.prod, constants)), None
    if isinstance(others[0], kernels.WhiteKernel) and len(others) == 1:
        return None, _combine(math.prod, [*constants, _number(others[0], "noise_level")])
    parts = [
        _sum(other) if isinstance(other, kernels.Sum) else (_single(other), None)
        for other in others
    ]
    if any(noise is not None for _, noise in parts):
        raise ValueError(
            f"from_kernel: {kernel} multiplies noise; add a WhiteKernel to the kernel as a whole"
        )
    parts = [covariance for covariance, _ in parts]
    if constants:
        scale = _combine(math.prod, constants)
        held = [_scale(part, scale) for part in parts]
        holding = next((i for i, part in enumerate(held) if part is not None), None)
        if holding is None:
            parts.insert(0, Constant(scale))
        else:
            parts[holding] = held[holding]
        if scale.fixed:
            parts = [tree_map(_fix_beside_constant, part) for part in parts]
    return reduce(mul, parts), None


def _scale(part, scale):
    """Return a covariance with this variance, None if it has a variance of its own already."""
    if isinstance(part, Periodic):
        inner = _scale(part.part, scale)
        return None if inner is None else replace(part, part=inner)
    if isinstance(part, OfDistance | Linear) and part.variance is ONE:
        return replace(part, variance=scale)
    return None


def _fix_beside_constant(number):
    """Fix a number beside a fixed constant, unless the kernel has a parameter for it."""
    return _Number(number.value, True) if number.fixed is None else number


def _flat(kernel, kind):
    return (
        [*_flat(kernel.k1, kind), *_flat(kernel.k2, kind)] if isinstance(kernel, kind) else [kernel]
    )


def _single(kernel):
    if isinstance(kernel, kernels.Matern):  # a subclass of RBF
        if kernel.nu not in MATERN:
            known = ", ".join(f"{nu:g}" for nu in MATERN)
            raise ValueError(
                f"from_kernel: a Matern kernel has a counterpart for nu = {known}, but not for"
                f" {kernel.nu:g}"
            )
        return MATERN[kernel.nu](ONE, _number(kernel, "length_scale"))
    if type(kernel) is kernels.RBF:
        return RBF(ONE, _number(kernel, "length_scale"))
    if isinstance(kernel, kernels.DotProduct):
        sigma = _number(kernel, "sigma_0")
        offset = _Number(sigma.value**2, sigma.fixed)
        return Linear(ONE) + Constant(offset) if offset.value > 0 else Linear(ONE)
    if isinstance(kernel, kernels.RationalQuadratic):
        return RationalQuadratic(ONE, _number(kernel, "length_scale"), _number(kernel, "alpha"))
    if isinstance(kernel, kernels.ExpSineSquared):
        # with several columns it takes the sine of their distance: these shapes refuse them
        numbers = (_number(kernel, name) for name in ("length_scale", "periodicity"))
        lengthscale, period = (_Number(np.array([n.value]), n.fixed) for n in numbers)
        return Periodic(RBF(ONE, lengthscale), period)
    if isinstance(kernel, kernels.Exponentiation):
        return _power(kernel)
    if isinstance(kernel, kernels.WhiteKernel):
        raise ValueError(
            "from_kernel: noise times another kernel has no counterpart; add a WhiteKernel to the"
            " kernel as a whole"
        )
    raise ValueError(
        f"from_kernel: {type(kernel).__name__} has no counterpart; only ConstantKernel, RBF,"
        " Matern, RationalQuadratic, ExpSineSquared, DotProduct, WhiteKernel, and their sums,"
        " products and powers have one. Pass a fastsvgp covariance instead, or write one"
        " (docs/covariance.md)"
    )


def _power(kernel):
    """Return the covariance of an ``Exponentiation``."""
    exponent = kernel.exponent
    if exponent < 1 or int(exponent) != exponent:
        raise ValueError(
            "from_kernel: an Exponentiation has a counterpart for exponents 1, 2, 3 ..., but not"
            f" for {exponent:g}"
        )
    exponent = int(exponent)
    if isinstance(kernel.kernel, kernels.DotProduct) and kernel.kernel.sigma_0 > 0:
        sigma = _number(kernel.kernel, "sigma_0")
        return Polynomial(ONE, _Number(sigma.value**2, sigma.fixed), degree=exponent)
    covariance, noise = _sum(kernel.kernel)
    if noise is not None:
        raise ValueError(
            f"from_kernel: {kernel} is a power of noise; add a WhiteKernel to the kernel as a whole"
        )
    if type(covariance) is RBF and covariance.variance is ONE:
        lengthscales = covariance.lengthscales
        shorter = _Number(lengthscales.value / math.sqrt(exponent), lengthscales.fixed)
        return replace(covariance, lengthscales=shorter)
    if type(covariance) is Constant:
        return Constant(_combine(math.prod, [covariance.variance] * exponent))
    return reduce(mul, [covariance] * exponent)


def expand_to_layers(names, count):
    """Return the paths in a model of ``count`` layers that fields of an SVGP have."""
    of_layers = [name for name in names if name.startswith("covariance.")]
    there = [f"latents.{number}.{name}" for number in range(count) for name in of_layers]
    return *there, *(name for name in names if name not in of_layers)
