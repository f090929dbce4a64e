"""What every likelihood offers, and the few things they share."""

import math
import numbers
from collections.abc import Callable
from typing import ClassVar, TypeVar

import numpy as np

from ..errors import BadEntry
from ..kernels import verdicts

LikelihoodT = TypeVar("LikelihoodT", bound="Likelihood")
CHUNK = 4096  # data whose temporaries exist at one time
ON_DEVICE = 64  # times as many on a device
SMALLEST = 1e-100  # what a variance, or a rate, of zero is taken for where it is divided by


def whole(least):
    """A rule of ``Likelihood.settings``."""
    return lambda value: float(value).is_integer() and value >= least, f"a whole number of at least {least}"


POSITIVE = (lambda value: 0 < value < np.inf, "positive and finite")
NODES = {"num_nodes": whole(1)}


class Likelihood:
    """p(y | f) for data that are independent given the latent values; subclasses are records.

    Shapes: targets ``Y`` (N,) or (P, N); ``f`` is a ``Marginals`` of the same shape, q(f) = N(mean, var) elementwise. A
    multi-class likelihood has ``f`` (C, N) and integer ``Y`` (N,). Results have the dtype of ``f.mean``; sums over data are
    accumulated in float64. Nothing that comes in is modified. docs/likelihood.md adds one, step by step.

    Examples
    --------
    >>> ell, f_bar, likelihood_bar = gaussian.expected_log_prob(Y, fs.Marginals(np.zeros(40), np.ones(40)))
    >>> f_bar.mean.shape, isinstance(likelihood_bar, fs.Gaussian)
    ((40,), True)
    """

    log_concave: ClassVar[bool] = False  # whether log p(y | f) is concave in f whatever y is: what bounds from samples need
    samples: ClassVar[bool] = False  # whether ``expected_log_prob`` draws random numbers
    counts: ClassVar[bool] = False  # whether targets are whole numbers, in order: their distribution function is then a staircase
    num_latent: int | None = None  # number of latent functions; None: one per output, any number of outputs
    # static field: (whether a value makes sense, what it must be)
    settings: ClassVar[dict[str, tuple[Callable[[float], bool], str]]] = {}

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        """Sum over the data of E_q(f)[log p(y | f)], and its derivatives.

        Parameters
        ----------
        Y, f : see the class
        rng : None, int or numpy.random.Generator
            Only read by likelihoods that sample.
        need : bool
            False: the value alone.
        weights : as ``Y``, optional
            How often each datum counts, in the sum and in all derivatives. What stands in ``Y`` where that is 0 is a target too:
            the bounds have put one there.

        Returns
        -------
        ell : float
        f_bar : Marginals
            Derivatives in ``f.mean`` and ``f.var``, of the very number that is returned as ``ell``: where a rule or samples
            stand in for the integral, they are derivatives of that sum. None without ``need``.
        likelihood_bar : record of the type of the likelihood
            Derivatives in its own parameters. None without ``need``.
        """
        raise NotImplementedError

    def predict_mean_and_var(self, f):
        """Mean and variance of y under q(f), in the shape of ``f.mean``."""
        raise NotImplementedError

    def predict_log_density(self, Y, f):
        """log E_q(f)[p(y | f)] per datum, (N,): the sum over outputs where there are several."""
        raise NotImplementedError

    def predict_cdf(self, Y, f):
        """P(y <= Y) under q(f), in the shape of ``f.mean``: for targets that are numbers."""
        raise TypeError(_no_order(self))

    def predict_quantiles(self, levels, f):
        """Quantiles of y under q(f), (K, *f.mean.shape), at K floats strictly between 0 and 1: for targets that are numbers."""
        raise TypeError(_no_order(self))

    def check_settings(self):
        """Raise ``ValueError`` where a static setting makes no sense, or a parameter is more than one number."""
        for name, kind in self._record_fields:
            shape = np.shape(getattr(self, name))
            if kind != "static" and shape:
                raise ValueError(f"{type(self).__name__}: `{name}` has shape {shape}; give one number, for all data and outputs")
        for name, (makes_sense, what) in self.settings.items():
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not makes_sense(value):
                raise ValueError(f"{type(self).__name__}: `{name}` must be {what}, got {value!r}")

    def check_targets(self, Y, name="Y"):
        """Raise ``ValueError`` where ``Y`` holds something that is no target of this likelihood. Any real number is one here.

        ``name`` is what the message calls it.
        """


