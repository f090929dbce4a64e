"""scikit-learn's kernels as covariances of ours."""

from functools import reduce
from operator import add, mul

import numpy as np
from sklearn.gaussian_process import kernels

from ..covariances import RBF, Constant, Linear, Matern12, Matern32, Matern52
from ..covariances.stationary import Stationary
from ..records import replace

MATERN = {0.5: Matern12, 1.5: Matern32, 2.5: Matern52, np.inf: RBF}


def from_kernel(kernel):
    """The covariance that a kernel of scikit-learn is, and its noise.

    Parameters
    ----------
    kernel : sklearn.gaussian_process.kernels.Kernel
        ``ConstantKernel``, ``RBF``, ``Matern`` with nu 0.5, 1.5, 2.5 or infinity, ``DotProduct``, ``WhiteKernel``, their sums and
        products. Numbers are taken as they are; bounds are not: all numbers are learned, without bounds.

    Returns
    -------
    covariance : Covariance
    noise_variance : float or None
        Of the ``WhiteKernel`` in a sum, which is noise and no part of the function; None where there is none.

    Raises
    ------
    TypeError, ValueError
        A kernel without counterpart, noise as a factor of a product with something that is no constant, or noise alone.

    Examples
    --------
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from fastsvgp.sklearn import from_kernel
    >>> covariance, noise = from_kernel(2.0 * RBF(0.5) + WhiteKernel(0.1))
    >>> covariance, noise
    (RBF(variance=2.0, lengthscales=0.5), 0.1)
    """
    if not isinstance(kernel, kernels.Kernel):
        raise TypeError(f"from_kernel: `kernel` must be a kernel of sklearn.gaussian_process.kernels, got {kernel!r:.200}")
    covariance, noise = _sum(kernel)
    if covariance is None:
        raise ValueError(f"from_kernel: {kernel} is noise alone; add a kernel of the function, such as RBF()")
    return covariance, noise


def _sum(kernel):
    """``(covariance or None, noise or None)`` of a kernel, a sum or not."""
    parts = [_term(term) for term in _flat(kernel, kernels.Sum)]
    covariances, noises = ([part[i] for part in parts if part[i] is not None] for i in (0, 1))
    return reduce(add, covariances) if covariances else None, sum(noises) if noises else None


def _term(kernel):
    """The same of a kernel that is no sum. Constants among the factors become the variance of another factor."""
    factors = _flat(kernel, kernels.Product)
    constant = [f for f in factors if isinstance(f, kernels.ConstantKernel)]
    scale = float(np.prod([f.constant_value for f in constant]))
    others = [f for f in factors if not isinstance(f, kernels.ConstantKernel)]
    if not others:
        return Constant(scale), None
    if isinstance(others[0], kernels.WhiteKernel) and len(others) == 1:
        return None, scale * float(others[0].noise_level)
    parts = [_sum(other) if isinstance(other, kernels.Sum) else (_single(other), None) for other in others]
    if any(noise is not None for _, noise in parts):
        raise ValueError(f"from_kernel: {kernel} multiplies noise; add a WhiteKernel to the kernel as a whole")
    parts = [covariance for covariance, _ in parts]
    holding = next((i for i, part in enumerate(parts) if isinstance(part, Stationary | Linear)), None)
    if constant and holding is not None:
        parts[holding] = replace(parts[holding], variance=scale * parts[holding].variance)
    elif constant:
        parts.insert(0, Constant(scale))
    return reduce(mul, parts), None


def _flat(kernel, kind):
    return [*_flat(kernel.k1, kind), *_flat(kernel.k2, kind)] if isinstance(kernel, kind) else [kernel]


def _single(kernel):
    if isinstance(kernel, kernels.Matern):  # which is an RBF to Python
        if kernel.nu not in MATERN:
            known = ", ".join(f"{nu:g}" for nu in MATERN)
            raise ValueError(f"from_kernel: a Matern kernel has a counterpart for nu = {known}, not for {kernel.nu:g}")
        return MATERN[kernel.nu](1.0, _lengthscales(kernel))
    if type(kernel) is kernels.RBF:
        return RBF(1.0, _lengthscales(kernel))
    if isinstance(kernel, kernels.DotProduct):
        offset = float(kernel.sigma_0) ** 2
        return Linear(1.0) + Constant(offset) if offset > 0 else Linear(1.0)
    if isinstance(kernel, kernels.WhiteKernel):
        raise ValueError("from_kernel: noise times another kernel has no counterpart; add a WhiteKernel to the kernel as a whole")
    raise ValueError(
        f"from_kernel: {type(kernel).__name__} has no counterpart; those that have are ConstantKernel, RBF, Matern, DotProduct, "
        "WhiteKernel, and their sums and products. Give `covariance` a record of fastsvgp, or write one (docs/covariance.md)"
    )


def _lengthscales(kernel):
    return np.asarray(kernel.length_scale, np.float64)[()]
