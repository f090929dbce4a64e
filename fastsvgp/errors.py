"""Exceptions and warnings of the package; others are a plain ``ValueError`` or ``TypeError``.

Come here for what to catch.
"""

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

from .names import did_you_mean
from .public_names import offer

P = ParamSpec("P")
R = TypeVar("R")

DATA = {"self", "model", "sgpr", "X", "Y", "Xs", "Ys"}  # arguments of public functions, not options
# names in other packages, and what to write here; the second is a name, or a text with a blank
ELSEWHERE = {
    "active_dims": "write {}(...).on(0, 1)",
    "inducing_points": "inducing",
    "inducing_variable": "inducing",
    "iterations": "steps",
    "kernel": "covariance",
    "learning_rate": "write optimiser=fastsvgp.adam(learning_rate)",
    "lengthscale": "lengthscales",
    "lr": "write optimiser=fastsvgp.adam(lr)",
    "max_iter": "steps",
    "noise": "variance",
    "noise_variance": "variance",
    "num_latent_gps": "num_latents",
}
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message, category=UserWarning):
    """Warn at the line of user code that called into the package."""
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def refuse_unknown(function, given, known, kind="", word="option"):
    """Raise the ``TypeError`` of ``no_option`` for the first ``given`` name not in ``known``."""
    for option in given:
        if option not in known:
            raise no_option(function, option, known, kind, word) from None


def no_option(function, option, known, kind="", word="option"):
    """``TypeError`` for an unknown option of a public function: suggests the closest name, or all.

    ``kind`` is the kind of model, if the options depend on it. ``word``: what its options are.
    """
    options, elsewhere = sorted(set(known) - DATA), ELSEWHERE.get(option, "")
    if meant := did_you_mean(option, options, "`", ELSEWHERE, most=1):
        return TypeError(f"{function} has no {word} `{option}`{meant}")
    if "step_size" in options and "adam(" in elsewhere:
        return TypeError(f"{function} has no {word} `{option}`; did you mean `step_size`?")
    if "optimiser" in options and "optimiser" in elsewhere or "{}" in elsewhere:
        return TypeError(f"{function} has no {word} `{option}`; {elsewhere.format(function)}")
    takes = ", ".join(f"`{name}`" for name in options) or f"no {word}s"
    return TypeError(
        f"{function} has no {word} `{option}`{kind and f' for {kind}'}; it takes {takes}"
    )


def suggest_fields(name, paths):
    """Return, for messages, the fields nearest to a wrong dotted name; else where to look.

    They are at most three of the leaves at ``paths`` and of what holds them, anywhere in the model.
    """
    parts = [path.split(".") for path in paths]
    names = {".".join(some[: i + 1]) for some in parts for i in range(len(some))}
    tops = list(dict.fromkeys(some[0] for some in parts))
    return did_you_mean(name, names).removeprefix("; ") or (
        f"its fields are {', '.join(tops) or 'none'}; fastsvgp.records.leaves lists all below them"
    )


def names_options(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a public function that raises ``no_option`` for an unknown option."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except TypeError:
            refuse_unknown(function.__name__, options, known)
            raise

    return call


def not_written(part, method, page):
    """``NotImplementedError`` of a base class, for a method that the class of ``part`` lacks."""
    return NotImplementedError(
        f"{type(part).__name__} has no method `{method}`; docs/{page}.md says what it returns"
    )


class InvalidSites(ValueError):
    """Sites with which the posterior has no covariance; more jitter does not help.

    Examples
    --------
    >>> issubclass(fs.errors.InvalidSites, ValueError)
    True
    """


class NotPositiveDefinite(np.linalg.LinAlgError):
    """A matrix that should be positive definite could not be factorised.

    Parameters
    ----------
    batch, pivot, jitter, size
        As the attributes.
    dtype : dtype
        Dtype of the factorisation.

    Attributes
    ----------
    batch : tuple of int
        Index of the failing matrix among the leading batch axes; ``()`` for a single matrix.
    pivot : int
        Zero-based row at which the factorisation broke down.
    jitter : float
        The absolute amount added to the diagonal.
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
            tuple(map(int, batch)),
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
            " parameters. Raise `jitter` (first try ten times as much) or fix the cause."
        )

    def __reduce__(self):
        return (_rebuild, (self.args, self.__dict__))


def _rebuild(args, state):
    error = NotPositiveDefinite.__new__(NotPositiveDefinite)
    error.args = args
    error.__dict__.update(state)
    return error


class RemoteError(RuntimeError):
    """Another rank of a group failed, so this rank raises too.

    Parameters
    ----------
    rank : int
    message : str

    Attributes
    ----------
    rank : int
        The rank that failed; the first if there are several.
    message : str
        The message of its error.

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
    """An array holds an invalid entry at ``index``.

    A caller that passed a part of a larger array updates ``index``.

    Parameters
    ----------
    name : str
        Name of the array in the message.
    what : str
        What it holds.
    index : tuple of int
        ``()`` for a single number.
    advice : str
        End of the message.

    Examples
    --------
    >>> try:
    ...     fs.elbo(model, np.full((40, 1), np.nan), Y)
    ... except fs.errors.BadEntry as error:
    ...     print(error.name, error.index)
    X (0, 0)
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
    """``TypeError`` for an argument ``rng`` that gives no random generator."""
    return TypeError(
        "`rng` must be None, a seed (a whole number from 0) or a numpy.random.Generator, got"
        f" {rng!r}"
    )


class Diverged(ValueError):
    """The objective or its gradient became NaN or infinite.

    Examples
    --------
    >>> try:
    ...     _ = fs.fit(model, X, 1e200 * Y, steps=5)
    ... except fs.Diverged as error:
    ...     print("Likely causes" in str(error))
    True
    """


class VarianceClampWarning(RuntimeWarning):
    """Rounding drove some marginal variances below eps * kff; they were raised to that floor.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", fs.VarianceClampWarning)
    ...     mean, var = fs.predict_f(model, X)
    """


class DataFileError(ValueError):
    """A data file or a saved model cannot be read, or has the wrong format.

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


__getattr__, __dir__, __all__ = offer("errors")
