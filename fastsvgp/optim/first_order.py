"""Stochastic gradient ascent and Adam."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .. import check, kernels
from ..errors import names_options
from ..records import transforms
from ..records.typed import Names
from .base import Optimiser
from .flat import as_names
from .schedules import Schedule, Size, as_schedule, fraction


@dataclass(frozen=True)
class SGD(Optimiser):
    """Gradient ascent with optional momentum; ``sgd`` makes it."""

    momentum: float = 0.0

    @property
    def moments(self):
        return 1 if self.momentum else 0

    def update(self, x, g, moments, out, step_size, count):
        if moments:
            g = np.add(self.momentum * moments[0], g, out=out[1])
        np.multiply(g, step_size, out=out[0])
        np.add(out[0], x, out=out[0])


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam; ``adam`` makes it."""

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    moments = 2

    def update(self, x, g, moments, out, step_size, count):
        kernels.adam(
            x,
            g,
            *moments,
            out,
            step_size=step_size,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            count=count,
        )


@names_options
def sgd(
    step_size: Size,
    momentum: float = 0.0,
    step_sizes: Mapping[str, Size] | None = None,
    fixed: Names = (),
    transform: str = "softplus",
) -> SGD:
    """Stochastic gradient ascent, with optional momentum.

    ``velocity <- momentum velocity + g``, ``x <- x + step_size velocity``.

    Parameters
    ----------
    step_size, step_sizes, fixed, transform
        As in ``adam``.
    momentum : float
        Decay of the velocity, in [0, 1); at 0 no velocity is kept.

    Returns
    -------
    SGD
        With the methods of the ``Adam`` that ``adam`` returns.

    Examples
    --------
    >>> optimiser = fs.sgd(1e-4, momentum=0.9)
    >>> state = optimiser.init(model)
    >>> value, grad = fs.elbo_and_grad(model, X, Y)
    >>> moved, state = optimiser.step(model, grad, state)
    >>> fs.elbo(moved, X, Y) > value
    True
    """
    momentum = fraction("sgd", "momentum", momentum)
    shared = _settings(step_size, step_sizes, fixed, transform)
    return SGD(*shared, momentum=momentum)


@names_options
def adam(
    step_size: Size = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    step_sizes: Mapping[str, Size] | None = None,
    fixed: Names = (),
    transform: str = "softplus",
) -> Adam:
    """Adam (Kingma & Ba 2015), uphill.

    Parameters
    ----------
    step_size : float, schedule, or function ``count -> step size``
        Approximate upper limit on how far a coordinate moves in one step.
    beta1, beta2, epsilon : float
        Decay of the first and the second moment, both in [0, 1), and the number added to the root
        of the second.
    step_sizes : dict of str to step size, optional
        Step sizes of single fields by dotted path
        (``{"inducing": 1e-3, "covariance.lengthscales": log_linear(...)}``). A path covers all
        leaves below it; the longest matching path wins.
    fixed : str or sequence of str
        Dotted paths of fields that are not moved; their gradients are not read.
    transform : {"softplus", "log"}
        Coordinates of positive numbers, as in ``ravel``.

    Returns
    -------
    Adam
        ``init(model) -> state`` and ``step(model, grad, state, value=None) -> (model, state)``,
        both pure. Moments and updates are float64, also for float32 models.

    Notes
    -----
    A step reads and writes each number a few times: about 2 ms for a 1000 x 1000 triangular factor
    on two cores.

    Examples
    --------
    >>> optimiser = fs.adam(0.05, fixed="inducing")
    >>> state = optimiser.init(model)
    >>> value, grad = fs.elbo_and_grad(model, X, Y)
    >>> moved, state = optimiser.step(model, grad, state)
    >>> fs.elbo(moved, X, Y) > value
    True
    """
    beta1 = fraction("adam", "beta1", beta1)
    beta2 = fraction("adam", "beta2", beta2)
    epsilon = check.scalar("epsilon", epsilon)
    if not epsilon > 0:
        raise ValueError(f"adam: `epsilon` must be positive, got {epsilon}")
    shared = _settings(step_size, step_sizes, fixed, transform)
    return Adam(*shared, beta1=beta1, beta2=beta2, epsilon=epsilon)


def _settings(
    step_size, step_sizes, fixed, transform
) -> tuple[Schedule, tuple[tuple[str, Schedule], ...], tuple[str, ...], str]:
    transforms.look_up(transform)
    step_sizes = check.mapping("step_sizes", step_sizes, '{"inducing": 1e-3}')
    by_name = tuple(
        (name, as_schedule(size, f"step_sizes[{name!r}]")) for name, size in step_sizes.items()
    )
    return as_schedule(step_size), by_name, as_names(fixed), transform
