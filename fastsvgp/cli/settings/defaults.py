"""The method and the inducing inputs where the user names none: by the likelihood and the number of training rows.

Small data under Gaussian noise go to the collapsed bound. Up to ``ALL`` distinct rows they are
their own inducing inputs, held fixed: the bound is then the marginal likelihood of an exact GP, but
for the jitter, and needs no gradient in the inducing inputs. Measured on held-out rows (test split
0, Matérn 3/2 ARD; RMSE, NLPD, processor seconds of the whole command):

    data                          minibatches, M = 256    scikit-learn's exact GP    chosen here
    airfoil, 1353 rows            0.254,  0.061, 36 s     0.164, -0.360, 21 s        0.164, -0.360, 16 s
    energy, 692 rows              0.043, -1.718, 39 s     0.043, -1.725, 10 s        0.032, -2.063,  8 s
    kin40k, 2250 of its rows      0.387,  0.483, 35 s                                0.331,  0.275, 38 s (training alone)
    elevators, 2250 of its rows   0.399,  0.494, 40 s                                0.400,  0.495, 35 s (training alone)

Steps on the way do not pay. From the hyperparameters of 500 random rows airfoil takes 31
evaluations of the bound, from scratch 27; from those of 300, energy ends at a maximum that is 65
nats lower. From those of 256 inducing inputs, kin40k takes 69 s for what it takes 65 s without.
1000 inducing inputs that stay where k-means put them have an NLPD of 0.41 there.
"""

from dataclasses import dataclass

from .names import METHODS, PAIRED

SECONDS = 60.0  # of a search
COLLAPSED = 5000  # training rows up to which the collapsed bound is the default
ALL = 1500  # distinct ones up to which they all are inducing inputs
SOME = 1000  # inducing inputs of the collapsed bound above that
FEW = 256  # of everything else, at most half of the rows for each of two sets
LAYER = 128  # of each layer of a deep model
SAMPLED = 1024  # inducing inputs of the second set at each step of odvgp
# of qsgp: random Fourier features, those of a step, points of the control
FEATURES, BASIS, POINTS = 100_000, 10_000, 500
# of all rows in float64: the bound loses up to N jitter / (2 noise), 1e-6 costs energy 0.012 of
# NLPD
JITTER = 1e-7
MINIBATCH = (  # arguments that only minibatches have
    "batch_size", "learning_rate", "natural_step", "e_steps", "m_steps", "layers", "patch_shape",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """``at_data``: the inducing inputs are the distinct training inputs, held fixed.

    ``reason`` says why, in words.
    """

    method: str
    inducing: int
    at_data: bool
    reason: str


def choose(likelihood, rows, distinct, *, method=None, inducing=None, minibatch=None, few=FEW):
    """The method and the number of inducing inputs.

    Parameters
    ----------
    likelihood : str
        One of ``names.LIKELIHOODS``.
    rows, distinct : int
        Training rows, and how many differ in their inputs.
    method, inducing : str, int, optional
        What the user asked for; it is taken.
    minibatch : str, optional
        An option that the user gave and that only minibatches have.
    few : int
        Inducing inputs where these do not depend on the data.
    """
    if method is not None:
        reason = "as asked"
    elif likelihood != "gaussian":
        method, reason = "svgp", f"the {likelihood} likelihood has no collapsed bound"
    elif minibatch is not None:
        method, reason = "svgp", f"{minibatch} is for minibatches"
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
    """The choice in a line of the report."""
    changes = "" if choice.reason == "as asked" else " (--method changes it)"
    return f"{choice.reason} -> {METHODS[choice.method]}{changes}"
