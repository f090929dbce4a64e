"""What every covariance offers, and how its pieces make the blocks of a sparse approximation."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..records import Blocks, is_record, tree_map

ALL = ("covariance", "X1", "X2")


class Covariance:
    """Base of covariance functions k(x, x'): records whose fields are parameters in natural space.

    A member provides ``matrix``, ``diag`` and their reverse rules, and lists in ``per_feature`` the fields that may hold one
    entry a feature (the others hold one number). Inputs are X (N, D); nothing is checked here (``fastsvgp.check`` does that at
    the public edge), nothing is modified. A cotangent ``covariance_bar`` is a record of the same type.

    ``need`` of a reverse rule holds names of inputs, and "covariance" or dotted names of single fields
    ("covariance.variance", "covariance.parts.0"): what is not in it is neither computed nor returned, but None.
    """

    per_feature: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:  # given to the class where sums and products are known

        def __add__(self, other: "Covariance") -> "Covariance": ...

        def __mul__(self, other: "Covariance") -> "Covariance": ...

    def matrix(self, X1, X2=None):
        """K(X1, X2), (N1, N2). ``X2=None`` stands for ``X1``; the result is then exactly symmetric."""
        raise NotImplementedError

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        """Cotangents ``(covariance_bar, X1_bar, X2_bar)`` of ``matrix``; None for what is not in ``need``.

        K_bar : (N1, N2), not modified; for ``X2=None`` symmetric: ``X1_bar`` then holds both sides and ``X2_bar`` is None.
        K : what ``matrix`` returned, or None where it is not at hand.
        """
        raise NotImplementedError

    def diag(self, X):
        """k(x, x) of each row, (N,)."""
        raise NotImplementedError

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        """Cotangents ``(covariance_bar, X_bar)`` of ``diag``; None for what is not in ``need``."""
        raise NotImplementedError

    def check_dim(self, D):
        """Raise ``ValueError`` where the shape of a field does not fit inputs with D columns."""
        for name, kind in self._record_fields:
            shape = np.shape(getattr(self, name))
            per_feature = name in self.per_feature
            if kind != "static" and shape != () and not (per_feature and shape == (D,)):
                allowed = f"() (shared by all columns) or ({D},)" if per_feature else "()"
                raise ValueError(
                    f"{type(self).__name__}: `{name}` has shape {shape}, but the inputs have D = {D} columns; "
                    f"give it shape {allowed}"
                )

    def blocks(self, Z, X, full_cov=False):
        """``Blocks(Kuu, Kuf, kff, Kff)`` of inducing inputs Z (M, D) and a batch X (N, D); Kff only for ``full_cov``."""
        return Blocks(self.matrix(Z), self.matrix(Z, X), self.diag(X), self.matrix(X) if full_cov else None)

    def blocks_vjp(self, blocks_bar, blocks, Z, X, need=("covariance", "Z")):
        """Cotangents ``(covariance_bar, Z_bar, X_bar)`` of ``blocks``; None for what is not in ``need``.

        blocks_bar : Blocks; ``Kuu`` and ``Kff`` symmetric; parts that are None count as zero.
        blocks : what ``blocks`` returned; its matrices save the exponentials.
        """
        fields = tuple(name for name in need if name not in ("Z", "X"))
        need_Z, need_X = "Z" in need, "X" in need
        of_Z, of_X = (*fields, "X1") if need_Z else fields, (*fields, "X1") if need_X else fields
        covariance_bars, Z_bars, X_bars = [], [], []
        if blocks_bar.Kuu is not None and of_Z:
            covariance_bar, Z_bar, _ = self.matrix_vjp(blocks_bar.Kuu, blocks.Kuu, Z, None, of_Z)
            covariance_bars.append(covariance_bar)
            Z_bars.append(Z_bar)
        if blocks_bar.Kuf is not None and (of_Z or need_X):
            of_both = (*of_Z, "X2") if need_X else of_Z
            covariance_bar, Z_bar, X_bar = self.matrix_vjp(blocks_bar.Kuf, blocks.Kuf, Z, X, of_both)
            covariance_bars.append(covariance_bar)
            Z_bars.append(Z_bar)
            X_bars.append(X_bar)
        if blocks_bar.Kff is not None and of_X:
            covariance_bar, X_bar, _ = self.matrix_vjp(blocks_bar.Kff, blocks.Kff, X, None, of_X)
            covariance_bars.append(covariance_bar)
            X_bars.append(X_bar)
        if blocks_bar.kff is not None and of_X:
            covariance_bar, X_bar = self.diag_vjp(blocks_bar.kff, X, (*fields, "X") if need_X else fields)
            covariance_bars.append(covariance_bar)
            X_bars.append(X_bar)
        return (
            _total(covariance_bars, self, X) if fields else None,
            _total(Z_bars, Z, X) if "Z" in need else None,
            _total(X_bars, X, X) if "X" in need else None,
        )


def wanted(need, field):
    """Whether ``need`` asks for the derivative in this field of a covariance."""
    return "covariance" in need or f"covariance.{field}" in need


def zeros_like(tree, X):
    """The zero gradient of a record or an array, in the dtype of X and where X is."""
    if is_record(tree):
        return tree_map(lambda leaf: zeros_like(leaf, X), tree)
    return np.zeros(np.shape(tree), X.dtype, like=X)[()]


def _total(bars, like, X):
    """Sum of cotangents of one thing; those that are None are zero."""
    bars = [bar for bar in bars if bar is not None]
    if not bars:
        return zeros_like(like, X)
    return tree_map(_sum, *bars) if is_record(bars[0]) else _sum(*bars)


def _sum(first, *others):
    for other in others:
        first = first + other
    return first
