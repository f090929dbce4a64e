"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from . import (
    bounds as bounds,
    covariances as covariances,
    distributed as distributed,
    errors as errors,
    extending as extending,
    inducing as inducing,
    kernels as kernels,
    layers as layers,
    likelihoods as likelihoods,
    means as means,
    optim as optim,
    posteriors as posteriors,
    priors as priors,
    qsgp as qsgp,
    recipes as recipes,
    records as records,
    sensitivity as sensitivity,
    sites as sites,
    testing as testing,
)
from .bounds.objectives import elbo as elbo, elbo_and_grad as elbo_and_grad
from .bounds.predict import (
    predict_cdf as predict_cdf,
    predict_f as predict_f,
    predict_log_density as predict_log_density,
    predict_quantiles as predict_quantiles,
    predict_y as predict_y,
    sample_f as sample_f,
)
from .bounds.predictor import predictor as predictor
from .bounds.svgp import SVGP as SVGP
from .cli.fitted import load_fitted as load_fitted
from .collapsed.certificate import certificate as certificate
from .collapsed.sgpr import (
    SGPR as SGPR,
    collapsed_bound as collapsed_bound,
    collapsed_bound_and_grad as collapsed_bound_and_grad,
    optimal_svgp as optimal_svgp,
)
from .conditioning.condition import condition as condition
from .covariances.linear import Linear as Linear
from .covariances.periodic import Periodic as Periodic
from .covariances.stationary import (
    RBF as RBF,
    Matern12 as Matern12,
    Matern32 as Matern32,
    Matern52 as Matern52,
)
from .errors import (
    DataFileError as DataFileError,
    Diverged as Diverged,
    NotPositiveDefinite as NotPositiveDefinite,
    RemoteError as RemoteError,
    VarianceClampWarning as VarianceClampWarning,
)
from .exporting.write import export as export
from .latents.model import MultiGP as MultiGP
from .layers.layer import DeepGP as DeepGP
from .likelihoods.bernoulli import BernoulliProbit as BernoulliProbit
from .likelihoods.counts.poisson import Poisson as Poisson
from .likelihoods.gaussian import Gaussian as Gaussian
from .likelihoods.multiclass import Softmax as Softmax
from .likelihoods.student_t import StudentT as StudentT
from .near.model import VIF as VIF
from .optim.first_order import adam as adam, sgd as sgd
from .optim.flat import ravel as ravel
from .optim.natural.step import natural_step as natural_step
from .paths.sample import sample_paths as sample_paths
from .posteriors.gaussian_factor import Marginal as Marginal, Whitened as Whitened
from .qsgp.model import QSGP as QSGP
from .recipes.model_search.search_models import search as search
from .records.persistence import load as load, save as save
from .records.tree import replace as replace
from .runtime.devices import to_device as to_device, to_host as to_host
from .runtime.num_threads import (
    get_num_threads as get_num_threads,
    set_num_threads as set_num_threads,
)
from .train import fit as fit
from .train.em import em as em

__version__: str
