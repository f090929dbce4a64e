"""Functions that change their nature along one column of the inputs.

A weight w_i(x) is the only feature of a covariance w_i(x) w_i(x'), so the covariance is a sum of
products, and so are its reverse rules.
"""

from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from .. import check
from ..records import leaf, plus, private_record, record, static
from ..records.typed import Array, Number
from .base import ALL, Covariance
from .checks import all_codes, check_part, set_depth
from .compose import Product, Sum
from .features import Modulated, Stacked, part_seeds
from .linear import Linear
from .mapped import OfMap

CHANGES = "at", "steepness"  # the fields of which the weights are functions


@private_record
class PartWeight(OfMap):
    """w(x) w(x'), with w the weight of part ``number``: the rank is one."""

    at: Array = leaf()
    steepness: Number = leaf("positive")
    column: int = static()
    number: int = static()

    def inside(self):
        return Linear(self.at.dtype.type(1))

    def _own_need(self, need, inputs):
        return inputs

    def outer(self, part_bar, bars, need, like):
        return self.gradient(need, like, at=bars[0], steepness=bars[1])

    def sizes(self, columns):
        return 1, columns + 12

    def _sigmoids(self, X):
        """Yield of each change beside the part: place, sign, x - at, sigmoid and complement."""
        # places[k, i] is 1 if change i is the k-th: on a device a sort would wait, and a graph
        # cannot hold it
        at, number = self.at, np.arange(len(self.at), like=self.at)
        later = (at[:, None] > at) | ((at[:, None] == at) & (number[:, None] > number))
        places = (later.sum(1) == number[:, None]).astype(at.dtype)
        ascending = (places * at).sum(1)
        for k, sign in ((self.number - 1, 1), (self.number, -1)):
            if 0 <= k < len(at):
                away = X[:, self.column] - ascending[k]
                # the sigmoid of u is (1 + tanh(u / 2)) / 2, which does not overflow
                half = np.tanh((sign * self.steepness / 2) * away)
                yield places[k], sign, away, (1 + half) / 2, (1 - half) / 2

    def map(self, X, origin):
        sides = list(self._sigmoids(X))
        w = reduce(mul, (up for *_, up, _ in sides))

        def back(U_bar, need):
            at_bar, steepness_bar, X_bar = 0.0, 0.0, np.zeros_like(X)
            for place, sign, away, _, down in sides:
                u_bar = sign * U_bar[:, 0] * w * down
                at_bar = at_bar - place * (self.steepness * u_bar.sum(dtype=np.float64))
                steepness_bar = steepness_bar + (u_bar * away).sum(dtype=np.float64)
                X_bar[:, self.column] += self.steepness * u_bar
            return (at_bar, steepness_bar), X_bar if "X" in need else None

        return w[:, None], back


@record
class ChangePoints(Covariance):
    """k = sum_i w_i(x) k_i(x, x') w_i(x'): one covariance after the other along a column.

    Part i has the weight w_i = sigmoid(steepness (x - at_{i-1})) sigmoid(steepness (at_i - x)),
    with x in the column and ascending changes: about 1 between its changes, and about 0 elsewhere.

    Parameters
    ----------
    parts : tuple of Covariance
        P covariances of all columns.
    at : (P - 1,)
        Where they change. The order does not matter: training can move one past another.
    steepness : ()
        Positive: of all changes, per unit of the column.
    column : int
        The column of the inputs, counted from 0.

    Examples
    --------
    >>> changing = fs.covariances.ChangePoints((fs.RBF(), fs.Matern12(4.0)), at=[0.0],
    ...     steepness=5.0)
    >>> changing.diag(np.array([[-3.0], [0.0], [3.0]])).round(4)
    array([1.  , 1.25, 4.  ])
    """

    parts: tuple[Any, ...]
    at: Array = leaf()
    steepness: Number = leaf("positive", default=1.0)
    column: int = static(default=0)

    def __post_init__(self):
        if isinstance(self.parts, list | tuple):
            object.__setattr__(self, "parts", tuple(self.parts))  # from a list too
            set_depth(self, self.parts)

    def _sum(self):
        weights = (
            PartWeight(self.at, self.steepness, column=self.column, number=i)
            for i in range(len(self.parts))
        )
        return Sum(tuple(map(Product, zip(weights, self.parts, strict=True))))

    def _need_of_sum(self, need):
        words = []
        for name in need:
            root, field, number, rest = (*name.split(".", 3), None, None, None)[:4]
            numbers = range(len(self.parts)) if number is None else [number]
            if root != "covariance" or field is None:
                words.append(name)
            elif field in CHANGES:
                words += (f"covariance.parts.{i}.parts.0.{field}" for i in numbers)
            else:
                tail = "" if rest is None else f".{rest}"
                words += (f"covariance.parts.{i}.parts.1{tail}" for i in numbers)
        return tuple(words)

    def _sum_vjp(self, bars, need, like):
        bar, *inputs = bars
        if bar is None:
            return None, *inputs
        weights, parts = zip(*(product.parts for product in bar.parts), strict=True)
        changes = {name: reduce(plus, (getattr(w, name) for w in weights)) for name in CHANGES}
        return self.gradient(need, like, parts=parts, **changes), *inputs

    def features(self, num, seeds, columns):
        parts = []
        for i, product in enumerate(self._sum().parts):
            own = num, part_seeds(seeds, i), columns
            weight, part = (factor.features(*own) for factor in product.parts)
            parts.append(Modulated(part, weight))
        return Stacked(parts)

    def matrix(self, X1, X2=None):
        return self._sum().matrix(X1, X2)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        bars = self._sum().matrix_vjp(K_bar, None, X1, X2, self._need_of_sum(need))
        return self._sum_vjp(bars, need, X1)

    def diag(self, X):
        return self._sum().diag(X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        return self._sum_vjp(self._sum().diag_vjp(k_bar, X, self._need_of_sum(need)), need, X)

    def code_columns(self, D):
        return all_codes(self.parts, D)

    def check_dim(self, D):
        parts = self.parts if isinstance(self.parts, tuple) else ()
        if len(parts) < 2:
            raise ValueError(
                "ChangePoints: `parts` must be a tuple of at least two covariances, got"
                f" {len(parts)}"
            )
        for i, part in enumerate(parts):
            check_part(f"ChangePoints.parts.{i}", part, D)
        if np.shape(self.at) != (len(parts) - 1,):
            raise ValueError(
                f"ChangePoints: `at` must have shape ({len(parts) - 1},), one number between each"
                f" two of the {len(parts)} parts, got {np.shape(self.at)}"
            )
        self._check_shape("steepness", D)
        check.whole("column of ChangePoints", self.column, 0)
        if self.column >= D:
            raise ValueError(
                f"ChangePoints: `column` is {self.column}, but the inputs have D = {D} columns,"
                f" 0 ... {D - 1}"
            )
