"""Bases of sines on a box, and the sums and series of rows in them.

On a box of half widths L_d around a centre, with angles a_d = pi (x_d - start_d) / (2 L_d),

    phi_j(x) = prod_d L_d^(-1/2) sin(j_d a_d),    omega_jd = pi j_d / (2 L_d),    j_d = 1 ... m_d,

are the eigenfunctions of the Laplacian that vanish at the faces, and a stationary process is about

    f(x) = sum_j phi_j(x) w_j,    w_j ~ N(0, S(omega_j)),

S its spectral density (Solin & Sarkka 2020). A basis of several groups of columns is one such basis
for each, side by side: functions of few columns add up to f.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..covariances import Covariance
from ..records import data, record, static
from ..records.typed import ArrayLike
from .waves import FourierRows, FourierSums, gather

MOST_COLUMNS, MOST_FUNCTIONS = 3, 5000
MARGIN, MATERN_MARGIN = 2.5, 4.0  # lengthscales between data and box
TAIL = 1e-4  # share of the spectral density of a column beyond the highest frequency
DENSE_NUMBERS = 1 << 20  # of features, in a chunk of rows


def margin_for(smoothness):
    """Return the number of lengthscales between the data and the box."""
    return MARGIN if np.isinf(smoothness) else MATERN_MARGIN


def functions_for(half_width, lengthscale, smoothness):
    """Return how many sines of a box have all but ``TAIL`` of the density of one column.

    That of a Matern is a Student t density with 2 nu degrees of freedom, of an RBF the normal one.
    """
    from scipy.special import stdtrit

    frequency = -stdtrit(min(2 * smoothness, 1e9), TAIL / 2) / lengthscale
    return max(1, int(np.ceil(2 * half_width * frequency / np.pi)))


@record
class HilbertBasis:
    """Sines on a box around the data, in up to three columns, or of several groups of columns.

    Parameters
    ----------
    lower, upper : float or (D,) array
        The range of the data in each column.
    num_functions : int or (D,) integers
        Number of sines in each column; a group has their product.
    boundary : float or (D,) array
        Half width of the box over that of the data, above 1.
    groups : tuple of tuples of int, optional
        The columns of each group: one for each set of columns on which a term of the covariance
        depends. Default: one group of all columns.

    Examples
    --------
    >>> basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), 20, 1.5)
    >>> basis.size
    20
    """

    lower: Any = data()
    upper: Any = data()
    num_functions: Any = data()
    boundary: Any = data(default=1.5)
    groups: tuple[tuple[int, ...], ...] | None = static(default=None)

    def __post_init__(self):
        lower = np.atleast_1d(np.asarray(self.lower, np.float64))
        D = len(lower)
        fields = {"lower": lower}
        for name in ("upper", "num_functions", "boundary"):
            value = np.asarray(getattr(self, name))
            if value.shape not in ((), (1,), (D,)):
                raise ValueError(
                    f"`{name}` of a HilbertBasis must be one number or ({D},), as `lower`, got"
                    f" {value.shape}"
                )
            kind = np.int64 if name == "num_functions" else np.float64
            if kind is np.int64 and (value.dtype.kind not in "iu" or (value < 1).any()):
                raise ValueError(f"`num_functions` must be whole numbers from 1, got {value}")
            fields[name] = np.broadcast_to(value, (D,)).astype(kind)
        if lower.ndim != 1 or not all(np.isfinite(one).all() for one in fields.values()):
            raise ValueError("a HilbertBasis needs finite numbers, one for each column")
        if not (fields["upper"] > lower).all():
            column = int(np.argmin(fields["upper"] > lower))
            raise ValueError(
                f"column {column} of a HilbertBasis has `lower` {lower[column]:g} and `upper`"
                f" {fields['upper'][column]:g}; a constant column has no basis: leave it out"
            )
        if not (fields["boundary"] > 1).all():
            raise ValueError(f"`boundary` must be above 1, got {self.boundary}; try 1.5")
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        self._check_groups(D)

    def _check_groups(self, D):
        groups = (tuple(range(D)),) if self.groups is None else self.groups
        groups = tuple(tuple(int(c) for c in group) for group in groups)
        for group in groups:
            if not group or not all(0 <= c < D for c in group) or len(set(group)) < len(group):
                raise ValueError(
                    f"`groups` must hold different columns from 0 to {D - 1}, got {group}"
                )
            if len(group) > MOST_COLUMNS:
                raise ValueError(
                    f"a HilbertBasis has sines of up to {MOST_COLUMNS} columns, got {len(group)};"
                    " add up terms of few columns by Additive or .on(...), or use an SVGP"
                )
        object.__setattr__(self, "groups", tuple(sorted(set(groups))))
        if self.size > MOST_FUNCTIONS:
            raise ValueError(
                f"the basis has m = {self.size} functions, and each evaluation takes m^3 ="
                f" {float(self.size) ** 3:.2g} flops; give at most {MOST_FUNCTIONS}: longer"
                " lengthscales, or an SVGP"
            )

    @classmethod
    def for_lengthscales(cls, X: ArrayLike, covariance: Covariance) -> "HilbertBasis":
        """Return the basis that holds all but 1e-4 of a covariance of these lengthscales.

        The box ends 2.5 lengthscales beyond the data for an RBF, 4 for a Matern. Take the shortest
        lengthscales that training may reach.

        Parameters
        ----------
        X : (N, D) array
        covariance : Covariance

        Returns
        -------
        HilbertBasis

        Examples
        --------
        >>> fs.bounds.HilbertBasis.for_lengthscales(X, fs.RBF(1.0, 0.5)).size
        27
        """
        X = check.inputs("X", X)
        D = X.shape[1]
        covariance.check_dim(D)
        lower, upper = (np.asarray(end, np.float64) for end in (X.min(axis=0), X.max(axis=0)))
        half, terms = (upper - lower) / 2, covariance.spectral_terms(D)
        beyond, counts = np.full(D, 1e-9), np.ones(D, np.int64)
        for columns, scales, smoothness in terms:
            for column, scale in zip(columns, scales, strict=True):
                beyond[column] = max(beyond[column], margin_for(smoothness) * scale)
        for columns, scales, smoothness in terms:
            for column, scale in zip(columns, scales, strict=True):
                found = functions_for(half[column] + beyond[column], scale, smoothness)
                counts[column] = max(counts[column], found)
        boundary = 1 + beyond / np.where(half > 0, half, 1)
        return cls(lower, upper, counts, boundary, groups=tuple(term[0] for term in terms))

    # --- sizes ---

    @property
    def D(self):
        return len(self.lower)

    @property
    def shapes(self):
        """The numbers of sines (m_0, ...) of each group."""
        counts = self.num_functions
        return [tuple(int(counts[c]) for c in group) for group in self.groups]

    @property
    def size(self):
        """m, the number of functions."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def half_width(self):
        """The half widths (D,) of the box."""
        return self.boundary * (self.upper - self.lower) / 2

    def squared_frequencies(self):
        """Return omega^2 (m, D) of each function; NaN in columns on which it does not depend."""
        parts = []
        for group, shape in zip(self.groups, self.shapes, strict=True):
            each = np.meshgrid(*(np.arange(1, count + 1) for count in shape), indexing="ij")
            part = np.full((int(np.prod(shape)), self.D), np.nan)
            for column, j in zip(group, each, strict=True):
                part[:, column] = np.square(np.pi * j.ravel() / (2 * self.half_width[column]))
            parts.append(part)
        return np.concatenate(parts)

    def largest_squares(self):
        """Return the largest phi_j^2 (m,)."""
        parts = (
            np.full(int(np.prod(shape)), 1 / np.prod(self.half_width[list(group)]))
            for group, shape in zip(self.groups, self.shapes, strict=True)
        )
        return np.concatenate(list(parts))

    def same_as(self, other):
        """Return the name of a field in which another basis differs, or None."""
        if self.groups != other.groups:
            return "groups"
        fields = "lower", "upper", "num_functions", "boundary"
        differ = (f for f in fields if not np.array_equal(getattr(self, f), getattr(other, f)))
        return next(differ, None)

    # --- rows ---

    def angles(self, X, name="X", first=0):
        """Return the angles (D, n) of rows, which lie in the box; ``first`` is for messages."""
        if X.ndim != 2 or X.shape[1] != self.D:
            raise ValueError(
                f"`{name}` has shape {X.shape}, and the basis {self.D} columns: give (N, {self.D})"
            )
        centre, half = (self.lower + self.upper) / 2, self.half_width
        X = np.asarray(X, np.float64)
        angles = np.ascontiguousarray(((X - (centre - half)) * (np.pi / (2 * half))).T)
        inside = (angles >= 0) & (angles <= np.pi)  # NaN is outside
        if not inside.all():
            column = int(np.argmin(inside.all(axis=1)))
            count, row = (~inside.all(axis=0)).sum(), first + int(np.argmin(inside[column]))
            low, high = centre[column] - half[column], centre[column] + half[column]
            raise ValueError(
                f"`{name}`: {count} rows are outside of the box, the first in column {column}: row"
                f" {row} has {X[row - first, column]:g}, the box goes from {low:g} to {high:g}"
            )
        return angles

    def features(self, angles, slope=None):
        """Return phi (m, n) at rows of these angles, or its slopes in a column. Memory m n."""
        parts = []
        for group, shape in zip(self.groups, self.shapes, strict=True):
            part = np.full((1, angles.shape[1]), np.prod(self.half_width[list(group)]) ** -0.5)
            for column, count in zip(group, shape, strict=True):
                j = np.arange(1, count + 1)[:, None]
                if column == slope:
                    frequencies = j * (np.pi / (2 * self.half_width[column]))
                    sines = frequencies * np.cos(j * angles[column])
                else:
                    sines = np.sin(j * angles[column])
                part = (part[:, None] * sines).reshape(-1, angles.shape[1])
            parts.append(part if slope is None or slope in group else np.zeros_like(part))
        return np.ascontiguousarray(np.concatenate(parts))

    @property
    def chunk(self):
        """Rows of a chunk of a pass."""
        return 1 << 18 if len(self.groups) == 1 else max(64, DENSE_NUMBERS // self.size)

    def sums(self, weights, values):
        """Return an accumulator of sums, for these numbers of rows of weights and of values."""
        return (OneGroup if len(self.groups) == 1 else SeveralGroups)(self, weights, values)

    def rows(self, weights, covariances):
        """Return a function of angles: W phi (P, n) and phi' S phi (A, n)."""
        if len(self.groups) > 1:
            return lambda angles: _dense_rows(self.features(angles), weights, covariances)
        scale = np.prod(self.half_width[list(self.groups[0])])
        inner = FourierRows(self.shapes[0], weights * scale**-0.5, covariances / scale)
        group = list(self.groups[0])
        return lambda angles: inner(np.ascontiguousarray(angles[group]))

    def gram(self, products):
        """Return Phi' W Phi (m, m) from the products of an accumulator."""
        if len(self.groups) > 1:
            return products
        scale = np.prod(self.half_width[list(self.groups[0])])
        return gather(products, self.shapes[0]) / scale


def _dense_rows(F, weights, covariances):
    squares = [(kernels.matmul(S, F) * F).sum(axis=0) for S in covariances]
    none = np.empty((0, F.shape[1]))
    return kernels.matmul(weights, F), np.stack(squares) if squares else none


class OneGroup:
    """Accumulated sums of rows of a basis of one group, by nonuniform FFTs."""

    def __init__(self, basis, weights, values):
        self._group = list(basis.groups[0])
        self._scale = np.prod(basis.half_width[self._group]) ** -0.5
        self._sums = FourierSums(basis.shapes[0], weights, values)

    def add(self, angles, weights, values):
        self._sums.add(np.ascontiguousarray(angles[self._group]), weights, values)

    def products(self):
        return self._sums.products()

    def crossed(self):
        return self._sums.crossed() * self._scale


class SeveralGroups:
    """The same for several groups, by features: m^2 n flops, and products are Phi' W Phi."""

    def __init__(self, basis, weights, values):
        self._basis, m = basis, basis.size
        self._products, self._crossed = np.zeros((weights, m, m)), np.zeros((values, m))

    def add(self, angles, weights, values):
        F = self._basis.features(angles)
        for out, one in zip(self._products, weights, strict=True):
            kernels.weighted_gram(F, np.ascontiguousarray(one), out=out, add=True)
        self._crossed += kernels.matmul(np.ascontiguousarray(values), F, transpose_b=True)

    def products(self):
        return np.stack([kernels.symmetrise(one) for one in self._products])

    def crossed(self):
        return self._crossed
