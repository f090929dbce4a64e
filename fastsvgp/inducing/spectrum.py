"""A spectral mixture from the spectrum of the data."""

from typing import Any

import numpy as np

from .. import check
from ..check.arrays import on_host
from ..covariances import Sum, spectral_mixture
from ..errors import names_options
from ..records.typed import ArrayLike, Seed
from .subset import random_rows

ITERATIONS = 20  # of k-means
LEAST = 1e-3  # share of the power of a component


@names_options
def spectral_start(
    X: ArrayLike, y: ArrayLike, components: int = 4, rng: Seed = None, subset: int = 2000
) -> Sum:
    """Return a ``spectral_mixture`` whose components are the peaks of the spectrum of y.

    Parameters
    ----------
    X : (N, D) array
        Inputs, at any places.
    y : (N,) array
        Targets.
    components : int
        Q, the number of waves.
    rng : None, int or Generator
        For the subset.
    subset : int
        Number of random rows to use.

    Returns
    -------
    Sum
        As from ``spectral_mixture``, with the variance of y.

    Raises
    ------
    ValueError
        Shapes do not agree, NaN or infinity.

    Notes
    -----
    Each column has a periodogram of its own, up to the mean Nyquist frequency. What is above the
    level of noise counts. One-dimensional k-means, from the highest peaks, gives frequencies and
    their widths; columns are combined in the order of power. The cost is subset^2 D sines.

    Examples
    --------
    >>> mixture = fs.inducing.spectral_start(X, np.sin(2 * np.pi * X[:, 0]), components=1, rng=0)
    >>> mixture.parts[0].parts[1].frequencies.shape
    (1,)
    """
    inputs: Any = on_host(check.as_array("X", X))
    targets: Any = on_host(check.as_array("y", y))
    components = check.whole("components", components)
    if inputs.ndim != 2 or targets.shape != inputs.shape[:1]:
        raise ValueError(
            "spectral_start: `X` must have shape (N, D) and `y` (N,), got"
            f" {inputs.shape} and {targets.shape}"
        )
    check.finite("y", targets)
    rows, _, _ = random_rows(
        "spectral_start", np.column_stack([inputs, targets]), 1, check.generator(rng), subset
    )
    values = rows[:, -1] - rows[:, -1].mean()
    variance = float(np.mean(np.square(values))) or 1.0
    shares, means, scales = zip(
        *(_peaks(column, values, components) for column in rows[:, :-1].T), strict=True
    )
    return spectral_mixture(
        variance * np.mean(shares, axis=0), np.stack(means, 1), np.stack(scales, 1)
    )


def _peaks(x, y, Q):
    """Return the shares of the power, frequencies and widths of Q peaks of one column."""
    f, power, above = _periodogram(x, y, Q)
    step, centres, rest = f[0], [], power
    power = above / above.sum() if above.any() else np.full(len(f), 1 / len(f))
    for _ in range(Q):
        top = int(rest.argmax())
        centres.append(f[top])
        rest[max(0, top - 2) : top + 3] = -1
    centres = np.array(centres)
    for _ in range(ITERATIONS):
        nearest = np.abs(f[:, None] - centres).argmin(1)
        shares = np.bincount(nearest, power, Q)
        sums = np.bincount(nearest, power * f, Q)
        centres = np.where(shares > 0, sums / np.where(shares > 0, shares, 1), centres)
    squares = np.bincount(nearest, power * np.square(f - centres[nearest]), Q)
    widths = np.sqrt(squares / np.where(shares > 0, shares, 1) + step**2)
    order = np.argsort(-shares)
    shares = np.maximum(shares, LEAST)
    return (shares / shares.sum())[order], centres[order], widths[order]


def _periodogram(x, y, least=1):
    """Return frequencies (F,) up to the mean Nyquist one, powers, and what exceeds their noise.

    Powers of noise are exponentially distributed: the largest of F exceeds log(1000 F) times the
    mean in one of 1000 cases. One high frequency that counts by chance moves a mean.
    """
    step = 1 / (2 * (float(np.ptp(x)) or 1.0))
    f = step * np.arange(1, max(len(np.unique(x)), least) + 1)
    power = np.square(np.abs(_transform(x, y, f)))
    noise = np.median(power) / np.log(2)
    return f, power, np.where(power > noise * np.log(1000 * len(f)), power - noise, 0)


def peaks(x, y, count):
    """Return shares of the power and frequencies of the highest peaks, at most ``count``.

    x, y : (N,). Each frequency is refined between its neighbours on the grid.
    """
    f, power, above = _periodogram(x, y)
    total, found = power.sum(), []
    for _ in range(count):
        top = int(above.argmax())
        if not above[top] > 0:
            break
        fine = f[top] + f[0] * np.linspace(-1, 1, 41)
        best = fine[np.square(np.abs(_transform(x, y, fine))).argmax()]
        found.append((float(power[top] / total), float(best)))
        above[max(0, top - 2) : top + 3] = 0
    return found


def _transform(x, y, f):
    """Return sum_n y_n exp(-2 pi i f x_n) for each f, by chunks of frequencies."""
    chunks = np.array_split(f, -(-len(f) * len(x) // (1 << 20)))
    return np.concatenate([np.exp(np.outer(c, x) * (-2j * np.pi)) @ y for c in chunks])
