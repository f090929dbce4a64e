"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..optim import schedules as schedules
from ..optim.adaptive import adagrad as adagrad
from ..optim.fields import by_field as by_field
from ..optim.first_order import adam as adam, sgd as sgd
from ..optim.flat import ravel as ravel
from ..optim.inverse.factor import (
    inverse_factor as inverse_factor,
    newton_schulz_step as newton_schulz_step,
)
from ..optim.inverse.updates import (
    inverse_updates as inverse_updates,
    update_inverse_factor as update_inverse_factor,
)
from ..optim.inverse.variance_gap import (
    variance_gap as variance_gap,
    variance_interval as variance_interval,
)
from ..optim.natural.from_gradient import natural_update as natural_update
from ..optim.natural.step import (
    natural_step as natural_step,
    natural_step_and_grad as natural_step_and_grad,
)
from ..train.info import FitInfo as FitInfo, StepInfo as StepInfo
from ..train.state import TrainingState as TrainingState
