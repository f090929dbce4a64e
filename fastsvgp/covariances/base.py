"""Base class of covariances: matrices with reverse rules, and the blocks of an approximation."""

from functools import cache, wraps
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from .. import kernels
from ..errors import not_written
from ..records import Blocks, is_record, plus, restricted, tree_map
from ..records.decorator import is_ours
from ..records.inducing_sets import InducingSets, sets_of, stack_sets, unstack_sets

ALL = ("covariance", "X1", "X2")


def _no_rule(cls, name, rule):
    """A method that refuses: the inherited reverse rule does not fit a redefined block."""

    def missing(self, *args, **named):
        raise NotImplementedError(
            f"{cls.__name__} defines `{name}` but not its reverse rule `{rule}`; define it to take"
            " gradients"
        )

    return missing


def _sets(inducing, others):
    return (
        isinstance(inducing, InducingSets) or bool(others) and isinstance(others[0], InducingSets)
    )


def _forward_on_stacks(block):
    """Wrap ``Kuu`` or ``Kuf``: sets of inducing inputs are stacked first."""

    @wraps(block)
    def call(self, inducing, *others, **named):
        if named or _sets(inducing, others):
            named = {name: stack_sets(value) for name, value in named.items()}
            return block(self, stack_sets(inducing), *map(stack_sets, others), **named)
        return block(self, inducing, *others)

    return call


def _reverse_on_stacks(rule):
    """Wrap the reverse rule of such a block: split cotangents of the stack into sets."""

    @wraps(rule)
    def call(self, K_bar, K, inducing, *others, **named):
        if not named and not _sets(inducing, others):
            return rule(self, K_bar, K, inducing, *others)
        other = others[0] if others else named.get("other")
        named = {name: stack_sets(value) for name, value in named.items()}
        covariance_bar, inducing_bar, other_bar = rule(
            self, K_bar, K, stack_sets(inducing), *map(stack_sets, others), **named
        )
        return covariance_bar, unstack_sets(inducing_bar, inducing), unstack_sets(other_bar, other)

    return call


