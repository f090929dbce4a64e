"""The accuracy budget of float32: at most four times the error of plain NumPy formulas.

``SLACK`` is this factor. ``CLEAR`` is a smaller factor, below which a median over few problems is
accepted without drawing more.
"""

import numpy as np
from support.numerics import assert_typically_as_accurate_as

SLACK, CLEAR = 4, 2.5


def by_name(names, *results):
    """Return {name: (fast, plain, truth)} from three lists of results in the order of ``names``."""
    return dict(zip(names, zip(*results, strict=True), strict=True))


def assert_within_budget(draw, problems=25, most=400):
    """Assert that the median error of ``fast`` is within the budget, over random problems.

    ``draw()`` returns {name: (fast, plain, truth)} of a new problem of one shape. The error of one
    sum in float32 is random, and so, to a lesser degree, is the median over a few problems: if its
    ratio is above ``CLEAR``, four times as many problems are drawn, and so on up to ``most``.
    """
    drawn = {}
    while True:
        for _ in range(problems - len(next(iter(drawn.values()), ()))):
            for name, triple in draw().items():
                drawn.setdefault(name, []).append(triple)
        unclear = {}
        for name, triples in drawn.items():
            fast, plain, truth = (
                np.stack([np.asarray(t[i], float) for t in triples]) for i in range(3)
            )
            try:
                assert_typically_as_accurate_as(
                    fast, plain, truth, SLACK if problems >= most else CLEAR
                )
            except AssertionError as error:
                unclear[name] = error
        if not unclear:
            return
        assert problems < most, unclear
        problems *= 4
