"""``fit`` for a GPLVM: L-BFGS-B on the collapsed bound, its rows and parameters together."""

from ... import check, models
from ...optim.flat import free_paths
from ...uncertain.gplvm import GPLVM
from .sgpr import CollapsedSteps, check_arrays, full_batch_training, refuse_batches


class LatentSteps(CollapsedSteps):
    """Positive parameters move by their logarithms: variances of rows span orders of magnitude."""

    transform = "log"


@models.with_options(models.NoOptions)
def latent_training(request):
    """Make the ``Recorder`` of a training of a ``GPLVM``."""
    refuse_batches(request, "a GPLVM is trained")
    moved = free_paths(request.model, request.fixed or ())
    if not moved:
        raise ValueError("fit: all fields are fixed, there is nothing to train")
    check.parts(request.model)
    return full_batch_training(request, moved, check_arrays, LatentSteps)


models.register(GPLVM, fit=latent_training)