class Covariance:
    """Base of covariance functions k(x, x'): records whose fields are parameters in natural space.

    A subclass provides ``matrix``, ``diag`` and their reverse rules. It lists in ``per_feature``
    the fields that can hold one entry per input column; the others hold one number. Bounds ask for
    blocks by name (``Kuu``, ``Kuf``, ``kff``, ``Kff``, each with its reverse rule), which by
    default are made of these methods.

    If the inducing variables are not values of the function, the subclass provides the blocks
    itself. It also provides ``num_inducing`` and ``num_columns`` if its inducing inputs are not
    arrays Z (M, D), and sets ``inducing_type`` if they are a record.

    Inputs are X (N, D). Methods check nothing (``fastsvgp.check`` does so in the public functions)
    and modify nothing. A cotangent ``covariance_bar`` is a record of the same type.

    ``need`` of a reverse rule holds names of inputs, and "covariance" or dotted names of single
    fields ("covariance.variance", "covariance.parts.0"). Cotangents that ``need`` does not name are
    not computed; they are returned as None. A requested field that a block does not depend on has a
    cotangent of zeros. docs/covariance.md shows how to add a covariance, step by step.

    Examples
    --------
    >>> both = fs.RBF(variance=1.0, lengthscales=0.5) + fs.Linear(variance=0.1)
    >>> both.matrix(X, Z).shape, isinstance(both, fs.covariances.Covariance)
    ((40, 6), True)
    """

    per_feature: ClassVar[tuple[str, ...]] = ()
    columns_of: ClassVar[str] = "`inducing`"  # for messages: it has as many columns as X
    # None: arrays (M, D), single or in the ``InducingSets`` of a posterior
    inducing_type: ClassVar[type | None] = None
    _depth = 0  # of parts within parts
    __array_ufunc__ = None  # NumPy leaves ``np.float64(2.0) * covariance`` to the covariance

    if TYPE_CHECKING:  # assigned by ``compose``, which knows sums and products

        def __add__(self, other: "Covariance | float") -> "Covariance": ...

        def __radd__(self, other: float) -> "Covariance": ...

        def __mul__(self, other: "Covariance | float") -> "Covariance": ...

        def __rmul__(self, other: float) -> "Covariance": ...

        def on(self, *columns: int) -> "Covariance": ...  # by ``columns``

    def matrix(self, X1, X2=None):
        """K(X1, X2), (N1, N2). ``X2=None`` stands for X1: the result is then exactly symmetric."""
        raise not_written(self, "matrix", "covariance")

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        """Cotangents ``(covariance_bar, X1_bar, X2_bar)`` of ``matrix``; None if not needed.

        K_bar : (N1, N2), not modified. For ``X2=None`` it is symmetric, ``X1_bar`` holds both
            sides, and ``X2_bar`` is None.
        K : the result of ``matrix``, or None if the caller does not have it.
        """
        raise not_written(self, "matrix_vjp", "covariance")

    def diag(self, X):
        """k(x, x) of each row, (N,)."""
        raise not_written(self, "diag", "covariance")

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        """Cotangents ``(covariance_bar, X_bar)`` of ``diag``; None if not in ``need``."""
        raise not_written(self, "diag_vjp", "covariance")

    def gradient(self, need, like, **bars):
        """Record of the cotangents of fields; None if ``need`` names no field.

        ``bars`` has the cotangents by field name: arrays, or functions that return them, which are
        called only if ``need`` names the field; records for fields that are covariances. They are
        cast to the dtype of ``like``. A field that is not needed has None, and a needed one that
        ``bars`` leaves out has zeros.
        """
        if not needs_fields(need):
            return None
        new = object.__new__(type(self))  # skips __init__, as ``tree_map`` does
        fields = new.__dict__
        for name, kind in self._record_fields:
            value, bar = getattr(self, name), bars.get(name)
            if kind == "static":
                bar = value
            elif kind == "record" and isinstance(value, tuple):
                parts = enumerate(zip(value, bar, strict=True))
                bar = tuple(_part_bar(*part, need, f"{name}.{i}", like) for i, part in parts)
            elif kind == "record":
                bar = _part_bar(value, bar, need, name, like)
            elif not needs(need, name):
                bar = None
            else:
                bar = bar() if callable(bar) else bar
                bar = zeros_like(value, like) if bar is None else bar
                bar = bar.astype(like.dtype, copy=False)
            fields[name] = bar
        return new

    def check_dim(self, D):
        """Raise ``ValueError`` if the shape of a field does not fit inputs with D columns."""
        for name, kind in self._record_fields:
            if kind != "static":
                self._check_shape(name, D)

    def _check_shape(self, name, D):
        """Check the shape of one field."""
        shape, per_feature = np.shape(getattr(self, name)), name in self.per_feature
        if shape != () and not (per_feature and shape == (D,)):
            allowed = f"() (shared by all columns) or ({D},)" if per_feature else "()"
            misplaced = shape == (D,) and "lengthscales" in self.per_feature
            meant = "; is it meant as `lengthscales`?" if misplaced else ""
            if not is_ours(type(self)):
                meant = ", or override `check_dim`"
            raise ValueError(
                f"{type(self).__name__}: `{name}` has shape {shape}, but the inputs have D = {D}"
                f" columns; give it shape {allowed}{meant}"
            )

    def code_columns(self, D):
        """Return the columns of inputs (N, D) that hold codes, each with the number of its codes.

        Codes are whole numbers 0 ... C - 1 that name categories. The dictionary maps a column to
        C, or to None if there is no limit. The gradient in a code is 0, so inducing inputs must
        be rows of data there, and must not be standardised.
        """
        return {}

    # --- blocks by name: for bounds, predictions and updates --------------------------------------

    def __init_subclass__(cls):
        """Wrap redefined blocks to stack inducing inputs, and disable inherited reverse rules.

        The inherited reverse rule of a redefined block would be wrong.
        """
        own = dict(vars(cls))
        for name, rule in (
            ("Kuu", "Kuu_vjp"),
            ("Kuf", "Kuf_vjp"),
            ("kff", "kff_vjp"),
            ("Kff", "Kff_vjp"),
        ):
            if name in own and rule not in own:
                setattr(cls, rule, _no_rule(cls, name, rule))
            elif rule in own and name in ("Kuu", "Kuf"):
                setattr(cls, rule, _reverse_on_stacks(own[rule]))
            if name in own and name in ("Kuu", "Kuf"):
                setattr(cls, name, _forward_on_stacks(own[name]))

    def num_inducing(self, inducing):
        """Number of inducing variables: (M,), or one number per set."""
        return tuple(map(len, sets_of(inducing)))

    def num_columns(self, inducing):
        """D, the number of columns of X."""
        return sets_of(inducing)[0].shape[1]

    @_forward_on_stacks
    def Kuu(self, inducing, other=None):
        """Covariances (M, M) of the inducing variables, or (M, M') with those of ``other``."""
        return self.matrix(inducing, other)

    @_reverse_on_stacks
    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        """Cotangents ``(covariance_bar, inducing_bar, other_bar)`` of ``Kuu``.

        K_bar is symmetric without ``other``.
        """
        return self.matrix_vjp(
            K_bar, K, inducing, other, matrix_need(tuple(need), "inducing", "other")
        )

    @_forward_on_stacks
    def Kuf(self, inducing, X):
        """Covariances (M, N) of the inducing variables and the function at X."""
        return self.matrix(inducing, X)

    @_reverse_on_stacks
    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        """Cotangents ``(covariance_bar, inducing_bar, X_bar)`` of ``Kuf``."""
        return self.matrix_vjp(K_bar, K, inducing, X, matrix_need(tuple(need), "inducing", "X"))

    def kff(self, X):
        """Variances (N,) of the function at X."""
        return self.diag(X)

    def kff_vjp(self, k_bar, X, need=("covariance", "X")):
        """Cotangents ``(covariance_bar, X_bar)`` of ``kff``."""
        return self.diag_vjp(k_bar, X, need)

    def Kff(self, X, other=None):
        """Covariances (N, N) of the function at X, or (N, N') with the function at ``other``."""
        return self.matrix(X, other)

    def Kff_vjp(self, K_bar, K, X, other=None, need=("covariance", "X", "other")):
        """Cotangents ``(covariance_bar, X_bar, other_bar)`` of ``Kff``.

        K_bar is symmetric without ``other``.
        """
        return self.matrix_vjp(K_bar, K, X, other, matrix_need(tuple(need), "X", "other"))

    def features(self, num, seeds, columns):
        """``Features`` of the covariance for inputs with ``columns`` columns, as paths need them.

        num : number of random features, even. Covariances of finite rank have their own number.
        seeds : int, of the features of all functions, or (S,) uint64 array, one per function.
        """
        raise TypeError(
            f"{type(self).__name__} has no random features; draw joint values with sample_f"
        )

    def spectral_terms(self, D):
        """``(columns, lengthscales, smoothness)`` of each stationary term; nu, infinite of an RBF.

        Covariances that have them also have ``log_spectral_density(squares)`` (m,) at squared
        frequencies (m, D), NaN in columns on which a term does not depend, and its ``_vjp``.
        """
        raise TypeError(
            f"{type(self).__name__} has no spectral density in closed form; use RBF, Matern12,"
            " Matern32, Matern52, a sum of these, or Additive"
        )

    # --- inner covariance: a covariance of features computes the features once per pass -----------

    def inner(self, X):
        """``(covariance, rows, saved)``: blocks at X equal those of ``covariance`` at ``rows``."""
        return self, X, None

    def inner_need(self, need):
        """Translate ``need`` for reverse rules of the inner covariance."""
        return need

    def inner_vjp(self, rows_bar, saved, need):
        """Cotangents ``(below_bar, X_bar)``: of fields that only the rows depend on, and of X."""
        return None, rows_bar

    def outer_bar(self, covariance_bar, below_bar, need, like):
        """Combine the inner ``covariance_bar`` and ``below_bar`` into that of this covariance."""
        return covariance_bar

    def blocks(self, Z, X, full_cov=False):
        """``Blocks(Kuu, Kuf, kff, Kff)`` of inducing inputs Z (M, D) and a batch X (N, D).

        Kff is None unless ``full_cov``.
        """
        return Blocks(self.Kuu(Z), self.Kuf(Z, X), self.kff(X), self.Kff(X) if full_cov else None)

    def blocks_vjp(self, blocks_bar, blocks, inducing, X, need=("covariance", "inducing")):
        """Cotangents ``(covariance_bar, inducing_bar, X_bar)`` of ``blocks``; None if not needed.

        blocks_bar : Blocks. ``Kuu`` and ``Kff`` are symmetric; None counts as zero.
        blocks : the result of ``blocks``; reusing its matrices saves the exponentials.
        """
        of_u = tuple(name for name in need if name != "X")
        of_f = tuple(name for name in need if name != "inducing")
        total = None
        if blocks_bar.Kuu is not None and of_u:
            covariance_bar, inducing_bar, _ = self.Kuu_vjp(
                blocks_bar.Kuu, blocks.Kuu, inducing, None, of_u
            )
            total = covariance_bar, inducing_bar, None
        if blocks_bar.Kuf is not None and need:
            total = plus(self.Kuf_vjp(blocks_bar.Kuf, blocks.Kuf, inducing, X, need), total)
        if blocks_bar.Kff is not None and of_f:
            covariance_bar, X_bar, _ = self.Kff_vjp(blocks_bar.Kff, blocks.Kff, X, None, of_f)
            total = plus((covariance_bar, None, X_bar), total)
        if blocks_bar.kff is not None and of_f:
            covariance_bar, X_bar = self.kff_vjp(blocks_bar.kff, X, of_f)
            total = plus((covariance_bar, None, X_bar), total)
        return tuple(
            zeros_like(tree, X) if bar is None and needed else bar
            for bar, tree, needed in zip(
                total or (None, None, None),
                (self, inducing, X),
                (needs_fields(need), "inducing" in need, "X" in need),
                strict=True,
            )
        )


