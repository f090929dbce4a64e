"""Covariances k(phi(x), phi(x')) of mapped inputs: what follows from a map and its pullback."""

from typing import ClassVar

from ..records import plus
from .base import ALL, Covariance, need_of, needs_fields
from .features import Explicit, Mapped


class OfMap(Covariance):
    """Base of covariances ``inside()`` of mapped inputs: a subclass has a map and its pullback."""

    part_field: ClassVar[str] = "part"  # what ``inside()`` is made of
    map_field: ClassVar[str | None] = None  # what the map depends on

    def inside(self):
        """Return the covariance of mapped inputs."""
        return getattr(self, self.part_field)

    def inside_need(self, need):
        """Translate ``need`` for ``inside()``."""
        return need_of(need, self.part_field)

    def map(self, X, origin):
        """Return mapped inputs (N, F), and residuals; ``origin`` (1, D) is one of the inputs."""
        raise NotImplementedError

    def pull(self, U_bar, residuals, need):
        """Return cotangents ``(map_bar, X_bar)`` of the field of the map, in float64, and of X."""
        raise NotImplementedError

    def sizes(self, columns):
        """Return the columns of mapped inputs, and the numbers of one with its residuals."""
        raise NotImplementedError

    def outer(self, part_bar, map_bar, need, like):
        """Combine the cotangents of ``inside()`` and of the map; each can be None."""
        bars = {self.part_field: part_bar, self.map_field: map_bar}
        return self.gradient(need, like, **{name: bar for name, bar in bars.items() if name})

    def features(self, num, seeds, columns):
        inner, width = self.sizes(columns)
        part = self.inside().features(num, seeds, inner)

        def forward(X):
            return self.map(X, X[:1])

        def back(U_bar, residuals):
            return self.pull(U_bar, residuals, ("X",))[1]

        if not isinstance(part, Explicit):
            return Mapped(part, forward, back, width)

        def matrix_vjp(Phi_bar, X):
            U, residuals = forward(X)
            return back(part.matrix_vjp(Phi_bar, U), residuals)

        return Explicit(part.size, lambda X: part.matrix(forward(X)[0]), matrix_vjp)

    def matrix(self, X1, X2=None):
        return self.inside().matrix(
            *(None if X is None else self.map(X, X1[:1])[0] for X in (X1, X2))
        )

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        def rule(points, need):
            return self.inside().matrix_vjp(K_bar, K, *points, need)

        return self._pulled(rule, {"X1": X1, "X2": X2}, need)

    def diag(self, X):
        return self.inside().diag(self.map(X, X[:1])[0])

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        def rule(points, need):
            return self.inside().diag_vjp(k_bar, *points, need)

        return self._pulled(rule, {"X": X}, need)

    def _pulled(self, rule, inputs, need):
        """Apply ``rule(points, need)`` of ``inside()``, and pull its cotangents back."""
        like, *_ = inputs.values()
        through = self.map_field and needs_fields(need_of(need, self.map_field))
        own = list(self.inside_need(need))
        own += [n for n, X in inputs.items() if through and X is not None and n not in own]
        if not own:
            return None, *(None for _ in inputs)
        maps = [(None, None) if X is None else self.map(X, like[:1]) for X in inputs.values()]
        part_bar, *U_bars = rule([U for U, _ in maps], tuple(own))
        map_bar, X_bars = None, []
        for name, U_bar, (_, residuals) in zip(inputs, U_bars, maps, strict=True):
            new = X_bar = None
            if U_bar is not None:
                words = tuple("X" if word == name else word for word in need)
                new, X_bar = self.pull(U_bar, residuals, words)
            map_bar = plus(new, map_bar)
            X_bars.append(X_bar)
        return self.outer(part_bar, map_bar, need, like), *X_bars
