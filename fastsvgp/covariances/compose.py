"""Sums and products of covariances.

Importing this module defines ``+`` and ``*`` for all covariances; a number becomes a ``Constant``.
"""

import numbers
from functools import reduce
from operator import iadd, imul, mul

import numpy as np

from .. import check
from ..records import record
from .base import ALL, Covariance, need_of
from .checks import all_codes, check_part, set_depth
from .features import Explicit, Modulated, Stacked, part_seeds
from .linear import Constant
from .stationary import RBF

ADVICE = (
    "; a number beside a covariance is a Constant (add up a list by"
    " fastsvgp.covariances.Sum(parts), not by"
    " sum())"
)


LEAST_LOG = np.finfo(float).min  # of a density: of a row that no term has, shares are 0


class _Composite(Covariance):
    """Entrywise combination of the matrices of ``parts``, accumulated in the first matrix.

    Accumulating in place is safe because every ``matrix`` returns a new array.
    """

    def __post_init__(self):
        if not np.iterable(self.parts):
            raise TypeError(
                f"{type(self).__name__}: `parts` must be a tuple of covariances, got"
                f" {type(self.parts).__name__}"
            )
        object.__setattr__(self, "parts", tuple(self.parts))  # from a list too
        set_depth(self, self.parts)

    def matrix(self, X1, X2=None):
        return self._combine(part.matrix(X1, X2) for part in self.parts)

    def diag(self, X):
        return self._combine(part.diag(X) for part in self.parts)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        cotangent = self._cotangents(K_bar, lambda part: part.matrix(X1, X2))
        return self._gather(
            lambda i, part, own_need: part.matrix_vjp(*cotangent(i), X1, X2, own_need),
            need,
            inputs=2,
        )

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        cotangent = self._cotangents(k_bar, lambda part: part.diag(X))
        return self._gather(
            lambda i, part, own_need: part.diag_vjp(cotangent(i)[0], X, own_need), need, inputs=1
        )

    def _gather(self, pull, need, inputs):
        """Collect the parts' cotangents in a record, and sum the cotangents of the inputs.

        ``pull(i, part, need)`` gives the cotangents of one part.
        """
        part_bars, input_bars = [], []
        for i, part in enumerate(self.parts):
            own_need = need_of(need, f"parts.{i}")
            part_bar, *bars = pull(i, part, own_need) if own_need else (None,) * (1 + inputs)
            part_bars.append(part_bar)
            input_bars.append(bars)
        sums = (
            None if bars[0] is None else reduce(np.add, bars)
            for bars in zip(*input_bars, strict=True)
        )
        return self.gradient(need, None, parts=part_bars), *sums

    def code_columns(self, D):
        return all_codes(self.parts, D)

    def check_dim(self, D):
        if not self.parts:
            raise ValueError(
                f"{type(self).__name__}: `parts` is empty; give at least one covariance"
            )
        for i, part in enumerate(self.parts):
            check_part(f"{type(self).__name__}.parts.{i}", part, D)


@record
class Sum(_Composite):
    """k = sum of the parts: a sum of independent functions.

    ``a + b`` makes one; a number is a ``Constant``.

    Parameters
    ----------
    parts : tuple of Covariance

    Examples
    --------
    >>> fs.RBF(variance=1.0, lengthscales=0.5) + fs.Linear(variance=0.1)
    Sum(parts=(RBF(variance=1.0, lengthscales=0.5), Linear(variance=0.1)))
    >>> fs.Linear() + 2.0
    Sum(parts=(Linear(variance=1.0), Constant(variance=2.0)))
    """

    _for_several = "write a + b"
    parts: tuple

    def features(self, num, seeds, columns):
        return Stacked(_features(self.parts, num, seeds, columns))

    def spectral_terms(self, D):
        return [term for part in self.parts for term in part.spectral_terms(D)]

    def log_spectral_density(self, squares):
        return reduce(np.logaddexp, (part.log_spectral_density(squares) for part in self.parts))

    def log_spectral_density_vjp(self, log_bar, squares, need=("covariance",)):
        total = self.log_spectral_density(squares)
        bars = []
        for i, part in enumerate(self.parts):
            share = np.exp(part.log_spectral_density(squares) - np.maximum(total, LEAST_LOG))
            own = need_of(need, f"parts.{i}")
            bars.append(
                part.log_spectral_density_vjp(log_bar * share, squares, own) if own else None
            )
        return self.gradient(need, squares, parts=bars)

    def _combine(self, matrices):
        return reduce(iadd, matrices)

    def _cotangents(self, K_bar, matrix):
        """Every part gets K_bar itself; K is None because the sum keeps no matrices of parts."""
        return lambda i: (K_bar, None)


