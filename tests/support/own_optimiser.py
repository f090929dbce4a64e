"""An optimiser that shares only the names of its methods with those of the package."""

from typing import Any

import numpy as np

from fastsvgp.extending import leaves, matches, record, replace_at, static, tree_map


@record
class SignState:
    """The number of steps, and the averaged gradient, a record like the model."""

    count: Any = static()
    average: Any = None


class SignAscent:
    """Steps along the sign of the averaged gradient.

    Positive fields change by a factor; triangular factors are fixed.
    """

    def __init__(self, step_size, fixed=()):
        self.step_size, self.fixed = step_size, fixed

    def fixing(self, names):
        return type(self)(
            self.step_size, self.fixed + ((names,) if isinstance(names, str) else tuple(names))
        )

    def paths(self, model):
        free = (
            (path, kind)
            for path, kind, value in leaves(model)
            if value is not None and not matches(path, self.fixed)
        )
        return tuple(path for path, kind in free if kind != "tril")

    def moving(self, model, state):
        return self.paths(model)

    def init(self, model):
        return SignState(tree_map(lambda value: 0.0 * value, model), count=0)

    def step(self, model, grad, state, value=None):
        kinds, average = {path: kind for path, kind, _ in leaves(model)}, state.average
        for path in self.paths(model):
            now = 0.5 * _at(average, path) + _at(grad, path)
            move = self.step_size * np.sign(now)
            average = replace_at(average, path, now)
            old = _at(model, path)
            model = replace_at(
                model, path, old * np.exp(move) if kinds[path] == "positive" else old + move
            )
        return model, SignState(average, count=state.count + 1)

    def step_size_at(self, state):
        return self.step_size


def _at(tree, path):
    return next(value for name, _, value in leaves(tree) if name == path)