def _no_order(likelihood):
    return (
        f"targets of a {type(likelihood).__name__} model are classes, which have no quantiles; predict_y gives probabilities "
        "(a likelihood of numbers has quantiles where it defines predict_cdf and predict_quantiles)"
    )


def total(values, weights=None):
    """Sum of an array, times weights, accumulated in float64: a Python float, or 0-d on the device of the array."""
    if weights is not None:
        values = np.multiply(values, weights, dtype=np.float64)
    value = np.add.reduce(values, axis=None, dtype=np.float64)
    return float(value) if isinstance(value, float) else value


def size(values, weights=None):
    """How many data there are: entries of ``values``, or the sum of their weights, as ``total`` gives it."""
    return values.size if weights is None else total(weights)


def weighted(bar, weights):
    """A derivative per datum times its weight, in the dtype of the derivative; as it is without weights."""
    return bar if weights is None else bar * weights


def number(leaf):
    """A parameter () as a Python float, or 0-d float64 on its device."""
    return leaf.astype(np.float64) if hasattr(leaf, "__cuda_array_interface__") else float(leaf)


def log(value):
    """Logarithm of a ``number``."""
    return math.log(value) if isinstance(value, float) else np.log(value)


def in_dtype(value, dtype):
    """A float, or a 0-d array on a device, in the dtype of a gradient; what that does not hold is infinite."""
    with np.errstate(over="ignore"):
        return dtype.type(value) if isinstance(value, float) else value.astype(dtype)


def sum_outputs(values):
    """(P, N) -> (N,), and (N,) as it is."""
    return values if values.ndim == 1 else values.sum(axis=0)


def refuse(name, Y, bad, what, advice):
    """Raise ``BadEntry``, a ``ValueError``, when any entry of the mask ``bad`` is set: the first such target is quoted."""
    if not verdicts.none(bad):
        bad, Y = (a.get() if verdicts.on_device(a) else a for a in (bad, Y))
        at = tuple(np.argwhere(np.broadcast_to(bad, Y.shape))[0])
        raise BadEntry(name, f"must hold {what}; got {Y[at]!s}", at, f". {advice}")


def in_numbers(Y, dtype=None):
    """Targets as an array, where they are; of ``dtype``, if given."""
    Y = Y if hasattr(Y, "astype") else np.asarray(Y)
    return Y if dtype is None else Y.astype(dtype, copy=False)


def not_whole(Y):
    """Mask of the targets that are no whole numbers: NaN and infinity, fractions, and anything that is no number at all."""
    return Y != np.floor(Y) if Y.dtype.kind in "iuf" else np.array(Y.dtype.kind != "b")


def log_sum_exp(logs):
    """log sum_k exp(logs[k]), none of them infinite."""
    top = logs.max(axis=0)
    return top + np.log(np.exp(logs - top).sum(axis=0))


def in_chunks(function, Y, f, size=CHUNK):
    """``function(y, mean, var)`` -> (n,) over pieces of the flattened data; returns the shape and dtype of ``f.mean``."""
    out = np.empty(f.mean.shape, f.mean.dtype, like=f.mean)
    size = size * ON_DEVICE if verdicts.on_device(out) else size
    y, mean, var, flat = np.ravel(Y), np.ravel(f.mean), np.ravel(f.var), out.reshape(-1)
    for start in range(0, mean.size, size):
        piece = slice(start, start + size)
        with np.errstate(over="ignore"):  # a log density may be beyond float32: -inf
            flat[piece] = function(y[piece], mean[piece], var[piece])
    return out