def _features(parts, num, seeds, columns):
    """Return features of parts, independent ones."""
    return [part.features(num, part_seeds(seeds, i), columns) for i, part in enumerate(parts)]


def _factors(parts):
    """Return the factors of a product, with all RBFs of all columns as one: exponents add up."""
    flat, rbfs = [], []
    for part in parts:
        inner = _factors(part.parts) if type(part) is Product else (part,)
        for factor in inner:
            (rbfs if type(factor) is RBF else flat).append(factor)
    if rbfs:
        precision = sum(one.lengthscales**-2.0 for one in rbfs)
        flat.append(RBF(reduce(mul, (one.variance for one in rbfs)), precision**-0.5))
    return flat


@record
class Product(_Composite):
    """k = product of the parts. ``a * b`` makes one; a number is a ``Constant``.

    Parameters
    ----------
    parts : tuple of Covariance

    Examples
    --------
    >>> fs.RBF(variance=1.0, lengthscales=0.5) * fs.Linear(variance=0.1)
    Product(parts=(RBF(variance=1.0, lengthscales=0.5), Linear(variance=0.1)))
    >>> 2.0 * fs.Linear()
    Product(parts=(Constant(variance=2.0), Linear(variance=1.0)))
    """

    _for_several = "write a * b"
    parts: tuple

    def features(self, num, seeds, columns):
        parts = _features(_factors(self.parts), num, seeds, columns)
        known = [part for part in parts if isinstance(part, Explicit)]
        random = [part for part in parts if not isinstance(part, Explicit)]
        if len(random) > 1:
            raise TypeError(
                "features of a Product: at most one factor may have random features or be a Sum"
                f" (RBFs count as one), got {len(random)}; draw joint values with sample_f"
            )
        if not random:
            known = sorted(known, key=lambda part: part.size)
            random = [known.pop()]
        return reduce(Modulated, known, random[0])

    def _combine(self, matrices):
        return reduce(imul, matrices)

    def _cotangents(self, K_bar, matrix):
        """Each part gets K_bar times the other parts' matrices.

        Dividing the product by its own matrix would fail where that matrix is 0.
        """
        matrices = [matrix(part) for part in self.parts]
        return lambda i: (reduce(np.multiply, matrices[:i] + matrices[i + 1 :], K_bar), matrices[i])


def _term(other):
    """A covariance, or a ``Constant`` for a number; None for anything else. Arrays are refused."""
    if isinstance(other, Covariance):
        return other
    if not (isinstance(other, numbers.Number) or hasattr(other, "shape")):
        return None
    # A Python number takes the dtype of the model
    variance = check.scalar("variance of the Constant", other)
    check.positive("variance of the Constant", variance, ADVICE)
    return Constant(variance)


def _operator(kind, reflected=False):
    def operator(self, other):
        term = _term(other)
        if term is None:
            return NotImplemented
        left, right = (
            x.parts if type(x) is kind else (x,)
            for x in ((term, self) if reflected else (self, term))
        )
        return kind(left + right)

    return operator


# Assigned here because ``base`` must not import this module
Covariance.__add__ = _operator(Sum)  # type: ignore[method-assign]
Covariance.__radd__ = _operator(Sum, reflected=True)  # type: ignore[method-assign]
Covariance.__mul__ = _operator(Product)  # type: ignore[method-assign]
Covariance.__rmul__ = _operator(Product, reflected=True)  # type: ignore[method-assign]
