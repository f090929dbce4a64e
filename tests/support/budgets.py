"""The accuracy budget of float32: errors as those of the plain formulas evaluated by NumPy, four times as large at most."""

import numpy as np
from support.numerics import assert_typically_as_accurate_as

SLACK, CLEAR = 4, 2.5


def by_name(names, *results):
    """What ``draw`` gives, of the results of the three in the order of ``names``."""
    return dict(zip(names, zip(*results, strict=True), strict=True))


def assert_within_budget(draw, problems=25, most=400):
    """``draw()`` gives {name: (fast, plain, truth)} of a new problem of one shape; medians over problems are compared.

    How far off one sum is in float32 is luck, and so, to a lesser degree, is the median over a few:
    where it comes out above ``CLEAR``, four times as many problems are drawn, and so on up to
    ``most``.
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
