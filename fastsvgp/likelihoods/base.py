"""Base class of likelihoods, and helpers that they share."""

import math
import numbers
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from ..errors import not_written
from ..records import Marginals, replace
from ..runtime import deferred_checks

LikelihoodT = TypeVar("LikelihoodT", bound="Likelihood")
CHUNK = 4096  # data per chunk of temporaries
ON_DEVICE = 64  # factor on the chunk size on a device
LEAST = -1e300  # stands for the logarithm of 0
SMALLEST = 1e-100  # lower limit of variances and rates that are divided by


def whole_number(least):
    """An entry of ``Likelihood.settings``: a whole number of at least ``least``."""
    return (
        lambda value: float(value).is_integer() and value >= least,
        f"a whole number of at least {least}",
    )


POSITIVE = (lambda value: 0 < value < np.inf, "positive and finite")
NODES = {"num_nodes": whole_number(1)}


class Likelihood:
    """Base of likelihoods p(y | f), with data independent given f; subclasses are records.

    For a likelihood of your own start from ``OneLatent``, or ``TwoLatents`` for two functions: they
    need formulas given f alone, and have an example.

    Targets ``Y`` are (N,) or (P, N), and (C, N) or (C, P, N) if a target has C > 1 columns, such as
    a count and its exposure: see ``target_columns``. Weights, ``f`` and predictions have the shape
    of one column. ``f`` is a ``Marginals`` of the same shape, q(f) = N(mean,
    var) elementwise. A multi-class likelihood has ``f`` (C, N) and integer ``Y`` (N,). A likelihood
    of K = ``latents_per_output`` > 1 functions per output has ``f`` (K, N) or (K, P, N), of
    functions that are independent under q; predictions have the shape of ``Y``. Results have the
    dtype of ``f.mean``; sums over data are accumulated in float64. Methods do not modify their
    arguments. docs/likelihood.md shows how to add a likelihood, step by step.

    Examples
    --------
    >>> f = fs.records.Marginals(np.zeros(40), np.ones(40))
    >>> ell, f_bar, likelihood_bar = gaussian.expected_log_prob(Y, f)
    >>> f_bar.mean.shape, isinstance(likelihood_bar, fs.Gaussian)
    ((40,), True)
    """

    # whether log p(y | f) is concave in f for every y; bounds from samples require this
    log_concave: ClassVar[bool] = False
    # whether E_q(f)[log p(y | f)] is linear in f.var, with slopes that do not depend on q(f): then
    # bounds take sums of variances. A subclass with an expectation of its own sets it again
    linear_in_var: ClassVar[bool] = False
    samples: ClassVar[bool] = False  # whether ``expected_log_prob`` draws random numbers
    # whether targets are ordered whole numbers: their distribution function is then a step function
    counts: ClassVar[bool] = False
    # number of latent functions; None: ``latents_per_output`` per output, any number of outputs
    num_latent: int | None = None
    # latent functions that the density of one target reads: see ``layout``
    latents_per_output: ClassVar[int] = 1
    # columns of one target in Y, y first: it may depend on settings. With C > 1 names, Y is (N, C)
    # or (N, P, C), and the methods receive (C, N) or (C, P, N)
    target_columns: tuple[str, ...] = ("y",)
    # what predictions of y take for the other columns: one trial, one unit of exposure
    unit_columns: ClassVar[tuple[float, ...]] = ()
    # static field: (whether a value is valid, description of valid values)
    settings: ClassVar[dict[str, tuple[Callable[[float], bool], str]]] = {}

    def __init_subclass__(cls):
        super().__init_subclass__()
        if not vars(cls).keys().isdisjoint(("expected_log_prob", "expected", "linear_in_var")):
            cls.linear_in_var = vars(cls).get("linear_in_var", False)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        """Sum E_q(f)[log p(y | f)] over the data, and differentiate the sum.

        Parameters
        ----------
        Y, f : see the class
        rng : None, int or numpy.random.Generator
            Only read by likelihoods that sample.
        need : bool
            False: return the value only.
        weights : as ``Y``, optional
            Non-negative weight of each datum, in the sum and in all derivatives. ``Y`` holds valid
            targets at weights of 0 too: the bounds fill them in.

        Returns
        -------
        ell : float
        f_bar : Marginals
            Derivatives of ``ell`` in ``f.mean`` and ``f.var``. If a quadrature rule or samples
            approximate the integral, they are exact derivatives of that approximation. None without
            ``need``.
        likelihood_bar : record of the type of the likelihood
            Derivatives in its own parameters. None without ``need``.
        """
        f, dtype = that_count(f, weights), f.mean.dtype
        found = self.expected(Y, f, need)
        if hasattr(found, "shape"):  # its first row would be taken for the values
            raise TypeError(
                f"{type(self).__name__}.expected must return a tuple of arrays: the values, then"
                " the derivatives in f.mean, f.var and each parameter; got an array"
            )
        values, *bars = found
        ell = total(values, weights)
        if not need:
            return ell, None, None
        names = self._check_count("expected", bars, ("f.mean", "f.var"))
        d_mean, d_var, *own = bars
        f_bar = Marginals(*(weight_finite(bar, weights, dtype) for bar in (d_mean, d_var)))
        if not names:
            return ell, f_bar, self
        own = (in_dtype(total(bar, weights, values.ndim), dtype) for bar in own)
        return ell, f_bar, replace(self, **dict(zip(names, own, strict=True)))

    def _check_count(self, method, slopes, of):
        """Return the names of the parameters; ``slopes`` must be those in ``of`` and in each."""
        names = [name for name, kind in self._record_fields if kind != "static"]
        extra = len(slopes) - len(of) - len(names)
        if extra < 0 or extra and names:
            raise TypeError(
                f"{type(self).__name__}.{method} returned {1 + len(slopes)} arrays, but the value"
                f" and the derivatives in {', '.join([*of, *names])} are due"
            )
        return names

    def expected(self, Y, f, need=True):
        """E_q(f)[log p(y | f)] of each datum and its derivatives, from which the sum is made.

        A tuple of float64 arrays: the values, in the shape of targets of one column; then, with
        ``need``, the derivatives in ``f.mean`` and in ``f.var``, in their shape, and in each
        parameter, in the order of the fields, in the shape of the values (with leading axes for a
        parameter that is an array). There is no sum and no weight.
        """
        raise not_written(self, "expected", "likelihood")

    def of_variances(self, ell):
        """Derivatives in the parameters of ``ell``, a part of the sum that is linear in ``f.var``.

        A record as ``likelihood_bar``; None if ``ell`` alone does not determine them.
        """
        return None

    def predict_mean_and_var(self, f):
        """Mean and variance of y under q(f), in the shape of ``f.mean`` (of targets if K > 1)."""
        raise not_written(self, "predict_mean_and_var", "likelihood")

    def predict_log_density(self, Y, f):
        """log E_q(f)[p(y | f)] per datum, (N,); summed over outputs if there are several."""
        raise not_written(self, "predict_log_density", "likelihood")

    def predict_cdf(self, Y, f):
        """P(y <= Y) under q(f), in the shape of ``Y``, for numeric targets."""
        raise TypeError(no_order(self))

    def predict_quantiles(self, levels, f):
        """Quantiles of y under q(f), one array in the shape of targets per level.

        levels : floats strictly between 0 and 1.
        """
        raise TypeError(no_order(self))

    def check_settings(self):
        """Raise ``ValueError`` if a static setting is invalid or a parameter is not one number."""
        for name, kind in self._record_fields:
            shape = np.shape(getattr(self, name))
            if kind != "static" and shape:
                raise ValueError(
                    f"{type(self).__name__}: `{name}` has shape {shape}; give one number, for all"
                    " data and outputs"
                )
        self._check_static()

    def _check_static(self):
        for name, (makes_sense, what) in self.settings.items():
            value = getattr(self, name)
            if value is None and name in self._optional_fields:
                continue
            if not isinstance(value, numbers.Real) or not makes_sense(value):
                raise ValueError(
                    f"{type(self).__name__}: `{name}` must be {what}, got {value!r:.80}"
                )

    def check_targets(self, Y, name="Y"):
        """Raise ``ValueError`` if ``Y`` holds an invalid target; the message calls it ``name``.

        By default any real number is a valid target.
        """


