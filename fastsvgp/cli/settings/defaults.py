"""The default method and number of inducing inputs, by likelihood and number of training rows.

``fastsvgp.runtime.thresholds`` has the numbers for Gaussian noise, and measurements.
"""

from dataclasses import dataclass

from ...runtime.thresholds import (
    FEW_ROWS,
    INDUCING,
    MANY,
    MOST_ROWS,
    collapses_well,
    inducing_by_default,
)
from .names import METHODS, PAIRED

SECONDS = 60.0  # duration of a search
LAYER = 128  # inducing inputs per layer of a deep model
BATCH_SIZE = 512
# qsgp: random Fourier features, features per sample, points of the control variate
FEATURES, BASIS, POINTS = 100_000, 10_000, 500
# if all rows are inducing inputs, in float64: the bound loses up to N jitter / (2 noise), and 1e-6
# costs 0.012 of NLPD on energy
JITTER = 1e-7
MINIBATCH = (  # arguments that apply only to minibatches
    "batch_size", "learning_rate", "natural_step", "e_steps", "m_steps", "layers", "patch_shape",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A method, a number of inducing inputs, and the reason for the choice.

    ``at_data``: the inducing inputs are the distinct training inputs, held fixed. ``whole``:
    L-BFGS trains on all rows.
    """

    method: str
    inducing: int
    at_data: bool
    reason: str
    whole: bool


def choose(
    likelihood, rows, distinct, *, method=None, inducing=None, minibatch=None, without=None,
    alone=True, few=INDUCING,
):  # fmt: skip
    """Choose the method and the number of inducing inputs.

    Parameters
    ----------
    likelihood : str
        One of ``names.LIKELIHOODS``.
    rows, distinct : int
        Number of training rows, and of distinct inputs among them.
    method, inducing : str, int, optional
        Values given by the user, which are used as they are.
    minibatch : str, optional
        An option given by the user that applies only to minibatches.
    without : str, optional
        What has no collapsed bound, even with Gaussian noise.
    alone : bool
        Whether one process trains.
    few : int
        Number of inducing inputs if it does not depend on the data.
    """
    whole = method == "sgpr"
    if method is not None:
        reason = "as asked"
    elif likelihood != "gaussian" or without is not None:
        what = f"the {likelihood} likelihood" if without is None else without
        method, reason = "svgp", f"{what} has no collapsed bound"
        whole = alone and minibatch is None and rows <= BATCH_SIZE
        if whole:
            reason += f"; at most {BATCH_SIZE} training rows, so natural steps and L-BFGS on all"
    elif minibatch is not None:
        method, reason = "svgp", f"{minibatch} needs minibatches"
    elif rows > MOST_ROWS:
        method, reason = "svgp", f"more than {MOST_ROWS} training rows"
    elif not collapses_well(rows, _number(inducing, rows, distinct)):
        reason = f"more than {FEW_ROWS} training rows and fewer than {MANY} inducing inputs"
        method = "svgp"
    else:
        method, reason = "sgpr", f"Gaussian noise, and at most {MOST_ROWS} training rows"
        whole = True
    if method == "qsgp":
        return Choice(method, 0, False, reason, whole)
    if inducing is None:
        inducing = (
            inducing_by_default(distinct)
            if method == "sgpr" and rows <= MOST_ROWS
            else min(few, rows // 2)
            if method in PAIRED
            else few
        )
    at_data = whole and inducing >= distinct
    return Choice(method, distinct if at_data else inducing, at_data, reason, whole)


def _number(inducing, rows, distinct):
    """Return the number of inducing inputs; ``rows`` if they are all distinct rows."""
    inducing = inducing_by_default(distinct) if inducing is None else inducing
    return rows if inducing >= distinct else inducing


def describe(choice):
    """Describe the choice in a line of the report."""
    changes = "" if choice.reason == "as asked" else " (--method changes it)"
    return f"{choice.reason} -> {METHODS[choice.method]}{changes}"
