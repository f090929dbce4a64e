"""Outside the training range a searched model keeps its value at the border and loses certainty.

Ranks end at the smallest and largest training value, and a network is anything where it was not
trained. With b(x) the point of the training range (a box) nearest to x, the model is

    f(x) = f0(b(x)) + g(x),    g = sqrt(v) w'u,    w ~ N(0, I),    u = s / sqrt(1 + s's),
    s_d = sqrt(3) (x_d - b_d(x)) / h_d,

h_d the distance from the median of column d to that end of its range, so that the long and the
short side of a skewed column have scales of their own. Inside s = 0: nothing changes, to the bit.
Outside, g has the variance v s's / (1 + s's). At the border it begins as that of a Matern 3/2
process of variance v and lengthscales h whose value at the border is known, 3 v (distance / h)^2,
and it tends to v. A process on the inputs themselves is not held: f0 is evaluated at x.

Inducing variables are those of f0, so that

    Kuu = K0uu      Kuf = K0uf at b(x)      Kff = K0ff at b(x) + v u'u.
"""

from typing import Any

import numpy as np

from ..bounds.mixture import Mixture
from ..bounds.predict import predict_f
from ..covariances import Covariance, Linear, OnFeatures
from ..covariances.base import ALL, need_of, needs_fields
from ..covariances.features import Mapped, Stacked
from ..latents.model import MultiGP
from ..records import record, replace, static
from ..records.inducing_sets import stack_sets
from .model_search.rows import ends_of
from .scaling import UNUSED, ClassScale

# sqrt(v) over the standard deviation of f over the training rows: of numbers (docs/search.md has
# coverages), of classes (f at a border is some 3 deviations large), and of counts (their mean grows
# as exp(v / 2))
FAR, FAR_OF_CLASSES, FAR_OF_COUNTS = 2.5, 5.0, 1.0
ROWS = 2000  # from which that standard deviation comes
NARROW = 1e-3  # least h, relative to the width; a constant column has h = 1
FURTHEST = 1e6  # of s: further out u changes by rounding only
NAMED = 0.1  # part of v from which a row is named: s = 1/3 in one column, h / 5 outside
SHOWN = 2  # columns that a message names


@record
class BeyondRange(Covariance):
    """Covariance of a function plus an unknown change outside a box.

    Parameters
    ----------
    covariance : Covariance
        Of the function inside the box.
    low, middle, high : tuple of D floats
        The box, and a point of it from which the distances to its faces are the scales outside.
    variance : float
        Of the change, far outside.
    held : bool
        Whether the function is held at the faces; else it goes on, and the change is added.
    """

    covariance: Any
    low: tuple[float, ...] = static()
    middle: tuple[float, ...] = static()
    high: tuple[float, ...] = static()
    variance: float = static()
    held: bool = static(default=True)

    # --- shapes ---

    @property
    def columns_of(self):
        return self.covariance.columns_of

    def num_inducing(self, inducing):
        return self.covariance.num_inducing(inducing)

    def num_columns(self, inducing):
        return self.covariance.num_columns(inducing)

    def code_columns(self, D):
        return self.covariance.code_columns(D)

    def check_dim(self, D):
        for name in ("low", "middle", "high"):
            if len(getattr(self, name)) != D:
                raise ValueError(
                    f"BeyondRange: `{name}` has {len(getattr(self, name))} entries, but the inputs"
                    f" have D = {D} columns"
                )
        self.covariance.check_dim(D)

    # --- the nearest point, and the change ---

    def slopes(self):
        """Return the slopes (D,) of s below the box and above it."""
        low, middle, high = map(np.asarray, (self.low, self.middle, self.high))
        least = np.where(high > low, NARROW * (high - low), 1.0)
        return tuple(3**0.5 / np.maximum(side, least) for side in (middle - low, high - middle))

    def outside(self, X):
        """Return ``(b, s, slopes)``: the points at which f0 is evaluated, s, and its slopes."""
        ends = self.low, self.high, *self.slopes()
        low, high, below, above = (np.asarray(one, X.dtype, like=X) for one in ends)
        b = np.clip(X, low, high)
        slopes = np.where(X < b, below, above)
        s = np.clip((X - b) * slopes, -FURTHEST, FURTHEST)
        return b if self.held else X, s, slopes

    def _change(self, X):
        """Return ``(b, u, saved)`` of X; all None without X."""
        if X is None:
            return None, None, None
        b, s, slopes = self.outside(X)
        root = np.sqrt(1 + np.square(s).sum(axis=1, keepdims=True))
        return b, s / root, (s, slopes, root)

    def _back(self, b_bar, u_bar, saved):
        """Return the cotangent of X from those of b and u; None if both are."""
        if b_bar is None and u_bar is None:
            return None
        s, slopes, root = saved
        X_bar = np.zeros_like(s) if b_bar is None else b_bar
        s_bar = 0
        if u_bar is not None:
            u = s / root
            s_bar = (u_bar - u * (u * u_bar).sum(axis=1, keepdims=True)) / root
            s_bar = np.where(np.abs(s) < FURTHEST, s_bar * slopes, 0)
        return np.where(s == 0, X_bar, s_bar if self.held else X_bar + s_bar)

    @property
    def _of_u(self):
        """The covariance v u'u."""
        return Linear(self.variance)

    def _bar(self, covariance_bar, need):
        """Return the gradient from that of ``covariance``."""
        return replace(self, covariance=covariance_bar) if needs_fields(need) else None

    # --- blocks ---

    def Kuu(self, inducing, other=None):
        return self.covariance.Kuu(inducing, other)

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        own = need_of(need, "covariance")
        bar, *bars = self.covariance.Kuu_vjp(K_bar, K, inducing, other, own)
        return self._bar(bar, need), *bars

    def Kuf(self, inducing, X):
        return self.covariance.Kuf(inducing, self.outside(X)[0])

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        b, _, saved = self._change(X)
        own = need_of(need, "covariance")
        bar, inducing_bar, b_bar = self.covariance.Kuf_vjp(K_bar, K, inducing, b, own)
        return self._bar(bar, need), inducing_bar, self._back(b_bar, None, saved)

    def diag(self, X):
        b, u, _ = self._change(X)
        return self.covariance.kff(b) + self._of_u.diag(u)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        b, u, saved = self._change(X)
        bar, b_bar = self.covariance.kff_vjp(k_bar, b, need_of(need, "covariance"))
        u_bar = self._of_u.diag_vjp(k_bar, u, ("X",))[1] if "X" in need else None
        return self._bar(bar, need), self._back(b_bar, u_bar, saved)

    def matrix(self, X1, X2=None):
        (b1, u1, _), (b2, u2, _) = self._change(X1), self._change(X2)
        return self.covariance.Kff(b1, b2) + self._of_u.matrix(u1, u2)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        (b1, u1, saved1), (b2, u2, saved2) = self._change(X1), self._change(X2)
        words = {"X1": "X", "X2": "other"}
        own = tuple(words.get(word, word) for word in need_of(need, "covariance"))
        bar, b1_bar, b2_bar = self.covariance.Kff_vjp(K_bar, None, b1, b2, own)
        inputs = tuple(word for word in need if word in words)
        _, u1_bar, u2_bar = self._of_u.matrix_vjp(K_bar, None, u1, u2, inputs)
        X1_bar, X2_bar = self._back(b1_bar, u1_bar, saved1), self._back(b2_bar, u2_bar, saved2)
        return self._bar(bar, need), X1_bar, X2_bar

    # --- features ---

    def features(self, num, seeds, columns):
        def nearest(X):
            b, _, saved = self._change(X)
            return b, lambda b_bar: self._back(b_bar, None, saved)

        def change(X):
            _, u, saved = self._change(X)
            return u, lambda u_bar: self._back(None, u_bar, saved)

        inside = self.covariance.features(num, seeds, columns)
        of_u = self._of_u.features(num, seeds, columns)
        held, moves = Mapped(inside, nearest, columns), Mapped(of_u, change, columns)
        return _Held((held, moves), inside)


