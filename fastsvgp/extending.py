"""Everything to import for writing your own covariances, likelihoods, posteriors, means or models.

It also has the names for your own kind of training. Their modules are not public paths. Importing
``fastsvgp`` does not load this module.
"""

from . import check, kernels, models
from .bounds.layer_pass import LayerPass
from .check.weights import svgp as weighed
from .covariances import Covariance
from .covariances.base import ALL, Homogeneous
from .likelihoods import Likelihood, OneLatent, TwoLatents
from .likelihoods.base import (
    NODES,
    in_dtype,
    log,
    number,
    sum_outputs,
    total,
    weighted,
)
from .likelihoods.targets import refuse
from .means import Mean
from .posteriors import Pass, Posterior
from .posteriors.base import Bars, Joint, Projection, raise_to_floor
from .records import (
    Blocks,
    Marginals,
    leaf,
    leaves,
    matches,
    record,
    replace,
    replace_at,
    restricted,
    static,
    tree_map,
)
from .testing import assert_gradient
from .train import minibatch_training
from .train.arguments import Request
from .train.loop import Recorder
from .train.state import TrainingState, started
from .train.steps import Snapshot, Steps

__all__ = [
    "ALL",
    "NODES",
    "OneLatent",
    "Bars",
    "Blocks",
    "Covariance",
    "Homogeneous",
    "Joint",
    "LayerPass",
    "Likelihood",
    "Marginals",
    "Mean",
    "Pass",
    "Posterior",
    "Projection",
    "Recorder",
    "Request",
    "Snapshot",
    "Steps",
    "TrainingState",
    "TwoLatents",
    "assert_gradient",
    "check",
    "in_dtype",
    "kernels",
    "leaf",
    "leaves",
    "log",
    "matches",
    "minibatch_training",
    "models",
    "number",
    "raise_to_floor",
    "record",
    "refuse",
    "replace",
    "replace_at",
    "restricted",
    "started",
    "static",
    "sum_outputs",
    "total",
    "tree_map",
    "weighed",
    "weighted",
]


def __dir__():
    return __all__
