"""``fit`` for a process in a fixed basis: L-BFGS-B on the bound from sums, free of the rows."""

import dataclasses

from ... import models
from ...hilbert.collapsed import BasisGP, checked
from ...hilbert.model import BasisSVGP
from ...hilbert.sums import SufficientSums, sufficient_sums
from ...optim.flat import free_paths
from .sgpr import CollapsedSteps, full_batch_training, refuse_batches
from .svgp import minibatch_training


@models.with_options(models.NoOptions)
def basis_training(request):
    """Make the ``Recorder`` of a training of a ``BasisGP``: one pass makes sums of rows."""
    refuse_batches(request, "a BasisGP is trained")
    if request.plan.group is not None:
        raise ValueError(
            "fit: a BasisGP needs no `group`: make sums by fs.bounds.sufficient_sums(..., group="
            "group), and fit these on each rank"
        )
    sums = request.X
    if not isinstance(sums, SufficientSums):
        sums = sufficient_sums(request.model.basis, sums, request.Y, weights=request.weights)
    moved = free_paths(request.model, request.fixed or ())
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    request = dataclasses.replace(request, X=sums, Y=None, weights=None)
    return full_batch_training(request, moved, _check, BasisSteps)


def _check(model, sums, _):
    model, sums = checked(model, sums)
    return model, sums, sums.gram().dtype


class BasisSteps(CollapsedSteps):
    """Iterations of L-BFGS-B; positive parameters move by their logarithms."""

    transform = "log"

    def rehearse(self):
        """Compute one bound, to compile what an iteration needs."""
        self._bound_and_grad(self._start, self._jitter)


models.register(BasisGP, fit=basis_training)
models.register(BasisSVGP, fit=minibatch_training)
