"""Mean functions: ``mean(X)``, (N,) or (P, N), is added to the latent mean.

Come here where the data have a level or a trend that the covariance should not explain.
"""

import numpy as np

from . import kernels
from .public_names import offer
from .records import leaf, record
from .records.typed import Number

NEED = ("mean", "X")


def _sum_to(bar, shape):
    """Sum over axes that were broadcast, in float64."""
    lead = bar.ndim - len(shape)
    return bar.sum(tuple(range(lead)), dtype=np.float64).astype(bar.dtype) if lead else bar


class Mean:
    """Base of mean functions of inputs X (N, D).

    Examples
    --------
    >>> isinstance(fs.means.ZeroMean(), fs.means.Mean)
    True
    """

    def __call__(self, X):
        """Evaluate the mean: (N,), or (P, N) if the fields have a leading output axis."""
        raise NotImplementedError

    def vjp(self, mean_bar, X, need=NEED):
        """Cotangents ``(record_bar, X_bar)``; None if not in ``need``, which holds "mean", "X".

        mean_bar : (N,) or (P, N); summed over an output axis that the mean does not have.
        """
        raise NotImplementedError

    def check_shapes(self, D, outputs):
        """Raise ``ValueError`` unless fields fit D input columns and ``outputs``, () or (P,)."""


def _column(leaf):
    """One number for all data, or one per row of (P, N)."""
    return leaf[..., None] if np.ndim(leaf) else leaf


def _check_shape(mean, name, allowed):
    shape = np.shape(getattr(mean, name))
    if shape not in allowed:
        allowed = " or ".join(str(a) for a in dict.fromkeys(allowed))
        raise ValueError(
            f"{type(mean).__name__}: `{name}` has shape {shape}; these inputs and outputs need"
            f" {allowed}"
        )


@record
class ZeroMean(Mean):
    """m(x) = 0.

    Examples
    --------
    >>> fs.means.ZeroMean()(X[:3])
    array([0., 0., 0.])
    """

    def __call__(self, X):
        return np.zeros_like(X, shape=len(X))

    def vjp(self, mean_bar, X, need=NEED):
        return ZeroMean() if "mean" in need else None, np.zeros_like(X) if "X" in need else None


@record
class ConstantMean(Mean):
    """m(x) = value.

    Parameters
    ----------
    value : () or (P,)
        One value for all outputs, or one per output.

    Examples
    --------
    >>> fs.replace(model, mean=fs.means.ConstantMean(value=3.0)).mean(X[:2])
    array([3., 3.])
    """

    value: Number = leaf(default=0.0)

    def __call__(self, X):
        return np.zeros((*np.shape(self.value), len(X)), X.dtype, like=X) + _column(self.value)

    def vjp(self, mean_bar, X, need=NEED):
        bar = None
        if "mean" in need:
            bar = ConstantMean(
                _sum_to(mean_bar.sum(-1, dtype=np.float64), np.shape(self.value)).astype(X.dtype)
            )
        return bar, np.zeros_like(X) if "X" in need else None

    def check_shapes(self, D, outputs):
        _check_shape(self, "value", ((), outputs))


@record
class LinearMean(Mean):
    """m(x) = weights . x + bias.

    Parameters
    ----------
    weights : (D,) or (P, D)
        Weights for all outputs, or one row per output.
    bias : () or (P,)
        One bias for all outputs, or one per output.

    Examples
    --------
    >>> fs.means.LinearMean(weights=np.array([1.0, -1.0]), bias=0.5)(np.array([[1.0, 2.0]]))
    array([-0.5])
    """

    weights: Number = leaf()
    bias: Number = leaf(default=0.0)

    def __call__(self, X):
        mean = kernels.inner(np.atleast_2d(self.weights), X, 1)
        mean = mean[0] if np.ndim(self.weights) == 1 else mean
        return mean + _column(self.bias)

    def vjp(self, mean_bar, X, need=NEED):
        lead = np.shape(self.weights)[:-1]
        wanted = tuple(theirs for ours, theirs in (("mean", "X1"), ("X", "X2")) if ours in need)
        per_output = np.atleast_2d(_sum_to(mean_bar, (*lead, len(X))))
        weights_bar, X_bar, _ = kernels.inner_vjp(
            per_output, np.atleast_2d(self.weights), X, 1, need=wanted
        )
        if "mean" not in need:
            return None, X_bar
        bias_bar = _sum_to(mean_bar.sum(-1, dtype=np.float64), np.shape(self.bias)).astype(X.dtype)
        return LinearMean(weights_bar.reshape(np.shape(self.weights)), bias_bar), X_bar

    def check_shapes(self, D, outputs):
        _check_shape(self, "weights", ((D,), (*outputs, D)))
        _check_shape(self, "bias", ((), outputs))


@record
class IdentityMean(Mean):
    """m(x) = x, with one output per input column. The initial mean of hidden layers of a deep GP.

    Examples
    --------
    >>> fs.means.IdentityMean()(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[1., 3.],
           [2., 4.]])
    """

    def __call__(self, X):
        return np.ascontiguousarray(X.T, like=X)

    def vjp(self, mean_bar, X, need=NEED):
        X_bar = np.array(mean_bar.T, order="C", like=X) if "X" in need else None
        return IdentityMean() if "mean" in need else None, X_bar

    def check_shapes(self, D, outputs):
        if outputs != (D,):
            raise ValueError(
                f"IdentityMean: the inputs have {D} columns and the outputs are {outputs}; it needs"
                f" ({D},), one output per column. Use pca_mean(X, P) for other numbers of outputs"
            )


__getattr__, __dir__, __all__ = offer("means")