class _Held(Stacked):
    """Features of f0 and of the change; the inducing variables are those of f0."""

    def __init__(self, parts, inside):
        super().__init__(parts)
        self._inside = inside

    def multiply_inducing(self, inducing, w):
        values = getattr(self._inside, "multiply_inducing", self._inside.multiply)
        return values(
            stack_sets(inducing), np.ascontiguousarray(w[..., : self._inside.size], like=w)
        )


# --- models of a search ---------------------------------------------------------------------------


def unsure_outside(model, scale, rows, held):
    """Return the model, less certain outside the range of its training rows (unscaled).

    ``held``: whether it is held at the border; one on the features of a network always is.
    """
    if isinstance(model, Mixture):
        each = [unsure_outside(one, scale, rows, held) for one in model.models]
        return replace(model, models=tuple(each))
    f = mean_function(model)
    held = held or isinstance(f.covariance, OnFeatures)
    some = rows.draw(ROWS, np.random.default_rng(5))
    low, high = ends_of(rows.X)
    unused = scale.x_scale >= UNUSED
    low[unused], high[unused] = -UNUSED, UNUSED
    box = scale.X(np.stack([low, np.median(some.X, axis=0), high])).tolist()
    mean = predict_f(model, scale.X(some.X), var=False)
    mean = mean if f is model else mean[0]
    factor = FAR_OF_CLASSES if isinstance(scale, ClassScale) else FAR
    factor = FAR_OF_COUNTS if model.likelihood.counts else factor
    variance = factor**2 * float(np.mean(mean.var(axis=0)))
    ends = dict(zip(("low", "middle", "high"), map(tuple, box), strict=True))
    return with_covariance(model, BeyondRange(f.covariance, variance=variance, held=held, **ends))


def mean_function(model):
    """Return the part of a searched model that has the covariance of the mean."""
    return model.latents[0] if isinstance(model, MultiGP) else model


def with_covariance(model, covariance):
    """Return a searched model with another covariance of the mean."""
    f = mean_function(model)
    changed = replace(f, covariance=covariance)
    return changed if f is model else replace(model, latents=(changed, *model.latents[1:]))


def inside(covariance):
    """Return the covariance of the function inside the training range."""
    return covariance.covariance if isinstance(covariance, BeyondRange) else covariance


def rows_outside(model, X, names):
    """Describe the rows of X that lie far outside the training range; None if none does.

    Parameters
    ----------
    model : SVGP or another kind
    X : (N, D) array
        In the units of the model.
    names : sequence of D str
        Of the columns.
    """
    covariance = getattr(mean_function(model), "covariance", None)
    if not isinstance(covariance, BeyondRange):
        return None
    s = covariance.outside(X)[1]
    squares = np.square(s).sum(axis=1)
    far = squares > NAMED * (1 + squares)
    if not far.any():
        return None
    return describe_outside(s != 0, far, names)


def describe_outside(outside, far, names):
    """Describe rows ``far`` (N,) outside the training range, in columns ``outside`` (N, D)."""
    counts = outside[far].sum(axis=0)
    order = [d for d in np.argsort(-counts, kind="stable") if counts[d]]
    shown = ", ".join(f"{names[d]!s:.16}" for d in order[:SHOWN])
    more = f" and {len(order) - SHOWN} more" if len(order) > SHOWN else ""
    return f"{far.sum()} of {len(far)} rows are far outside the training range of {shown}{more}"
