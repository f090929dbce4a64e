"""Functions that change their nature along one column of the inputs."""

from typing import Any

import numpy as np

from .. import check, kernels
from ..records import leaf, plus, record, static
from ..records.typed import Array, Number
from .base import ALL, Covariance, need_of, wanted
from .checks import all_codes, check_part, nested
from .features import Explicit, Modulated, Stacked, part_seeds


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
            nested(self, self.parts)

    # --- weights ---

    def _ascending(self):
        """Return the changes in ascending order, and ``places``: [k, i] is 1 if change i is k-th.

        On a device a sort would wait, and a graph cannot hold it.
        """
        at, number = self.at, np.arange(len(self.at), like=self.at)
        later = (at[:, None] > at) | ((at[:, None] == at) & (number[:, None] > number))
        places = (later.sum(1) == number[:, None]).astype(at.dtype)
        return (places * at).sum(1), places

    def _sigmoids(self, X):
        """Return the sigmoids and their complements at each change, both (P - 1, N)."""
        # the sigmoid of u is (1 + tanh(u / 2)) / 2, which does not overflow
        half = np.tanh((self.steepness / 2) * (X[:, self.column] - self._ascending()[0][:, None]))
        return (1 + half) / 2, (1 - half) / 2

    def _weights(self, X):
        """Return the weights of the parts, (P, N)."""
        up, down = self._sigmoids(X)
        weights = np.ones_like(X, shape=(len(self.parts), len(X)))
        weights[1:] *= up
        weights[:-1] *= down
        return weights

    def _weights_vjp(self, weights_bar, X, need):
        """Return ``(at_bar, steepness_bar, X_bar)`` of one side; the first two in float64."""
        up, down = self._sigmoids(X)
        # of u = steepness (x - at) at change k: the weights of the parts k and k + 1
        u_bar = weights_bar[1:] * up * down
        u_bar[:-1] *= down[1:]
        of_part = -weights_bar[:-1] * up * down
        of_part[1:] *= up[:-1]
        u_bar += of_part
        at, places = self._ascending()
        bars = -self.steepness * u_bar.sum(1, dtype=np.float64)
        at_bar = (places * bars[:, None]).sum(0, dtype=np.float64)
        away = X[:, self.column] - at[:, None]
        steepness_bar = (u_bar * away).sum(dtype=np.float64)
        X_bar = np.zeros_like(X)
        X_bar[:, self.column] = self.steepness * u_bar.sum(0)
        return at_bar, steepness_bar, X_bar

    def features(self, num, seeds, columns):
        parts = [
            part.features(num, part_seeds(seeds, i), columns) for i, part in enumerate(self.parts)
        ]
        return Stacked([Modulated(part, self._weight(i)) for i, part in enumerate(parts)])

    def _weight(self, number):
        """Return the weight of a part as ``Explicit`` features."""

        def back(Phi_bar, X):
            bars = np.zeros_like(X, shape=(len(self.parts), len(X)))
            bars[number] = Phi_bar[:, 0]
            return self._weights_vjp(bars, X, ())[2]

        return Explicit(1, lambda X: self._weights(X)[number][:, None], back)

    # --- matrices ---

    def matrix(self, X1, X2=None):
        first = self._weights(X1)
        second = first if X2 is None else self._weights(X2)
        total = None
        for part, w1, w2 in zip(self.parts, first, second, strict=True):
            K = part.matrix(X1, X2)
            K *= w1[:, None] * w2
            if total is None:
                total = K
            else:
                total += K
        return total

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        first = self._weights(X1)
        second = first if X2 is None else self._weights(X2)
        inputs = {"X1": X1} if X2 is None else {"X1": X1, "X2": X2}
        changes = wanted(need, "at") or wanted(need, "steepness")
        through = changes or any(name in need for name in inputs)
        w_bars = np.zeros_like(first), np.zeros_like(second)
        part_bars, sums = [], dict.fromkeys(("X1", "X2"))
        for i, part in enumerate(self.parts):
            own = need_of(need, f"parts.{i}")
            part_K = part.matrix(X1, X2) if through or own else None
            if through:
                pulled = K_bar * part_K
                w_bars[0][i] = kernels.matmul(pulled, second[i, :, None])[:, 0]
                w_bars[1][i] = kernels.matmul(first[i, None], pulled)[0]
            bars = (None,) * 3
            if own:
                part_K_bar = first[i, :, None] * second[i]
                part_K_bar *= K_bar
                bars = part.matrix_vjp(part_K_bar, part_K, X1, X2, own)
            part_bars.append(bars[0])
            sums = {name: plus(bar, sums[name]) for name, bar in zip(sums, bars[1:], strict=True)}
        pulls = self._pulls(w_bars, inputs, need) if through else {}
        X_bars = {name: sums[name] + pulls[name][2] for name in inputs if name in need}
        covariance_bar = self._gradient(part_bars, pulls.values(), need, X1)
        return covariance_bar, X_bars.get("X1"), X_bars.get("X2")

    def _pulls(self, w_bars, inputs, need):
        """Return ``_weights_vjp`` of each side by its name; a single side has both cotangents."""
        if len(inputs) == 1:
            w_bars = (w_bars[0] + w_bars[1],)
        return {
            name: self._weights_vjp(w_bar, X, need)
            for w_bar, (name, X) in zip(w_bars, inputs.items(), strict=True)
        }

    def _gradient(self, part_bars, pulls, need, like):
        at_bar, steepness_bar = (lambda k=k: sum(pull[k] for pull in pulls) for k in (0, 1))
        return self.gradient(need, like, parts=part_bars, at=at_bar, steepness=steepness_bar)

    def diag(self, X):
        weights = self._weights(X)
        return sum(np.square(w) * part.diag(X) for w, part in zip(weights, self.parts, strict=True))

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        weights = self._weights(X)
        weights_bar, part_bars, X_bar = np.zeros_like(weights), [], None
        for i, part in enumerate(self.parts):
            own, bars = need_of(need, f"parts.{i}"), (None, None)
            weights_bar[i] = 2 * k_bar * weights[i] * part.diag(X)
            if own:
                bars = part.diag_vjp(k_bar * np.square(weights[i]), X, own)
            part_bars.append(bars[0])
            if bars[1] is not None:
                X_bar = bars[1] if X_bar is None else X_bar + bars[1]
        pull = self._weights_vjp(weights_bar, X, need)
        covariance_bar = self._gradient(part_bars, [pull], need, X)
        return covariance_bar, None if X_bar is None else X_bar + pull[2]

    # --- checks ---

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
