"""Training of ``DecoupledWeights`` posteriors: step sizes of the weights, and columns per step.

The weights are far larger than other parameters (the class says how large), and Adam moves a
coordinate by about its step size: at the learning rate of the others they do not arrive. kin40k, 64
+ 506 inducing inputs, batches of 1024, Adam of 0.01 for all else, natural steps of 0.1, 64 columns
sampled per step; held-out RMSE and log density, and the rms of the weights:

    step size of the weights       1,000 steps              2,500 steps
    0.1                            0.316  -0.384    6.3     0.278  -0.275   10.1
    0.1, falling to 0.01           0.326  -0.420    4.8     0.288  -0.313    7.7
    0.3, falling to 0.03           0.310  -0.369    8.0     0.272  -0.260   12.0
    1, falling to 0.01             0.310  -0.373   10.0
"""

from dataclasses import replace

from ..optim.schedules import as_schedule, cosine
from ..posteriors import DecoupledWeights
from ..posteriors.placed import placed
from ..records.inducing_sets import sets_of
from ..runtime.thresholds import columns_by_default

FIRST, LAST = 30.0, 3.0  # step size of the weights at the first and the last step / learning rate


def moving_weights(optimiser, model, course):
    """Return an optimiser of ``adam`` with the step sizes of the weights in ``model``, if any."""
    paths = [path for path, q in placed(model).items() if isinstance(q, DecoupledWeights)]
    rate = course.learning_rate
    size = cosine(FIRST * rate, LAST * rate, max(course.steps, 1))
    own = tuple((f"{path}.weights_v", as_schedule(size)) for path in paths)
    return replace(optimiser, step_sizes=(*optimiser.step_sizes, *own)) if own else optimiser


def columns(model, course):
    """Return ``{"sampled": S}`` if the steps of an SVGP are to sample columns, else ``{}``."""
    if not isinstance(getattr(model, "posterior", None), DecoupledWeights):
        return {}
    sizes = map(len, sets_of(model.inducing))
    sampled = columns_by_default(*sizes, course.batch_size)
    return {} if sampled is None else {"sampled": sampled}