def no_order(likelihood):
    return (
        f"targets of a {type(likelihood).__name__} model are classes, which have no quantiles;"
        " predict_y gives probabilities (a likelihood of numbers must define predict_cdf, and"
        " predict_quantiles or a conditional_cdf)"
    )


def total(values, weights=None, axes=None):
    """Sum an array, weighted if weights are given, in float64.

    Parameters
    ----------
    values : array
    weights : as ``values``, optional
    axes : int, optional
        Sum over this many trailing axes only.

    Returns
    -------
    float, or () array on the device of ``values``

    Examples
    --------
    >>> total(np.ones(3)), total(np.ones(3), np.array([0.0, 1.0, 2.0]))
    (3.0, 3.0)
    """
    if weights is not None:
        values = np.multiply(values, weights, dtype=np.float64)
    axis = None if axes in (None, values.ndim) else tuple(range(-axes, 0))
    value = np.add.reduce(values, axis=axis, dtype=np.float64)
    return float(value) if isinstance(value, float) else value


def that_count(f, weights):
    """Replace marginals of weight 0 by N(0, 1), so that what is computed from them is finite."""
    if weights is None:
        return f
    counts, dtype = weights > 0, f.mean.dtype
    return Marginals(
        np.where(counts, f.mean, dtype.type(0)), np.where(counts, f.var, dtype.type(1))
    )


