"""The record of an SVGP, and its pass: one layer, whose fields are those of the model."""

from .. import check
from ..covariances import Covariance
from ..likelihoods import Likelihood
from ..means import Mean
from ..posteriors import Posterior
from ..records import record, replace
from ..records.typed import Array, Record
from ..runtime import tuning
from . import small_step
from .posterior_passes import layer_pass
from .protocol import KINDS, Functions, ModelKind, Turn
from .relay import request_sums
from .shared_pass import SharedLayerPass


@record
class SVGP:
    """A sparse variational Gaussian process.

    Parameters
    ----------
    covariance : Covariance
    inducing : (M, D) array, or a record
        Inducing inputs Z. ``InducingPair(Z, O)`` for posteriors with two sets, or the record type
        that the covariance requires.
    posterior : Posterior
        ``Whitened``, ``Marginal``, ``LikelihoodForm``, ``Relaxed``, ``InverseFreeWhitened``,
        ``AbsorbedDualSites`` or ``DualSites``; with an ``InducingPair`` ``WhitenedOrthogonal``,
        ``Orthogonal``, ``Decoupled`` or ``DecoupledWeights``. Leading axes of its fields are
        outputs (or classes).
    likelihood : Likelihood
    mean : Mean, optional
        Mean function, added to the latent function; ``None`` is zero.

    Examples
    --------
    >>> model = fs.SVGP(covariance=fs.RBF(variance=1.0, lengthscales=np.ones(1)), inducing=Z,
    ...                 posterior=fs.Whitened(mean=np.zeros(6), scale_tril=np.eye(6)),
    ...                 likelihood=fs.Gaussian(variance=0.1))
    >>> model.posterior
    Whitened(mean=<float64 (6,)>, scale_tril=<float64 (6, 6)>)
    """

    covariance: Covariance
    inducing: Array | Record
    posterior: Posterior
    likelihood: Likelihood
    mean: Mean | None = None


class OfSVGP(ModelKind):
    """The bound of an SVGP."""

    checked = staticmethod(check.svgp)

    def quantities(self, model, X, dtype, rng, options, partition=None):
        return check.draw(options, model, dtype, rng) if options else {}

    def begin(self, model, jitter, columns=0, need=(), **quantities):
        return layer_pass(model, jitter, columns, need, **quantities)

    def gradient(self, model, bars, likelihood_bar):
        covariance, inducing, posterior, mean = bars or (None,) * 4
        return SVGP(covariance, inducing, posterior, likelihood_bar, mean)

    def functions(self, model):
        return Functions((model,))

    def check_natural(self, function, model):
        check.parts(model)
        check.natural(function, model.posterior)

    def turns(self, call, shares=False):
        layer = small_step.sums(call, natural=True)
        if not layer:
            model, columns = call.model, len(call.batch.X)
            begin = SharedLayerPass if shares and _can_share(model, columns) else layer_pass
            need = request_sums(model, ("natural_step",), gradient=False)
            layer = begin(model, call.jitter, columns, need, **call.quantities)
        yield Turn(layer, lambda posterior: replace(call.model, posterior=posterior))


def _can_share(model, N):
    """Whether a natural step and a gradient can share the rows' blocks within their memory."""
    sizes = model.covariance.num_inducing(model.inducing)
    return len(sizes) == 1 and 2 * sum(sizes) * N <= tuning.current.shared_block_numbers


KINDS[SVGP] = OfSVGP()
