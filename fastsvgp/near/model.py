"""The VIF: a sparse variational Gaussian process with near rows for the detail."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .. import check, models
from ..bounds import objectives, predict, predict_vjp  # noqa: F401, what they register is shared
from ..bounds.layer_pass import KL
from ..bounds.protocol import KINDS, ModelKind, Turn
from ..bounds.svgp import SVGP
from ..covariances import Covariance
from ..likelihoods import Gaussian, Likelihood
from ..means import Mean
from ..posteriors import Posterior
from ..records import data, leaves, record, replace, static
from ..records.typed import Array, Record
from ..runtime.deferred_checks import on_device
from .layer import NearPass
from .record import NearRows, neighbours
from .site_layer import SitePass, SiteSteps, start_sites


@record
class VIF:
    """A sparse variational Gaussian process with near rows: inducing inputs for the trend of the
    function, the nearest rows of the data for the detail (Vecchia and inducing points).

    Rows have an order, and each is conditioned on its k nearest earlier rows: their targets say
    what inducing inputs leave out. With k = 0 the bound is that of FITC, with all earlier rows and
    the optimal q(u) the log evidence of the exact process.

    Parameters
    ----------
    covariance, inducing, posterior, mean
        As in ``SVGP``.
    likelihood : Likelihood
        Others than Gaussian give each row a site, which natural steps move; one latent function.
    near : NearRows, optional
        The rows of the data, made by ``neighbours``, with their targets. ``fit`` makes them, and so
        does a bound of all data, from all rows, those of weight 0 included.
    neighbours : int
        Number of near rows where ``near`` is made, below N. Default 20.

    Examples
    --------
    >>> near = fs.neighbours(X, covariance, 5, Y=Y)
    >>> detailed = fs.VIF(covariance, Z, model.posterior, gaussian, near=near)
    >>> fs.elbo(detailed, X, Y) > fs.elbo(model, X, Y)
    True
    """

    covariance: Covariance
    inducing: Array | Record
    posterior: Posterior
    likelihood: Likelihood
    mean: Mean | None = None
    near: NearRows | None = data(default=None)
    neighbours: int = static(default=20)


@dataclass(frozen=True)
class RowOptions:
    """Options of a bound of a ``VIF``.

    Parameters
    ----------
    rows : (B,) integers
        The numbers of the rows X among those of ``model.near``. Default: X are all rows.
    """

    rows: Sequence[int] | None = None


class OfVIF(ModelKind):
    """The bound of a ``VIF``."""

    def checked(self, model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
        check.parts(model)
        plain = isinstance(model.likelihood, Gaussian)
        if not plain:
            _check_sites(model)
        model, X, Y, dtype = check.svgp(model, X, Y, names)
        if on_device(next(leaves(model.posterior))[2]):
            raise TypeError("near rows are computed on the host; use fs.to_host(model)")
        near = model.near
        if near is None and names == ("X", "Y") and Y is not check.ABSENT:
            k = check.whole("neighbours", model.neighbours, 0)
            near = neighbours(X, model.covariance, k, Y=Y if Y.ndim == 1 else Y.T)
            model = replace(model, near=near)
        if near is not None and not plain:
            model = replace(model, near=start_sites(near))
        return model, X, Y, dtype

    def quantities(self, model, X, dtype, rng, options, partition=None):
        if X is None:
            return {}
        near, rows = model.near, RowOptions(**options).rows
        N = len(near.X)
        if partition is not None and partition.own:
            raise ValueError(
                "near rows of a rank are rows of others: give all rows to each, and a group whose"
                ' `rows` are "all"'
            )
        if rows is None:
            rows = np.arange(N)
        else:
            rows = _row_numbers(rows, N)
        if partition is not None and len(rows) != len(X):
            rows = rows[partition.rows]
        if len(rows) != len(X):
            raise ValueError(
                f"`X` has {len(X)} rows, and `model.near` {N}: give their numbers as `rows`, or"
                " near rows of these data by fs.neighbours(X, covariance, k, Y=Y)"
            )
        there = np.asarray(near.X[rows])
        differ = (there.astype(dtype) != X).any(axis=1) & near.usable()[rows]
        if differ.any():
            raise ValueError(
                f"row {int(np.argmax(differ))} of `X` is not that row of `model.near`: make near"
                " rows of these data by fs.neighbours(X, covariance, k, Y=Y)"
            )
        if near.Y is None:
            raise ValueError("`model.near` has no targets: make it with fs.neighbours(..., Y=Y)")
        return {"rows": rows}

    def begin(self, model, jitter, columns=0, need=(), rows=None):
        near = model.near
        if KL not in need and (near is None or near.Y is None and near.lambda2 is None):
            raise ValueError(
                "the VIF has no near rows: train it by fs.fit, or put fs.neighbours(X, covariance,"
                " k, Y=Y) into it as `near`"
            )
        if rows is not None and "inputs" in need:
            raise TypeError("`inputs`: X are rows of the data of a VIF, and have no gradient")
        if rows is not None and not isinstance(model.likelihood, Gaussian):
            return SitePass(model, jitter, columns, need, rows)
        return NearPass(model, jitter, columns, need, rows)

    def gradient(self, model, bars, likelihood_bar):
        if bars is None:
            return VIF(None, None, None, likelihood_bar, None, model.near)
        *parts, mean, noise = bars
        if isinstance(likelihood_bar, Gaussian):
            variance = likelihood_bar.variance
            likelihood_bar = Gaussian(variance + type(variance)(noise))
        return VIF(*parts, likelihood_bar, mean, model.near, neighbours=model.neighbours)

    def check_natural(self, function, model):
        check.parts(model)
        check.natural(function, model.posterior)

    def turns(self, call, shares=False):
        """Yield an E-step of the sites, if there are any, and a step of q(u)."""
        model = call.model
        if not isinstance(model.likelihood, Gaussian):
            layer = SiteSteps(model, call.jitter, len(call.batch.X), **call.quantities)
            model = yield Turn(layer, lambda near: replace(call.model, near=near))
            call = call._replace(model=model)
        layer = call.begin(self, ("natural_step",))
        yield Turn(layer, lambda posterior: replace(model, posterior=posterior))


def _check_sites(model):
    """Refuse likelihoods that have no sites here: of several functions, or several outputs."""
    likelihood = model.likelihood
    K, several = likelihood.latents_per_output, np.ndim(next(leaves(model.posterior))[2]) > 1
    if likelihood.num_latent is not None or K != 1 or several:
        raise TypeError(
            f"a VIF with a {type(likelihood).__name__} likelihood needs one latent function, as"
            " each near row has one site; use an SVGP"
        )


def _row_numbers(rows, N):
    """Check row numbers; a batch at the seam of two epochs can name a row twice."""
    rows = check.as_array("rows", rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= N)).any():
        raise ValueError(
            f"`rows` must hold row numbers, 0 to {N - 1}, in an array (B,), got {rows!r:.80}"
        )
    return rows.astype(np.int64)


KINDS[VIF] = OfVIF()
models.register(
    VIF, instead="fs.fit trains it, on old and new rows together, and fs.predict_y predicts"
)
models.share(VIF, SVGP, "kl_term_and_grad", options=models.NoOptions)
models.share(VIF, SVGP, "elbo", "elbo_and_grad", "data_term_and_grad", options=RowOptions)
models.share(
    VIF,
    SVGP,
    "predict_f",
    "predict_y",
    "predict_log_density",
    "predict_cdf",
    "predict_quantiles",
    "predict_f_and_vjp",
    "sample_f",
)