def weighted(bar, weights):
    """Multiply a derivative per datum by its weight.

    Parameters
    ----------
    bar : array
    weights : as ``bar``, or None

    Returns
    -------
    array
        In the dtype of ``bar``; ``bar`` itself without weights.

    Examples
    --------
    >>> weighted(np.ones(3), np.array([0.0, 1.0, 3.0]))
    array([0., 1., 3.])
    """
    return bar if weights is None else bar * weights


def weight_finite(bar, weights, dtype):
    """``weighted`` in a dtype: numbers beyond the range of float32 are its largest ones."""
    bar = weighted(bar, weights)
    if bar.dtype == dtype:
        return bar
    largest = float(np.finfo(dtype).max)
    return np.clip(bar, -largest, largest).astype(dtype)


def number(leaf):
    """Convert a parameter to a number in float64, without synchronising with a device.

    Parameters
    ----------
    leaf : float or () array

    Returns
    -------
    float, or () array in float64 on the device of ``leaf``

    Examples
    --------
    >>> number(np.float32(0.5))
    0.5
    """
    return leaf.astype(np.float64) if hasattr(leaf, "__cuda_array_interface__") else float(leaf)


def log(value):
    """Take the logarithm of a result of ``number``.

    Parameters
    ----------
    value : float, or () array on a device

    Returns
    -------
    as ``value``

    Examples
    --------
    >>> log(1.0)
    0.0
    """
    return math.log(value) if isinstance(value, float) else np.log(value)


def in_dtype(value, dtype):
    """Cast a number to the dtype of a gradient; infinite if it overflows that dtype.

    Parameters
    ----------
    value : float, or () array on a device
    dtype : dtype

    Returns
    -------
    () scalar or array of that dtype

    Examples
    --------
    >>> in_dtype(0.5, np.dtype(np.float32))
    np.float32(0.5)
    """
    with np.errstate(over="ignore"):
        return dtype.type(value) if isinstance(value, float) else value.astype(dtype)


def sum_outputs(values):
    """Sum over outputs.

    Parameters
    ----------
    values : (N,) or (P, N) array

    Returns
    -------
    (N,) array
        ``values`` itself if there is no axis of outputs.

    Examples
    --------
    >>> sum_outputs(np.ones((2, 3)))
    array([2., 2., 2.])
    """
    return values if values.ndim == 1 else values.sum(axis=0)


def log_sum_exp(logs):
    """log sum_k exp(logs[k]); a term can be -inf."""
    top = np.maximum(logs.max(axis=0), LEAST)
    return top + np.log(np.exp(logs - top).sum(axis=0))


def apply_to_chunks(function, like, size, *arrays):
    """Apply ``function`` to chunks (n,) of flattened arrays; the result is as ``like``."""
    out = np.empty(like.shape, like.dtype, like=like)
    size = size * ON_DEVICE if deferred_checks.on_device(out) else size
    rows, flat = [np.ravel(array) for array in arrays], out.reshape(-1)
    for start in range(0, flat.size, size):
        piece = slice(start, start + size)
        with np.errstate(over="ignore"):  # a log density can overflow float32 to -inf
            flat[piece] = function(*(row[piece] for row in rows))
    return out
