"""The public names, for type checkers and editors; __init__.py loads them lazily.

Written by ``python tools/public_names.py``.
"""

from . import (
    distributed as distributed,
    extending as extending,
    kernels as kernels,
    models as models,
    recipes as recipes,
    testing as testing,
)
from .bounds.at_prior import at_prior as at_prior, to_joint as to_joint
from .bounds.convert import convert as convert
from .bounds.elbo import (
    data_term_and_grad as data_term_and_grad,
    elbo as elbo,
    elbo_and_grad as elbo_and_grad,
    kl_term_and_grad as kl_term_and_grad,
)
from .bounds.from_blocks import (
    elbo_and_grad_from_blocks as elbo_and_grad_from_blocks,
    predict_from_blocks as predict_from_blocks,
)
from .bounds.inverse_free_direction import likelihood_direction as likelihood_direction
from .bounds.predict import (
    predict_cdf as predict_cdf,
    predict_f as predict_f,
    predict_log_density as predict_log_density,
    predict_quantiles as predict_quantiles,
    predict_y as predict_y,
    sample_f as sample_f,
)
from .bounds.predict_vjp import predict_f_and_vjp as predict_f_and_vjp
from .bounds.svgp import SVGP as SVGP
from .cli.fitted import Fitted as Fitted, load_fitted as load_fitted
from .collapsed.orthogonal import OrthogonalSGPR as OrthogonalSGPR
from .collapsed.sgpr import (
    SGPR as SGPR,
    collapsed_bound as collapsed_bound,
    collapsed_bound_and_grad as collapsed_bound_and_grad,
    optimal_svgp as optimal_svgp,
)
from .collapsed.tighter import (
    tighter_bound as tighter_bound,
    tighter_bound_and_grad as tighter_bound_and_grad,
)
from .covariances import (
    RBF as RBF,
    Additive as Additive,
    ArcCosine as ArcCosine,
    Categorical as Categorical,
    ChangePoints as ChangePoints,
    Constant as Constant,
    Convolutional as Convolutional,
    Coregion as Coregion,
    Cosine as Cosine,
    Covariance as Covariance,
    Linear as Linear,
    Matern12 as Matern12,
    Matern32 as Matern32,
    Matern52 as Matern52,
    Network as Network,
    On as On,
    OnFeatures as OnFeatures,
    Periodic as Periodic,
    Polynomial as Polynomial,
    Product as Product,
    RationalQuadratic as RationalQuadratic,
    Sum as Sum,
    extract_patches as extract_patches,
    spectral_mixture as spectral_mixture,
)
from .errors import (
    DataFileError as DataFileError,
    NotPositiveDefinite as NotPositiveDefinite,
    RemoteError as RemoteError,
    VarianceClampWarning as VarianceClampWarning,
)
from .files.row_files import row_files as row_files
from .initialise.inducing import (
    greedy_variance_inducing as greedy_variance_inducing,
    kmeans_inducing as kmeans_inducing,
)
from .initialise.lengthscales import median_lengthscales as median_lengthscales
from .initialise.patches import patch_inducing as patch_inducing
from .initialise.principal_components import pca_mean as pca_mean
from .initialise.spectrum import spectral_start as spectral_start
from .latents.build import multi_gp as multi_gp
from .latents.model import MultiGP as MultiGP
from .latents.parallel_layers import ParallelLayers as ParallelLayers
from .layers.build import deep_gp as deep_gp
from .layers.convolutional import ConvolutionalLayer as ConvolutionalLayer
from .layers.layer import DeepGP as DeepGP, Layer as Layer
from .likelihoods import (
    BernoulliLogit as BernoulliLogit,
    BernoulliProbit as BernoulliProbit,
    Beta as Beta,
    Binomial as Binomial,
    Censored as Censored,
    Exponential as Exponential,
    Gamma as Gamma,
    Gaussian as Gaussian,
    HeteroskedasticGaussian as HeteroskedasticGaussian,
    HeteroskedasticNegativeBinomial as HeteroskedasticNegativeBinomial,
    KnownNoise as KnownNoise,
    Laplace as Laplace,
    Likelihood as Likelihood,
    NegativeBinomial as NegativeBinomial,
    OneLatent as OneLatent,
    Ordinal as Ordinal,
    Poisson as Poisson,
    RobustMax as RobustMax,
    Softmax as Softmax,
    StudentT as StudentT,
    Switched as Switched,
    TwoLatents as TwoLatents,
    ZeroInflatedPoisson as ZeroInflatedPoisson,
)
from .means import (
    ConstantMean as ConstantMean,
    IdentityMean as IdentityMean,
    LinearMean as LinearMean,
    Mean as Mean,
    ZeroMean as ZeroMean,
)
from .optim import schedules as schedules
from .optim.adagrad import adagrad as adagrad
from .optim.by_field import by_field as by_field, gentle_inducing as gentle_inducing
from .optim.first_order import adam as adam, sgd as sgd
from .optim.flat import ravel as ravel
from .optim.inverse.factor import (
    inverse_factor as inverse_factor,
    newton_schulz_step as newton_schulz_step,
)
from .optim.inverse.updates import (
    inverse_updates as inverse_updates,
    refresh_inverse as refresh_inverse,
)
from .optim.inverse.variance_gap import (
    variance_gap as variance_gap,
    variance_interval as variance_interval,
)
from .optim.natural.from_gradient import natural_update as natural_update
from .optim.natural.step import (
    natural_step as natural_step,
    natural_step_and_grad as natural_step_and_grad,
)
from .paths.record import Paths as Paths
from .paths.sample import sample_paths as sample_paths
from .posteriors import (
    AbsorbedDualSites as AbsorbedDualSites,
    Decoupled as Decoupled,
    DecoupledWeights as DecoupledWeights,
    DualSites as DualSites,
    InverseFreeWhitened as InverseFreeWhitened,
    LikelihoodForm as LikelihoodForm,
    Marginal as Marginal,
    Orthogonal as Orthogonal,
    Pass as Pass,
    Posterior as Posterior,
    Relaxed as Relaxed,
    Whitened as Whitened,
    WhitenedOrthogonal as WhitenedOrthogonal,
)
from .records.decorator import (
    Blocks as Blocks,
    Marginals as Marginals,
    leaf as leaf,
    record as record,
    static as static,
)
from .records.inducing_sets import InducingPair as InducingPair
from .records.persistence import load as load, load_with_extra as load_with_extra, save as save
from .records.tree import (
    leaves as leaves,
    replace as replace,
    replace_at as replace_at,
    tree_map as tree_map,
)
from .runtime.devices import to_device as to_device, to_host as to_host
from .runtime.num_threads import (
    get_num_threads as get_num_threads,
    set_num_threads as set_num_threads,
)
from .sites.dual_parameters import (
    Sites as Sites,
    dual_parameters as dual_parameters,
    leave_one_out as leave_one_out,
)
from .sites.site_svgp import (
    SiteSVGP as SiteSVGP,
    site_bound as site_bound,
    site_bound_and_grad as site_bound_and_grad,
    site_bound_terms as site_bound_terms,
    tied as tied,
)
from .sites.vgp import VGP as VGP
from .train import fit as fit
from .train.em import em as em
from .train.natural_steps import natural_steps as natural_steps
from .train.optimal_weights import optimal_weights as optimal_weights
from .train.state import TrainingState as TrainingState
from .weight_space.bases import (
    InducingBasis as InducingBasis,
    RandomFourier as RandomFourier,
    RelevanceBasis as RelevanceBasis,
)
from .weight_space.bases.samples import (
    BasisSample as BasisSample,
    SparseRows as SparseRows,
    draw_basis_sample as draw_basis_sample,
)
from .weight_space.control_changes import advance_control as advance_control
from .weight_space.control_variates import (
    KrigedControl as KrigedControl,
    kriged_control as kriged_control,
)
from .weight_space.from_features import (
    sampled_bound_and_grad_from_features as sampled_bound_and_grad_from_features,
)
from .weight_space.optimal_weights import (
    WeightsInfo as WeightsInfo,
    optimal_diagonal as optimal_diagonal,
)
from .weight_space.paired_control import (
    PairedControl as PairedControl,
    paired_control as paired_control,
)
from .weight_space.posterior import ChevronWeights as ChevronWeights
from .weight_space.qsgp import (
    QSGP as QSGP,
    weight_bound as weight_bound,
    weight_bound_and_grad as weight_bound_and_grad,
)
from .weight_space.relevance import (
    optimal_precision as optimal_precision,
    prune as prune,
    relevance_vectors as relevance_vectors,
)
from .weight_space.sampled_bound import (
    SampledInfo as SampledInfo,
    sampled_bound_and_grad as sampled_bound_and_grad,
)

__version__: str
