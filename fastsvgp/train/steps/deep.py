"""Steps of a deep GP: a closed-form natural step of the last layer, then one gradient."""

from ...errors import BadEntry, Diverged
from ...optim.natural.from_gradient import factor_pairs, natural_update
from ...records import replace
from .minibatch import MinibatchSteps


class LayeredSteps(MinibatchSteps):
    """``MinibatchSteps`` for layers.

    The draws of hidden layers depend only on the seed and the batch.

    ``hidden`` : the numbers of the layers whose posteriors take natural updates, along the same
    gradient as the optimiser
    """

    def __init__(self, *args, hidden):
        self._hidden = hidden
        super().__init__(*args)

    def _moving(self, model, optimised):
        updated = (path for number in self._hidden for path in updated_paths(model, number))
        return *super()._moving(model, optimised), *updated

    def _updated(self, model, grad, natural_size):
        layers = list(model.layers)
        for number in self._hidden:
            layer, bar = layers[number], grad.layers[number].posterior
            try:
                layers[number] = replace(
                    layer, posterior=natural_update(layer.posterior, bar, natural_size)
                )
            except BadEntry as error:
                raise Diverged(
                    f"the gradient has NaN or infinity in 'layers.{number}.posterior' at step"
                    f" {self._step + 1}. Likely causes, in order: a step size that is too large;"
                    " targets or inputs on a wild scale (standardise them); float32"
                ) from error
        return replace(model, layers=tuple(layers))

    @staticmethod
    def _with_posteriors(model, stepped):
        *below, last = model.layers
        return replace(
            model, layers=(*below, replace(last, posterior=stepped.layers[-1].posterior))
        )


def updated_paths(model, number):
    """Return the paths that a natural update changes in one layer.

    Raises ``TypeError`` if its posterior takes no natural updates.
    """
    return [
        f"layers.{number}.posterior.{name}"
        for pair in factor_pairs(model.layers[number].posterior)
        for name in pair
    ]
