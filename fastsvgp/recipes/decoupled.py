"""Training of ``DecoupledWeights`` posteriors: step sizes of the weights, and columns per step.

The weights are far larger than other parameters (the class says how large), and Adam moves a
coordinate by about its step size: at the learning rate of the others they do not arrive. Held-out
RMSE and log density (split 0 of ``examples/solve_gp.py``) after 1,000 steps with 64 + 506 inducing
inputs, and after 800 with 128 + 4048; batches of 1024, Adam of 0.01 for all else, natural steps of
0.1, 64 or 256 columns sampled per step (``*``: all):

    step size        0.01            0.1            0.1 to 0.01     0.3 to 0.03    1 to 0.01
    kin40k, 506      0.370 -0.512 *  0.316 -0.384   0.325 -0.417 *  0.310 -0.369   0.310 -0.373
      2,500 steps                    0.278 -0.275   0.288 -0.313    0.272 -0.260   0.273 -0.255
    kin40k, 4048                                    0.261 -0.201    0.256 -0.182
    bike, 506                        0.287 -0.202   0.288 -0.209    0.288 -0.205   0.288 -0.216
    elevators, 506                   0.382 -0.465   0.383 -0.467    0.382 -0.465   0.382 -0.468
    elevators, 4048                  0.381 -0.458   0.381 -0.458    0.380 -0.461

Weights of patches of images are smaller, and larger steps do not help them: the command line keeps
the plain rate for those.
"""

from ..optim.schedules import cosine
from ..posteriors import DecoupledWeights
from ..posteriors.placed import placed
from ..records.inducing_sets import sets_of
from ..runtime.thresholds import columns_by_default

FIRST, LAST = 30.0, 3.0  # step size of the weights at the first and the last step / learning rate


def step_sizes(model, course):
    """Return ``step_sizes`` of ``adam`` for the weights in a model: empty without any."""
    paths = [path for path, q in placed(model).items() if isinstance(q, DecoupledWeights)]
    first, last = (share * course.learning_rate for share in (FIRST, LAST))
    return {f"{path}.weights_v": cosine(first, last, max(course.steps, 1)) for path in paths}


def columns(model, course):
    """Return ``{"sampled": S}`` if the steps of an SVGP are to sample columns, else ``{}``."""
    if not isinstance(getattr(model, "posterior", None), DecoupledWeights):
        return {}
    sizes = map(len, sets_of(model.inducing))
    sampled = columns_by_default(*sizes, course.batch_size)
    return {} if sampled is None else {"sampled": sampled}
