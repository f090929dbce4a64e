"""Arguments of ``fit`` on several ranks: differing and unsupported ones are named on all ranks."""

import numpy as np
import pytest
from support.rank_models import TRAINING_ROWS as N, D, M, training_problem as problem
from support.rank_problems import ends

import fastsvgp as fs
from fastsvgp.train import minibatch_training


def weights():
    """Make a QSGP."""
    basis = fs.qsgp.InducingBasis(fs.RBF(1.0, np.ones(D)), np.zeros((M, D)))
    return fs.QSGP(
        basis, fs.qsgp.ChevronWeights(np.zeros(M), np.zeros((M, 0)), np.ones(M)), fs.Gaussian(0.1)
    )


def sites():
    """Make a SiteSVGP."""
    return fs.sites.SiteSVGP(
        fs.RBF(1.0, np.ones(D)),
        np.zeros((M, D)),
        fs.sites.Sites(np.zeros(N), np.ones(N)),
        fs.Gaussian(0.1),
    )


@fs.records.record
class Solitary:
    """A user-defined kind whose bound takes no group."""

    covariance: object


fs.extending.models.register(
    Solitary,
    fit=minibatch_training,
    elbo_and_grad=lambda model, X, Y, *, num_data=None: (0.0, model),
)

BAD = {
    "columns": (lambda r, c: c | {"X": c["X"][:, :1]} if r else c, "shape of X"),
    "dtype": (lambda r, c: c | {"X": c["X"].astype(np.float32)} if r else c, "dtype of X"),
    "rows": (lambda r, c: c | {"X": c["X"][:-1], "Y": c["Y"][:-1]} if r else c, "rows of X"),
    "model": (
        lambda r, c: (
            c | {"model": fs.SGPR(c["model"].covariance, c["model"].inducing, 0.1)} if r else c
        ),
        "`model`",
    ),
    "numbers": (
        lambda r, c: c | {"model": fs.replace(c["model"], mean=fs.means.ConstantMean(0.1 * r))},
        "numbers of the model",
    ),
    "seed": (lambda r, c: c | {"rng": 7 + r}, "seed"),
    "steps": (lambda r, c: c | {"steps": 10 + r}, "`steps`"),
    "size": (lambda r, c: c | {"batch_size": 2}, "3 ranks and 2 rows"),
    "lengths": (lambda r, c: c | {"Y": c["Y"][:-1]}, "same number of rows"),
    "features": (lambda r, c: c | {"model": weights()}, "a QSGP is trained by one process"),
    "own": (
        lambda r, c: c | {"model": Solitary(c["model"].covariance)},
        "a Solitary is trained by one process, for its bound",
    ),
    "sites": (lambda r, c: c | {"model": sites()}, "got SiteSVGP: em trains it"),
    "graph": (lambda r, c: c | {"graph": True}, "graph=True"),
}


@pytest.mark.parametrize("bad", BAD)
def test_differing_arguments_are_named_at_the_start(rng, bad):
    model, X, Y = problem(rng)
    change, message = BAD[bad]

    def train(group):
        call = change(group.rank, {"model": model, "X": X, "Y": Y, "steps": 10, "rng": 0})
        return fs.fit(call.pop("model"), call.pop("X"), call.pop("Y"), group=group, **call)

    for error in ends(3, train):
        assert isinstance(error, (ValueError, TypeError)) and message in str(error), error


def test_an_empty_shard_is_refused(rng):
    model, X, Y = problem(rng)
    errors = ends(
        2,
        lambda group: fs.fit(model, X[: N * group.rank], Y[: N * group.rank], steps=3, group=group),
        "own",
    )
    assert isinstance(errors[0], ValueError) and "rank 0 has no rows" in str(errors[0])
    assert isinstance(errors[1], fs.RemoteError) and errors[1].rank == 0
