"""The default likelihood of a target: examples on both sides of each rule."""

import numpy as np
import pytest

from fastsvgp.cli.data.task import interpret_target
from fastsvgp.cli.settings.likelihood import choose_likelihood, is_count


def repeated(values, shares):
    """Repeat each value as often as ``shares`` says."""
    return np.repeat(values, shares)


# near a Poisson variable of mean 3
POISSON = repeated(range(8), [50, 149, 224, 224, 168, 101, 50, 34])
# the qualities of the white wines of UCI
WINE = repeated(range(3, 10), [20, 163, 1457, 2198, 880, 175, 5])


@pytest.mark.parametrize(
    "values, likelihood, words",
    [
        # classes: at most five whole numbers, with some rows each
        (np.tile([0, 1], 10), "bernoulli-probit", "two values (integers)"),
        (np.tile([1.0, 2.0], 10), "bernoulli-probit", "two values (integers)"),
        (np.tile(np.arange(5), 4), "softmax", "5 different values (integers)"),
        (np.tile(np.arange(5.0), 4), "softmax", "5 different values (integers)"),
        (np.tile([10, 20, 70], 4), "softmax", "3 different values (integers)"),
        (np.tile(list("abcdefgh"), 9), "softmax", "8 different values (text)"),
        # one more value, too few rows, or a fraction: not classes
        (np.tile(np.arange(6), 40), "gaussian", "6 different whole numbers from 0 to 5, a scale"),
        (np.tile([10, 20, 70], 3), "gaussian", "3 different whole numbers from 10 to 70, a scale"),
        (np.tile([0, 1, 2.5], 40), "gaussian", "real-valued"),
        # scales
        (np.tile(np.arange(10), 40), "gaussian", "10 different whole numbers from 0 to 9, a scale"),
        (np.tile(np.arange(1, 11), 40), "gaussian", "from 1 to 10, a scale"),
        (WINE, "gaussian", "from 3 to 9, a scale"),
        (WINE.astype(np.float32), "gaussian", "from 3 to 9, a scale"),
        (np.repeat(np.arange(1990, 2021), 3), "gaussian", "from 1990 to 2020, a scale"),
        (np.arange(91), "gaussian", "from 0 to 90, a scale"),
        (POISSON - 1, "gaussian", "from -1 to 6, a scale"),
        (7 - POISSON, "gaussian", "from 0 to 7, a scale"),  # the longer tail to the left
        # perhaps counts
        (POISSON + 1, "gaussian", "from 1 to 8, with variance 0.7 times the mean (if"),
        (POISSON + 30, "gaussian", "from 30 to 37, a scale"),  # variance 0.09 times the mean
        (
            np.round(POISSON**2.4),
            "gaussian",
            "variance 29 times the mean (if they are counts, give",
        ),
        (np.round(POISSON**2.4), "gaussian", "give --likelihood negative-binomial)"),
        (np.round(POISSON**2.4) + 40, "gaussian", "from 40 to 147, with variance"),
        (np.round(POISSON**2.4) - 1, "gaussian", "from -1 to 106, a scale"),
        (107 - np.round(POISSON**2.4), "gaussian", "from 0 to 107, a scale"),
        # counts
        (POISSON, "poisson", "8 different whole numbers from 0 to 7, spread like counts"),
        (POISSON.astype(float), "poisson", "spread like counts"),
        (POISSON.astype(np.uint8), "poisson", "spread like counts"),
        # a rate that varies
        (np.concatenate([POISSON, 3 * POISSON]), "poisson", "spread like counts"),
    ],
)
def test_examples(values, likelihood, words):
    chosen, reason = choose_likelihood(np.asarray(values))
    assert chosen == likelihood and reason.startswith("the target ") and words in reason


def test_samples_of_counts_and_of_scales(rng):
    """From 200 rows, the rule classifies nearly all samples correctly."""
    counts = [
        rng.poisson(rate * np.exp(0.3 * rng.standard_normal(200)))
        for rate in (2.0, 3.0, 5.0)
        for _ in range(40)
    ]
    ratings = [np.clip(np.round(rng.normal(6, 2, 200)), 0, 10) for _ in range(60)]
    digits = [rng.integers(0, 10, 200) for _ in range(60)]
    # nearly every sample of 200 has a zero, except that at rate 5 (probability 0.0067 per row) it
    # can be missing
    assert np.mean([is_count(y) for y in counts]) > 0.85
    assert np.mean([is_count(y) for y in ratings + digits]) < 0.1


def test_what_was_asked_for_is_taken():
    y, likelihood, reason, classes = interpret_target(WINE, "quality", "softmax")
    assert (likelihood, reason, classes) == (
        "softmax",
        "as asked",
        list("3456789"),
    ) and y.max() == 6
    assert interpret_target(WINE, "quality", "poisson")[1] == "poisson"
    y, likelihood, _, classes = interpret_target(np.tile([0, 1], 10), "t", "gaussian")
    assert (likelihood, classes, y.dtype) == ("gaussian", None, np.float64)
