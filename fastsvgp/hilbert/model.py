"""Any likelihood above a process in a fixed basis: the model, and its bound."""

from .. import check, models
from ..bounds import objectives, predict  # noqa: F401, what they register is shared
from ..bounds.protocol import KINDS, ModelKind, Turn
from ..bounds.svgp import SVGP
from ..covariances import Covariance
from ..likelihoods import Likelihood
from ..means import Mean
from ..posteriors import Posterior, Whitened
from ..records import data, record, replace
from ..runtime.deferred_checks import on_device
from .basis import HilbertBasis
from .layer import BasisPass


@record
class BasisSVGP:
    """A Gaussian process in a fixed basis below any likelihood, with q(v) over its weights.

    f(x) = sum_j S(omega_j)^(1/2) phi_j(x) v_j, v ~ N(0, I). Bounds, natural steps and predictions
    cost some 13^D flops a row and output, free of the number of functions, and m^3.

    Parameters
    ----------
    covariance, basis
        As in ``BasisGP``.
    posterior : Whitened
        Over the m weights v; leading axes are outputs.
    likelihood : Likelihood
    mean : Mean, optional

    Examples
    --------
    >>> covariance = fs.RBF(1.0, 0.5)
    >>> basis = fs.bounds.HilbertBasis.for_lengthscales(X, covariance)
    >>> q = fs.Whitened(np.zeros(basis.size), np.eye(basis.size))
    >>> start = fs.bounds.BasisSVGP(covariance, basis, q, gaussian)
    >>> best, info = fs.natural_step(start, X, Y, step_size=1.0)
    >>> evidence = fs.collapsed_bound(fs.bounds.BasisGP(covariance, basis, 0.1), X, Y)
    >>> abs(fs.elbo(best, X, Y) - evidence) < 1e-6
    True
    """

    covariance: Covariance
    basis: HilbertBasis = data()
    posterior: Posterior
    likelihood: Likelihood
    mean: Mean | None = None


def check_groups(covariance, basis):
    """Refuse a covariance whose terms are not those of the basis."""
    covariance.check_dim(basis.D)
    terms = {tuple(sorted(term[0])) for term in covariance.spectral_terms(basis.D)}
    groups = {tuple(sorted(group)) for group in basis.groups}
    if lacking := sorted(terms - groups):
        raise ValueError(
            f"the covariance has a term of columns {lacking[0]}, and the basis no such group: make"
            " it by HilbertBasis.for_lengthscales(X, covariance)"
        )
    if idle := sorted(groups - terms):
        raise ValueError(
            f"the basis has a group of columns {idle[0]}, and the covariance no such term: make it"
            " by HilbertBasis.for_lengthscales(X, covariance)"
        )


class OfBasisSVGP(ModelKind):
    """The bound of a ``BasisSVGP``."""

    def checked(self, model, X=check.ABSENT, Y=check.ABSENT, names=("X", "Y")):
        check.parts(model)
        basis, q = model.basis, model.posterior
        if not isinstance(basis, HilbertBasis) or type(q) is not Whitened:
            what = type(q).__name__ if isinstance(basis, HilbertBasis) else type(basis).__name__
            raise TypeError(
                f"a BasisSVGP takes a HilbertBasis and a Whitened posterior, got a {what}"
            )
        model, X, Y, dtype = check.arguments(model, X, Y, names)
        if on_device(model.posterior.mean):
            raise TypeError("a BasisSVGP is computed on the host; use fs.to_host(model)")
        check_groups(model.covariance, basis)
        outputs = q.check_size(basis.size)
        model.likelihood.check_settings()
        if model.mean is not None:
            model.mean.check_shapes(basis.D, outputs)
        if X is not check.ABSENT:
            check.columns(X, basis.D, names[0])
            X = X.astype(dtype, copy=False)
        if Y is not check.ABSENT:
            Y = check.targets(Y, X.shape[0], outputs, model.likelihood, dtype, names)
        return model, X, Y, dtype

    def quantities(self, model, X, dtype, rng, options, partition=None):
        return check.draw(options, model, dtype, rng, M=0) if options else {}

    def begin(self, model, jitter, columns=0, need=(), **quantities):
        return BasisPass(model, need)

    def gradient(self, model, bars, likelihood_bar):
        covariance, posterior, mean = bars or (None,) * 3
        return BasisSVGP(covariance, model.basis, posterior, likelihood_bar, mean)

    def check_natural(self, function, model):
        check.parts(model)
        check.natural(function, model.posterior)

    def turns(self, call, shares=False):
        layer = call.begin(self, ("natural_step",))
        yield Turn(layer, lambda posterior: replace(call.model, posterior=posterior))


KINDS[BasisSVGP] = OfBasisSVGP()
models.register(BasisSVGP)
models.share(
    BasisSVGP,
    SVGP,
    "elbo",
    "elbo_and_grad",
    "data_term_and_grad",
    "kl_term_and_grad",
    "predict_f",
    "predict_y",
    "predict_log_density",
    "predict_cdf",
    "predict_quantiles",
    "sample_f",
)
