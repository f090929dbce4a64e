"""Inputs x_n ~ N(mean_n, var_n), and predictions at them."""

import numpy as np

from .. import check
from ..bounds.predictor import predictor
from ..bounds.protocol import AT_RECORDS, ModelKind
from ..covariances.checks import all_codes
from ..records import leaf, record, static
from ..records.dtypes import common_dtype
from ..records.typed import Array
from ..runtime.dispatch import is_on_device
from .closed_form import ClosedFormPass
from .mixed import MixedPass
from .nodes import NodesPass

MOST_NODES = 100


@record
class GaussianInputs:
    """Inputs with normal errors, x_n ~ N(mean_n, var_n), in place of an array of test inputs.

    Predictions are moments over x_n too. Rows are independent.

    Parameters
    ----------
    mean : (N, D)
    var : (N, D), or (N, D, D)
        Variances, 0 for exact numbers, or one covariance matrix a row, for correlated errors.
    nodes : int, optional
        Gauss-Hermite nodes for each uncertain column, two columns at most. Default: the closed
        form, for RBF, Linear, Periodic, their sums, and their products over different columns.
        Columns of variance 0 in all rows may have any covariance. Static.

    Notes
    -----
    The closed form gives the exact mean and variance of f, and with Gaussian noise of targets. f is
    not normal: quantiles, densities, and targets of other likelihoods take the normal distribution
    with these two moments for it, an approximation. A row takes M^2 / 2 exponentials for each RBF
    term of the covariance, M^2 per pair of terms, and 2 M^2 P flops for P outputs; with ``nodes``,
    as much as ``nodes`` rows of an array, its square for two columns. Everything is in float64
    inside, and on the host. Source: Girard, Rasmussen, Quinonero Candela & Murray-Smith, "Gaussian
    process priors with uncertain inputs" (2003).

    Examples
    --------
    >>> noisy = fs.GaussianInputs(X, np.full_like(X, 0.1))
    >>> mean, var = fs.predict_f(model, noisy)
    >>> len(noisy), mean.shape, var.shape
    (40, (40,), (40,))
    """

    mean: Array = leaf()
    var: Array = leaf("positive")
    nodes: int | None = static(default=None)

    def __len__(self):
        return len(self.mean)

    def __getitem__(self, rows):
        """Return these rows, a slice or an index array."""
        return GaussianInputs(self.mean[rows], self.var[rows], nodes=self.nodes)

    def copy(self):
        """Return the inputs with arrays of their own."""
        return GaussianInputs(self.mean.copy(), self.var.copy(), nodes=self.nodes)

    def variances(self):
        """Return the variances (N, D)."""
        return self.var if self.var.ndim == 2 else np.diagonal(self.var, axis1=1, axis2=2)

    def uncertain(self):
        """Return which columns (D,) have errors in some row."""
        return (self.variances() > 0).any(axis=0)

    def times(self, slopes):
        """Return S w, (P, N, D), for slopes w (P, D)."""
        if self.var.ndim == 2:
            return slopes[:, None] * self.var
        return (slopes[:, None, None] * self.var).sum(-1)


def check_inputs(name, X):
    """Check uncertain inputs; return them in float64."""
    mean, var = (_numbers(f"{name}.{field}", getattr(X, field)) for field in ("mean", "var"))
    check.inputs(f"{name}.mean", mean)
    N, D = mean.shape
    if var.shape not in ((N, D), (N, D, D)):
        raise ValueError(
            f"`{name}.var` must have shape {N, D}, as `{name}.mean`, or {N, D, D} for correlated"
            f" errors, got {var.shape}"
        )
    check.finite(f"{name}.var", var)
    common_dtype(mean, var, names=(f"{name}.mean", f"{name}.var"))
    mean, var = (np.asarray(values, np.float64) for values in (mean, var))
    if var.ndim == 3:
        _check_matrices(f"{name}.var", var)
    nodes = X.nodes if X.nodes is None else check.whole("nodes", X.nodes)
    if nodes is not None and nodes > MOST_NODES:
        raise ValueError(f"`nodes` must be at most {MOST_NODES}, got {nodes}")
    checked = GaussianInputs(mean, var, nodes=nodes)
    _check_negative(f"{name}.var", checked.variances())
    return checked


def _numbers(name, value):
    value = check.as_array(name, value)
    if is_on_device(value):
        raise TypeError(
            f"`{name}` is on a device, and predictions at uncertain inputs are computed on the"
            " host: use fs.to_host(model), and .get() of the arrays"
        )
    return value


def _check_negative(name, var):
    if (var < 0).any():
        row, column = np.argwhere(var < 0)[0]
        raise ValueError(
            f"`{name}` holds variances, got {var[row, column]:g} at row {row}, column {column};"
            " give 0 for exact inputs"
        )


def _check_matrices(name, S):
    size = np.abs(S).max(axis=(1, 2), initial=0.0)
    apart = np.abs(S - np.swapaxes(S, 1, 2)).max(axis=(1, 2), initial=0.0)
    off = np.flatnonzero(apart > 1e-6 * size)
    if not off.size:
        least = np.linalg.eigvalsh(S)[:, 0]
        off = np.flatnonzero(least < -1e-6 * size)
    if off.size:
        raise ValueError(
            f"`{name}` must hold covariance matrices, symmetric and without negative eigenvalues;"
            f" that of row {off[0]} is not"
        )


class AtGaussianInputs(ModelKind):
    """A kind of model at uncertain inputs, for predictions."""

    def __init__(self, kind, X):
        self._kind, self._X = kind, X

    def checked(self, model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
        if type(self._kind).functions is ModelKind.functions:
            raise TypeError(
                f"`{names[0]}` is GaussianInputs, which an SVGP or MultiGP takes, not a"
                f" {type(model).__name__}: draw inputs, and average the predictions"
            )
        self._X = inputs = check_inputs(names[0], X)
        mean = check.as_array(f"{names[0]}.mean", X.mean)
        model, mean, Y, self._dtype = self._kind.checked(model, mean, Y, names)
        uncertain = inputs.uncertain()
        covariances = [layer.covariance for layer in self._kind.functions(model).layers]
        for column in all_codes(covariances, mean.shape[1]):
            if uncertain[column]:
                raise ValueError(
                    f"`{names[0]}.var` must be 0 in column {column}, which holds codes: a category"
                    " has no normal error"
                )
        return model, inputs, Y, self._dtype

    def begin(self, model, jitter, columns=0, need=(), **quantities):
        fast = predictor(model, jitter=jitter, dtype=np.float64)
        if self._X.nodes is not None or not self._X.uncertain().any():
            return NodesPass(self._kind.begin(fast, 0.0), self._X, self._dtype, need)
        functions = self._kind.functions(fast)
        if functions.axes is None:
            return ClosedFormPass(functions.layers[0], self._X, self._dtype, need)
        return MixedPass(functions, self._X, self._dtype, need)


AT_RECORDS[GaussianInputs] = AtGaussianInputs
