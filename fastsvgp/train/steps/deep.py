"""Steps of a deep GP: a closed-form natural step of the last layer, then one gradient."""

from ... import check
from ...errors import BadEntry
from ...optim.natural.from_gradient import factor_pairs, natural_update
from ...posteriors.placed import at, with_placed
from ...records import replace
from .minibatch import MinibatchSteps


class LayeredSteps(MinibatchSteps):
    """``MinibatchSteps`` for layers.

    The draws of hidden layers depend only on the seed and the batch.

    ``hidden`` : the paths of the posteriors that take natural updates, along the same gradient as
    the optimiser
    """

    def __init__(self, *args, hidden):
        self._hidden = hidden
        super().__init__(*args)

    def _moving(self, model, optimised):
        updated = (name for path in self._hidden for name in updated_paths(model, path))
        return *super()._moving(model, optimised), *updated

    def _updated(self, model, grad, natural_size):
        moved = {}
        for path in self._hidden:
            try:
                moved[path] = natural_update(at(model, path), at(grad, path), natural_size)
            except BadEntry as error:
                what = f"the gradient has NaN or infinity in {path!r} at step {self._step + 1}"
                raise check.diverged(what, model, self._step + 1) from error
        return with_placed(model, moved)

    @staticmethod
    def _with_posteriors(model, stepped):
        *below, last = model.layers
        return replace(
            model, layers=(*below, replace(last, posterior=stepped.layers[-1].posterior))
        )


def updated_paths(model, path):
    """Return the paths that a natural update changes in the posterior at ``path``.

    Raises ``TypeError`` if it takes no natural updates.
    """
    return [f"{path}.{name}" for pair in factor_pairs(at(model, path)) for name in pair]