class Homogeneous(Covariance):
    """Base of covariances with k(x, x) = variance, a field, at every x.

    Examples
    --------
    >>> from fastsvgp.extending import Homogeneous
    >>> isinstance(fs.RBF(), Homogeneous), fs.RBF(2.0).diag(np.zeros((2, 1)))
    (True, array([2., 2.]))
    """

    def diag(self, X):
        return kernels.full(len(X), self.variance, X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        bar = self.gradient(need, X, variance=lambda: k_bar.sum(dtype=np.float64))
        return bar, *no_inputs(need, X=X)


def no_inputs(need, **inputs):
    """Cotangents of inputs of which nothing is a function: zeros, or None if not needed."""
    return [
        np.zeros_like(X) if name in need and X is not None else None for name, X in inputs.items()
    ]


@cache
def matrix_need(need, first, second):
    """Translate ``need`` for ``matrix_vjp``: the two inputs become "X1" and "X2"."""
    known = {first: "X1", second: "X2"}
    for name in need:
        if name not in known and name.partition(".")[0] != "covariance":
            raise ValueError(
                f"`need` names {name!r}; it can hold 'covariance' or fields of it, {first!r},"
                f" {second!r}"
            )
    return tuple(known.get(name, name) for name in need)


def needs_fields(need):
    """Whether ``need`` asks for any field of a covariance."""
    return "covariance" in need or any(name.startswith("covariance.") for name in need)


def needs(need, field):
    """Whether ``need`` asks for the derivative with respect to this field of a covariance."""
    return "covariance" in need or f"covariance.{field}" in need


def need_of(need, field):
    """Translate ``need`` for the record in a field.

    For the field "parts.1", "covariance.parts.1.variance" becomes "covariance.variance".
    """
    path, words = f"covariance.{field}", []
    for name in need:
        if path == name or path.startswith(name + "."):
            words.append("covariance")
        elif name.startswith(path + "."):
            words.append("covariance" + name.removeprefix(path))
        elif name.partition(".")[0] != "covariance":
            words.append(name)
    return tuple(words)


def _part_bar(part, bar, need, field, like):
    """Return the cotangent of a record in a field: zeros where they are needed, instead of None."""
    if bar is not None or part is None:
        return bar
    need = need_of(need, field)
    if not needs_fields(need):
        return tree_map(lambda leaf: None, part)
    bar = zeros_like(part, like)
    if "covariance" in need:
        return bar
    return restricted(bar, tuple(name.partition(".")[2] for name in need if "." in name))


def tiles(shape, like, size=12_288):
    """Yield tiles of a matrix as pairs of slices: of rows, and of columns if these are many.

    The steps of an entrywise function keep their results in the caches. ``size`` is the number of
    entries of a tile on the CPU; by default below 128 kB, which malloc reuses.
    """
    size = size if isinstance(like, np.ndarray) else kernels.chunk_numbers(like)
    width = max(1, min(shape[1], size))
    height = size // width
    for i in range(0, shape[0], height):
        for j in range(0, shape[1], width):
            yield slice(i, i + height), slice(j, j + width)


def zeros_like(tree, X):
    """The zero gradient of a record or an array, in the dtype and on the device of X."""
    if is_record(tree):
        return tree_map(lambda leaf: zeros_like(leaf, X), tree)
    return np.zeros(np.shape(tree), X.dtype, like=X)[()]
