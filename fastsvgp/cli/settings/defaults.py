"""The default method and number of inducing inputs, by likelihood and number of training rows.

Small data under Gaussian noise use the collapsed bound. Up to ``ALL`` distinct rows are their own
inducing inputs, held fixed. The bound is then the marginal likelihood of an exact GP, except for
the jitter, and needs no gradient in the inducing inputs. Measured on held-out rows (test split 0,
Matérn 3/2 ARD; RMSE, NLPD, processor seconds of the whole command, or of training only for *):

    data               minibatches, M = 256   scikit-learn's exact GP   chosen here
    airfoil, 1353      0.254,  0.061, 36 s    0.164, -0.360, 21 s       0.164, -0.360, 16 s
    energy, 692        0.043, -1.718, 39 s    0.043, -1.725, 10 s       0.032, -2.063,  8 s
    kin40k, 2250       0.387,  0.483, 35 s                              0.331,  0.275, 38 s *
    elevators, 2250    0.399,  0.494, 40 s                              0.400,  0.495, 35 s *

The numbers after the names are training rows; kin40k and elevators have more.

A start from a smaller problem does not pay. From the hyperparameters of 500 random rows, airfoil
takes 31 evaluations of the bound, and 27 from scratch. From those of 300 rows, energy ends at a
maximum that is 65 nats lower. From those of 256 inducing inputs, kin40k takes 69 s, and 65 s from
scratch. With 1000 inducing inputs fixed at the centres of k-means, kin40k has an NLPD of 0.41.
"""

from dataclasses import dataclass

from .names import METHODS, PAIRED

SECONDS = 60.0  # duration of a search
COLLAPSED = 5000  # most training rows for which the collapsed bound is the default
ALL = 1500  # most distinct training rows that all become inducing inputs
SOME = 1000  # inducing inputs of the collapsed bound for more rows
FEW = 256  # inducing inputs of all other models; of two sets, each has at most half of the rows
LAYER = 128  # inducing inputs per layer of a deep model
SAMPLED = 1024  # inducing inputs of the second set per step of odvgp
# qsgp: random Fourier features, features per sample, points of the control variate
FEATURES, BASIS, POINTS = 100_000, 10_000, 500
# if all rows are inducing inputs, in float64: the bound loses up to N jitter / (2 noise), and 1e-6
# costs 0.012 of NLPD on energy
JITTER = 1e-7
MINIBATCH = (  # arguments that apply only to minibatches
    "batch_size", "learning_rate", "natural_step", "e_steps", "m_steps", "layers", "patch_shape",
    "latents",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """A method, a number of inducing inputs, and the reason for the choice.

    ``at_data``: the inducing inputs are the distinct training inputs, held fixed.
    """

    method: str
    inducing: int
    at_data: bool
    reason: str


def choose(likelihood, rows, distinct, *, method=None, inducing=None, minibatch=None, few=FEW):
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
    few : int
        Number of inducing inputs if it does not depend on the data.
    """
    if method is not None:
        reason = "as asked"
    elif likelihood != "gaussian":
        method, reason = "svgp", f"the {likelihood} likelihood has no collapsed bound"
    elif minibatch is not None:
        method, reason = "svgp", f"{minibatch} needs minibatches"
    elif rows > COLLAPSED:
        method, reason = "svgp", f"more than {COLLAPSED} training rows"
    else:
        method, reason = "sgpr", f"Gaussian noise, and at most {COLLAPSED} training rows"
    collapsed = method == "sgpr"
    if method == "qsgp":
        return Choice(method, 0, False, reason)
    if inducing is None:
        small = collapsed and rows <= COLLAPSED
        inducing = (
            (distinct if distinct <= ALL else SOME)
            if small
            else min(few, rows // 2)
            if method in PAIRED
            else few
        )
    at_data = collapsed and inducing >= distinct
    return Choice(method, distinct if at_data else inducing, at_data, reason)


def describe(choice):
    """Describe the choice in a line of the report."""
    changes = "" if choice.reason == "as asked" else " (--method changes it)"
    return f"{choice.reason} -> {METHODS[choice.method]}{changes}"
