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
        """Return mapped inputs (N, F), and their pullback; ``origin`` (1, D) is one of the inputs.

        ``back(U_bar, need)`` returns ``(map_bar, X_bar)``, the cotangents of the field of the map,
        in float64, and of X.
        """
        raise NotImplementedError

    def sizes(self, columns):
        """Return the columns of mapped inputs, and the numbers of one with its residuals."""
        raise NotImplementedError

    def outer(self, part_bar, map_bar, need, like):
        """Combine the cotangents of ``inside()`` and of the map; each can be None."""
        own = {self.map_field: map_bar} if self.map_field else {}
        return self.gradient(need, like, **{self.part_field: part_bar}, **own)

    def features(self, num, seeds, columns):
        inner, width = self.sizes(columns)
        part = self.inside().features(num, seeds, inner)

        def forward(X):
            U, back = self.map(X, X[:1])
            return U, lambda U_bar: back(U_bar, ("X",))[1]

        if not isinstance(part, Explicit):
            return Mapped(part, forward, width)

        def matrix_vjp(Phi_bar, X):
            U, back = forward(X)
            return back(part.matrix_vjp(Phi_bar, U))

        return Explicit(part.size, lambda X: part.matrix(forward(X)[0]), matrix_vjp)

    def matrix(self, X1, X2=None):
        second = None if X2 is None else self.map(X2, X1[:1])[0]
        return self.inside().matrix(self.map(X1, X1[:1])[0], second)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        own = self._own_need(need, ("X1",) if X2 is None else ("X1", "X2"))
        if not own:
            return None, None, None
        maps = [self.map(X1, X1[:1]), (None, None) if X2 is None else self.map(X2, X1[:1])]
        bars = self.inside().matrix_vjp(K_bar, K, maps[0][0], maps[1][0], own)
        return self._pull(bars, ("X1", "X2"), maps, need, X1)

    def diag(self, X):
        return self.inside().diag(self.map(X, X[:1])[0])

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        own = self._own_need(need, ("X",))
        if not own:
            return None, None
        maps = [self.map(X, X[:1])]
        bars = self.inside().diag_vjp(k_bar, maps[0][0], own)
        return self._pull(bars, ("X",), maps, need, X)

    def _own_need(self, need, inputs):
        """Return what is needed of ``inside()``: also its inputs, for the field of the map."""
        own = self.inside_need(need)
        if self.map_field and needs_fields(need_of(need, self.map_field)):
            own = *own, *(name for name in inputs if name not in own)
        return own

    def _pull(self, bars, names, maps, need, like):
        part_bar, *bars = bars
        map_bar = None
        for i, (name, (_, back)) in enumerate(zip(names, maps, strict=True)):
            if bars[i] is not None:
                words = tuple("X" if word == name else word for word in need)
                new, bars[i] = back(bars[i], words)
                map_bar = plus(new, map_bar)
        return self.outer(part_bar, map_bar, need, like), *bars
