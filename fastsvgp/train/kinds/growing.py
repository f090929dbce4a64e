"""``fit`` of an SGPR with ``within``: more and more inducing inputs, until a certificate is narrow.

Each training begins at the parameters that the caller gave. From those of the last training it ends
at a lower bound: few inducing inputs prefer long lengthscales, large variances and much noise, and
L-BFGS does not leave that corner. For the same reason a narrow interval is not enough: where all is
noise, few inducing inputs are as good as all rows. The bound must have stopped rising too.
"""

import contextlib
import logging
from dataclasses import dataclass

import numpy as np

from ... import check
from ...collapsed.certificate import certificate, check_width
from ...errors import DataFileError
from ...inducing import greedy_variance, unique_rows
from ...records import replace
from ...records.inducing_sets import InducingSets
from ...records.persistence import load
from ...runtime import devices
from ...runtime.deferred_checks import on_device
from ..batches import whole
from ..steps import MoreJitter

log = logging.getLogger("fastsvgp")
ITERATIONS = 1000  # of one training, by default


@dataclass(frozen=True)
class SGPROptions:
    """Options of ``fit`` for an ``SGPR``.

    Parameters
    ----------
    within : float, optional
        Width in nats a row: train until ``fs.certificate`` is that narrow, and the last doubling of
        the inducing inputs raised the bound by no more. Each training after the first has twice as
        many as the last: rows of X, chosen by ``fs.inducing.greedy_variance`` with the covariance
        of the last one. All other parameters start again from those of ``model``. ``steps`` count
        all iterations; by default there are up to 1000 for each number of inducing inputs.
        ``info.certificate`` is the last interval. Not with a ``group``.
    """

    within: float | None = None


class GrowingSets:
    """Trainings of an SGPR with more and more inducing inputs.

    trained : function of a request and of fields of a ``TrainingState``, makes the ``Recorder``
    """

    def __init__(self, request, trained):
        model = request.model
        check_width(request.options.within)
        if request.plan.group is not None:
            raise ValueError("fit: `within` is for one process; leave out `group` or `within`")
        of_rows = type(model.covariance).columns_of == "`inducing`"
        if not of_rows or isinstance(model.inducing, InducingSets):
            raise TypeError(
                "fit: `within` chooses rows of `X` as inducing inputs, and those of this"
                f" {type(model.covariance).__name__} are something else; leave it out"
            )
        if request.resume is not None:
            # what is wrong with the file is said by the training
            with contextlib.suppress(OSError, DataFileError, AttributeError):
                model = replace(model, inducing=load(request.resume).model.inducing)
        like = devices.device_array(model)
        self._data = X, Y, weights = [
            None if one is None else devices.copy_to(whole(name, one), like)
            for name, one in (("X", request.X), ("Y", request.Y), ("weights", request.weights))
        ]
        self._request = replace(request, model=model, X=X, Y=Y, weights=weights)
        rows = X if weights is None else X[weights.reshape(-1) > 0]
        self._rows = unique_rows.distinct(rows.get() if on_device(rows) else rows)[0]
        self._jitter = check.jitter_amount(request.jitter, np.dtype(float))
        self._trained, self._rng = trained, check.generator(request.rng)

    def run(self):
        """Return ``(model, FitInfo)``."""
        request, start, fields = self._request, self._request.model, {}
        steps, lower = request.plan.steps, -np.inf
        while True:
            model, info = self._trained(request, **fields).run()
            if info.interrupted:
                return model, info
            found = self._certify(model, info.steps)
            (M,) = model.covariance.num_inducing(model.inducing)
            info, twice = replace(info, certificate=found), min(2 * M, len(self._rows))
            said = (
                f"fit: with {M} inducing inputs the evidence is within {found.per_row:.2g} nats a"
                " row of the exact process"
            )
            risen, lower = found.lower - lower, found.lower
            if found.enough and (twice <= M or risen <= found.within * found.num_data):
                log.info(said)
                return model, info
            if info.reason != "converged" and not (info.reason == "steps" and steps is None):
                log.warning("%s: the training ended before it reached `within`", said)
                return model, info
            if twice <= M:
                log.warning("%s: all rows of X do not reach `within`; lower `jitter`", said)
                return model, info
            log.info("%s; taking %d", said, twice)
            covariance = devices.to_host(model.covariance)
            Z = greedy_variance(self._rows, twice, covariance, rng=self._rng)
            Z = devices.copy_to(Z, devices.device_array(start))
            plan = replace(request.plan, steps=steps or info.steps + ITERATIONS)
            request = replace(request, model=replace(start, inducing=Z), plan=plan, resume=None)
            fields = {"step": info.steps} | {
                name: getattr(info, name) for name in ("values", "seconds", "retries")
            }

    def _certify(self, model, step):
        (X, Y, weights), within = self._data, self._request.options.within

        def compute(jitter):
            return certificate(model, X, Y, within=within, jitter=jitter, weights=weights)

        return MoreJitter(self._jitter, np.dtype(float))(compute, step)[0]
