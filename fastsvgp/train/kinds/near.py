"""``fit`` for a VIF: minibatch steps; near rows follow the lengthscales."""

import dataclasses
import logging

import numpy as np

from ... import check, models
from ...bounds.protocol import kind_of
from ...bounds.relay import Call, sum_natural
from ...check.scale import DataScale
from ...likelihoods import Gaussian
from ...near.conditionals import CLUSTER
from ...near.index import place_rows
from ...near.model import VIF
from ...near.record import follow, neighbours
from ...optim.natural.step import natural_step, natural_step_and_grad
from ...records import replace
from ..arguments import seed_of
from ..batches import Batches, PartOfBatches, whole
from ..steps.minibatch import MinibatchSteps
from .svgp import SVGPOptions, assign_leaves, recorder

log = logging.getLogger("fastsvgp")


@models.with_options(SVGPOptions)
def near_training(request):
    """Make the ``Recorder`` of a training of a VIF; its near rows are found if it has none."""
    model, own, N = request.model, request.options, len(request.X)
    check.parts(model)
    given = {
        "collapsed": own.collapsed,
        "graph": own.graph is True,
        "inverse_updates": own.inverse_updates,
        "e_steps": (own.e_steps or 1) > 1,
    }
    trained = "a VIF is trained on minibatches, one natural step each"
    request.refuse(trained, more=[name for name, asked in given.items() if asked])
    if request.plan.group is not None and request.plan.group.own:
        raise ValueError(
            'fit: near rows of a rank are rows of others; use a group whose `rows` are "all"'
        )
    X, Y = (whole(name, getattr(request, name)[:]) for name in ("X", "Y"))
    if model.near is None:
        k = check.whole("neighbours", model.neighbours, 0)
        near = neighbours(X, model.covariance, k, Y=Y, weights=request.weights)
        model = replace(model, near=near)
    elif len(model.near.X) != N:
        raise ValueError(
            f"fit: `X` has {N} rows and `model.near` {len(model.near.X)}; leave `near` out, or make"
            " it of these data"
        )
    elif (other := model.near.other_targets(Y)).any():
        raise ValueError(
            f"fit: row {int(np.argmax(other))} of `Y` is not that row of `model.near`; leave `near`"
            " out, or make it of these data"
        )
    if not isinstance(model.likelihood, Gaussian):
        if own.natural_step_size is None:
            raise ValueError(
                f"fit: sites of near rows, which a {type(model.likelihood).__name__} likelihood"
                " needs, move by natural steps: give `natural_step_size`, 0.1 for example"
            )
        model = _with_sites(model, X, Y, request)
    request = dataclasses.replace(request, model=model)
    checked = kind_of(model).checked
    return recorder(request, NearSteps, assign_leaves(request), {}, checked, clustered)


models.register(VIF, fit=near_training)


def clustered(session, X, Y, size, seed, weights):
    """Make the batches of one process, or of a rank whose group holds all rows."""
    if session is None:
        return ClusterBatches(X, Y, size, seed, weights)
    batches = PartOfClusters(X, Y, size, seed, weights, session)
    session.scale, session.partition = batches.scale, batches.partition
    return batches


class ClusterBatches(Batches):
    """``Batches`` of clusters of rows, which share many of their near rows.

    Clusters depend on the inputs alone, so that a training can resume with any model.
    """

    def __init__(self, X, Y, size, seed, weights=None, *others):
        super().__init__(X, Y, size, seed, weights, *others)
        rows = np.asarray(X[:], np.float64)
        spread = rows.std(axis=0)
        self._place = place_rows(rows / np.where(spread > 0, spread, 1))
        counting = slice(None) if self._counting is None else self._counting
        self._ordered = np.argsort(self._place[counting])

    def _permutation(self, epoch):
        rng, N = np.random.default_rng([self.seed, 0, epoch]), self.num_data
        # clusters begin at another row in each epoch
        shifted = np.roll(self._ordered, int(rng.integers(N)))
        clusters = np.array_split(shifted, -(-N // CLUSTER))
        return np.concatenate([clusters[i] for i in rng.permutation(len(clusters))])

    def at(self, step):
        order = np.argsort(self._place[super().rows(step)], kind="stable")
        return tuple(data[order] for data in super().at(step))

    def rows(self, step):
        rows = super().rows(step)
        return rows[np.argsort(self._place[rows], kind="stable")]


def _with_sites(model, X, Y, request):
    """Return the model with the sites of all rows at its q(u), if it has none."""
    if model.near.lambda2 is not None:
        return model
    kind, given = kind_of(model), {name: getattr(request, name) for name in ("weights", "jitter")}
    call = Call.from_arguments(kind, model, X, Y, DataScale(), rng=seed_of(request.rng), **given)
    turn = next(kind.turns(call))
    sum_natural(call.model, turn.layer, call.batch)
    return replace(model, near=turn.layer.natural_step(1.0))


class PartOfClusters(ClusterBatches, PartOfBatches):
    """This rank's part of the same batches."""


class NearSteps(MinibatchSteps):
    """``MinibatchSteps`` whose bounds get the numbers of the rows of a batch."""

    _counted = False  # whether rows that are no neighbours were reported

    def _move_to(self, model, optimised, scheduled):
        near = follow(model.near, model.covariance)
        model = model if near is model.near else replace(model, near=near)
        super()._move_to(model, optimised, scheduled)

    def _options(self, at):
        return super()._options(at) | {"rows": self._batches.rows(at)}

    def _natural_steps(self, model, batches, at, size, paths, *, jitter):
        """Take a natural step, which moves q(u) and the sites of near rows."""
        options = {"step_size": size, "jitter": jitter} | self._options(at)
        if paths:
            options["wrt"] = paths
            stepped, info, *rest = self._call_bound(
                natural_step_and_grad, at, model, batches[0], **options
            )
        else:
            stepped, info = self._call_bound(natural_step, at, model, batches[0], **options)
            rest = info.value, None
        if info.negative and not self._counted:
            self._counted = True
            log.warning(
                "step %d: %d rows of the batch have sites of no positive precision, and are no"
                " neighbours; further ones are not reported",
                self._step + 1,
                info.negative,
            )
        return stepped, [info], *rest
