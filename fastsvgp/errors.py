"""The exceptions and warnings of our own; everything else is a plain ``ValueError`` or ``TypeError``."""

import difflib
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

DATA = {"model", "sgpr", "X", "Y", "Xs", "Ys"}  # arguments of public functions that are no options
# how alike a misspelt name and the one that was meant are, at least; `rows` and `probes` are 0.6
CLOSE = 0.65
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message, category=UserWarning):
    """Warn of the line that called into the package, from whatever depth."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def refuse_unknown(function, given, known, kind=""):
    """Raise the ``TypeError`` of ``no_option`` for the first ``given`` name that is not ``known``."""
    for option in given:
        if option not in known:
            raise no_option(function, option, known, kind)


def no_option(function, option, known, kind=""):
    """``TypeError`` for an option that a public function does not take: with the nearest of the names that it knows, or with all.

    ``kind`` is that of the model, where it decides on the options.
    """
    options = sorted(set(known) - DATA)
    near = difflib.get_close_matches(option, options, n=1, cutoff=CLOSE)
    if near:
        return TypeError(f"{function} has no option `{option}`; did you mean `{near[0]}`?")
    takes = ", ".join(f"`{name}`" for name in options) or "no options"
    return TypeError(
        f"{function} has no option `{option}`{kind and f' for {kind}'}; it takes {takes}"
    )


def names_options(function: Callable[P, R]) -> Callable[P, R]:
    """A public function whose ``TypeError`` for an option that it does not take is that of ``no_option``."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TypeError:
            refuse_unknown(function.__name__, options, known)
            raise

    return call


class InvalidSites(ValueError):
    """Sites with which the posterior would have no covariance; more jitter is no answer."""


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A matrix that should be positive definite could not be factorised.

    Parameters
    ----------
    batch, pivot, jitter, size
        As the attributes.
    dtype : dtype
        In which the factorisation ran.

    Attributes
    ----------
    batch : tuple of int
        Index of the failing matrix among the leading batch axes; ``()`` for a single matrix.
    pivot : int
        Zero-based row at which the factorisation broke down.
    jitter : float
        The absolute amount that had been added to the diagonal.
    size : int
        Number of rows of the matrix.

    Examples
    --------
    >>> twice = fs.replace(model, inducing=np.zeros((6, 1)))
    >>> try:
    ...     fs.elbo(twice, X, Y, jitter=0.0)
    ... except fs.NotPositiveDefinite as error:
    ...     print(error.pivot, error.size, error.jitter)
    1 6 0.0
    """

    def __init__(self, batch, pivot, jitter, size, dtype):
        self.batch, self.pivot, self.jitter, self.size = (
            tuple(batch),
            int(pivot),
            float(jitter),
            int(size),
        )
        where = f" of batch entry {self.batch}" if self.batch else ""
        super().__init__(
            f"the {size} x {size} matrix{where} is not positive definite: factorisation broke down"
            f" at pivot {self.pivot} with jitter {self.jitter:g} in {np.dtype(dtype).name}. Likely"
            " causes, in order: (1) duplicated or nearly equal inducing inputs; (2) inputs on a"
            " much smaller scale than the lengthscales (standardise them, or shorten the"
            " lengthscales); (3) float32 where float64 is needed; (4) NaN or infinity in the"
            " parameters. Raise `jitter` (ten times as much is a fair first try) or mend the"
            " cause."
        )

    def __reduce__(self):
        return (_rebuild, (self.args, self.__dict__))


def _rebuild(args, state):
    error = NotPositiveDefinite.__new__(NotPositiveDefinite)
    error.args = args
    error.__dict__.update(state)
    return error


class RemoteError(RuntimeError):
    """Another rank of a group failed, and this one ends with it.

    Parameters
    ----------
    rank : int
    message : str

    Attributes
    ----------
    rank : int
        Which; the first of several.
    message : str
        What it raised.

    Examples
    --------
    >>> def work(group):
    ...     if group.rank == 1:
    ...         raise ValueError("no such rows")
    ...     group.sum(np.zeros(1))
    >>> try:
    ...     fs.distributed.threads(2).run(work)
    ... except (fs.RemoteError, ValueError) as error:
    ...     print(error)
    no such rows
    """

    def __init__(self, rank, message):
        super().__init__(f"rank {rank} failed: {message}")
        self.rank, self.message = rank, message

    def __reduce__(self):
        return (type(self), (self.rank, self.message))


class BadEntry(ValueError):
    """An array holds something that it must not, at ``index``: whoever knows that it was cut from a larger one sets that anew.

    Attributes
    ----------
    name : str
        What the message calls the array.
    index : tuple of int
        ``()`` for a single number.
    """

    def __init__(self, name, what, index, advice):
        super().__init__(name, what, index, advice)
        self.name, self.index = name, tuple(int(i) for i in index)

    def __str__(self):
        name, what, _, advice = self.args
        where = (
            f" at index {self.index[0] if len(self.index) == 1 else self.index}"
            if self.index
            else ""
        )
        return f"`{name}` {what}{where}{advice}"


def not_a_generator(rng):
    """What to raise where an argument ``rng`` stands for no random generator."""
    return TypeError(
        "`rng` must be None, a seed (a whole number from 0) or a numpy.random.Generator, got"
        f" {rng!r}"
    )


class Diverged(ValueError):
    """The objective, or its gradient, became NaN or infinite."""


class VarianceClampWarning(RuntimeWarning):
    """Rounding drove some marginal variances below eps * kff; they were set to that floor and counted.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fs.VarianceClampWarning)
    ...     mean, var = fs.predict_f(model, X)
    """


class DataFileError(ValueError):
    """A file of data, or a saved model, that cannot be read as what it should be.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> _ = open(path, "w").write("no model")
    >>> try:
    ...     fs.load(path)
    ... except fs.DataFileError as error:
    ...     print("is not a fastsvgp model" in str(error))
    True
    """
