"""The public names, for type checkers and editors; at run time they load lazily (see __init__.py)."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, Unpack, overload

from . import distributed as distributed
from . import extending as extending
from . import kernels as kernels
from . import models as models
from . import recipes as recipes
from .bases import (
    InducingBasis as InducingBasis,
)
from .bases import (
    RandomFourier as RandomFourier,
)
from .bases import (
    RelevanceBasis as RelevanceBasis,
)
from .bases.samples import (
    BasisSample as BasisSample,
)
from .bases.samples import (
    SparseRows as SparseRows,
)
from .bases.samples import (
    draw_basis_sample as draw_basis_sample,
)
from .bounds.blocks import (
    elbo_and_grad_from_blocks as elbo_and_grad_from_blocks,
)
from .bounds.blocks import (
    predict_from_blocks as predict_from_blocks,
)
from .bounds.collapsed import (
    SGPR as SGPR,
)
from .bounds.collapsed import (
    collapsed_bound as collapsed_bound,
)
from .bounds.collapsed import (
    collapsed_bound_and_grad as collapsed_bound_and_grad,
)
from .bounds.collapsed import (
    optimal_svgp as optimal_svgp,
)
from .bounds.collapsed_orthogonal import (
    OrthogonalSGPR as OrthogonalSGPR,
)
from .bounds.controls import (
    KrigedControl as KrigedControl,
)
from .bounds.controls import (
    advance_control as advance_control,
)
from .bounds.controls import (
    kriged_control as kriged_control,
)
from .bounds.convert import (
    convert as convert,
)
from .bounds.elbo import (
    SVGP as SVGP,
)
from .bounds.elbo import (
    kl_term_and_grad as kl_term_and_grad,
)
from .bounds.elbo import (
    likelihood_direction as likelihood_direction,
)
from .bounds.optimal_weights import (
    WeightsInfo as WeightsInfo,
)
from .bounds.optimal_weights import (
    optimal_diagonal as optimal_diagonal,
)
from .bounds.optimal_weights import (
    optimal_weights as optimal_weights,
)
from .bounds.orthogonal import (
    at_prior as at_prior,
)
from .bounds.orthogonal import (
    to_joint as to_joint,
)
from .bounds.paired import (
    PairedControl as PairedControl,
)
from .bounds.paired import (
    paired_control as paired_control,
)
from .bounds.predict_gradient import (
    predict_f_and_vjp as predict_f_and_vjp,
)
from .bounds.relevance import (
    optimal_precision as optimal_precision,
)
from .bounds.relevance import (
    prune as prune,
)
from .bounds.relevance import (
    relevance_vectors as relevance_vectors,
)
from .bounds.sampled import (
    SampledInfo as SampledInfo,
)
from .bounds.sampled import (
    sampled_bound_and_grad as sampled_bound_and_grad,
)
from .bounds.sampled_features import (
    sampled_bound_and_grad_from_features as sampled_bound_and_grad_from_features,
)
from .bounds.site_svgp import (
    SiteSVGP as SiteSVGP,
)
from .bounds.site_svgp import (
    site_bound as site_bound,
)
from .bounds.site_svgp import (
    site_bound_and_grad as site_bound_and_grad,
)
from .bounds.site_svgp import (
    site_bound_terms as site_bound_terms,
)
from .bounds.site_svgp import (
    tied as tied,
)
from .bounds.sites import (
    Sites as Sites,
)
from .bounds.sites import (
    dual_parameters as dual_parameters,
)
from .bounds.sites import (
    leave_one_out as leave_one_out,
)
from .bounds.tighter import (
    tighter_bound as tighter_bound,
)
from .bounds.tighter import (
    tighter_bound_and_grad as tighter_bound_and_grad,
)
from .bounds.vgp import (
    VGP as VGP,
)
from .bounds.weight_space import (
    QSGP as QSGP,
)
from .bounds.weight_space import (
    weight_bound as weight_bound,
)
from .bounds.weight_space import (
    weight_bound_and_grad as weight_bound_and_grad,
)
from .cli.fitted import (
    Fitted as Fitted,
)
from .cli.fitted import (
    load_fitted as load_fitted,
)
from .covariances import (
    RBF as RBF,
)
from .covariances import (
    Constant as Constant,
)
from .covariances import (
    Convolutional as Convolutional,
)
from .covariances import (
    Covariance as Covariance,
)
from .covariances import (
    Linear as Linear,
)
from .covariances import (
    Matern12 as Matern12,
)
from .covariances import (
    Matern32 as Matern32,
)
from .covariances import (
    Matern52 as Matern52,
)
from .covariances import (
    Product as Product,
)
from .covariances import (
    Sum as Sum,
)
from .covariances import (
    extract_patches as extract_patches,
)
from .devices import (
    to_device as to_device,
)
from .devices import (
    to_host as to_host,
)
from .errors import (
    DataFileError as DataFileError,
)
from .errors import (
    NotPositiveDefinite as NotPositiveDefinite,
)
from .errors import (
    RemoteError as RemoteError,
)
from .errors import (
    VarianceClampWarning as VarianceClampWarning,
)
from .inducing import (
    InducingPair as InducingPair,
)
from .initialise import (
    pca_mean as pca_mean,
)
from .kernels.num_threads import (
    get_num_threads as get_num_threads,
)
from .kernels.num_threads import (
    set_num_threads as set_num_threads,
)
from .layers.convolutional import (
    ConvolutionalLayer as ConvolutionalLayer,
)
from .layers.layer import (
    DeepGP as DeepGP,
)
from .layers.layer import (
    Layer as Layer,
)
from .layers.start import (
    deep_gp as deep_gp,
)
from .likelihoods import (
    BernoulliLogit as BernoulliLogit,
)
from .likelihoods import (
    BernoulliProbit as BernoulliProbit,
)
from .likelihoods import (
    Gaussian as Gaussian,
)
from .likelihoods import (
    Laplace as Laplace,
)
from .likelihoods import (
    Likelihood as Likelihood,
)
from .likelihoods import (
    Poisson as Poisson,
)
from .likelihoods import (
    RobustMax as RobustMax,
)
from .likelihoods import (
    Softmax as Softmax,
)
from .likelihoods import (
    StudentT as StudentT,
)
from .means import (
    ConstantMean as ConstantMean,
)
from .means import (
    IdentityMean as IdentityMean,
)
from .means import (
    LinearMean as LinearMean,
)
from .means import (
    Mean as Mean,
)
from .means import (
    ZeroMean as ZeroMean,
)
from .optim import schedules as schedules
from .optim.adagrad import (
    adagrad as adagrad,
)
from .optim.backing_off import NaturalStepInfo
from .optim.by_field import (
    by_field as by_field,
)
from .optim.by_field import (
    gentle_inducing as gentle_inducing,
)
from .optim.first_order import (
    adam as adam,
)
from .optim.first_order import (
    sgd as sgd,
)
from .optim.flat import (
    ravel as ravel,
)
from .optim.inverse_factor import (
    inverse_factor as inverse_factor,
)
from .optim.inverse_factor import (
    newton_schulz_step as newton_schulz_step,
)
from .optim.inverse_updates import (
    inverse_updates as inverse_updates,
)
from .optim.inverse_updates import (
    refresh_inverse as refresh_inverse,
)
from .optim.natural import (
    natural_step_and_grad as natural_step_and_grad,
)
from .optim.natural_update import (
    natural_update as natural_update,
)
from .optim.variance_gap import (
    variance_gap as variance_gap,
)
from .optim.variance_gap import (
    variance_interval as variance_interval,
)
from .persistence import (
    load as load,
)
from .persistence import (
    load_with_extra as load_with_extra,
)
from .persistence import (
    save as save,
)
from .posteriors import (
    AbsorbedDualSites as AbsorbedDualSites,
)
from .posteriors import (
    Decoupled as Decoupled,
)
from .posteriors import (
    DecoupledWeights as DecoupledWeights,
)
from .posteriors import (
    DualSites as DualSites,
)
from .posteriors import (
    InverseFreeWhitened as InverseFreeWhitened,
)
from .posteriors import (
    LikelihoodForm as LikelihoodForm,
)
from .posteriors import (
    Marginal as Marginal,
)
from .posteriors import (
    Orthogonal as Orthogonal,
)
from .posteriors import (
    Pass as Pass,
)
from .posteriors import (
    Posterior as Posterior,
)
from .posteriors import (
    Relaxed as Relaxed,
)
from .posteriors import (
    Whitened as Whitened,
)
from .posteriors import (
    WhitenedOrthogonal as WhitenedOrthogonal,
)
from .posteriors.weights import (
    ChevronWeights as ChevronWeights,
)
from .records import (
    Blocks as Blocks,
)
from .records import (
    Marginals as Marginals,
)
from .records import (
    leaf as leaf,
)
from .records import (
    leaves as leaves,
)
from .records import (
    record as record,
)
from .records import (
    replace as replace,
)
from .records import (
    replace_at as replace_at,
)
from .records import (
    static as static,
)
from .records import (
    tree_map as tree_map,
)
from .row_files import (
    row_files as row_files,
)
from .train import (
    fit as fit,
)
from .train.em import (
    em as em,
)
from .train.state import (
    TrainingState as TrainingState,
)
from .typed import Array, ArrayLike, Group, Names, Random, Record, RecordT, Rows, Seed

# Options of a function are those of all kinds of model and posterior that offer it; which of them a kind takes is checked at run
# time. A test holds them against what the kinds take.
class _OfDraws(Random, total=False):
    draws: Sequence[ArrayLike] | None  # of a deep GP, and the next
    num_samples: int

class _OfQuantiles(TypedDict, total=False):
    num_samples: int  # of a deep GP, and the next
    rng: Seed

class _OfFunctions(_OfQuantiles, total=False):
    augmented: bool  # of a QSGP

class _OfTargets(_OfFunctions, total=False):
    median: bool  # of a QSGP

def elbo(
    model: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    group: Group | None = ...,
    **options: Unpack[_OfDraws],
) -> float: ...
# with ``inputs=True`` a third result comes
@overload
def elbo_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: Literal[False] = ...,
    group: Group | None = ...,
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT]: ...
@overload
def elbo_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: Literal[True],
    group: Group | None = ...,
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT, Array]: ...
@overload
def elbo_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: bool,
    group: Group | None = ...,
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT] | tuple[float, RecordT, Array]: ...
@overload
def data_term_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: Literal[False] = ...,
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT]: ...
@overload
def data_term_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: Literal[True],
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT, Array]: ...
@overload
def data_term_and_grad(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    wrt: Names | None = ...,
    inputs: bool,
    **options: Unpack[_OfDraws],
) -> tuple[float, RecordT] | tuple[float, RecordT, Array]: ...
def predict_f(
    model: Record,
    Xs: ArrayLike,
    *,
    full_cov: bool = ...,
    jitter: float | None = ...,
    chunk_size: int | None = ...,
    **options: Unpack[_OfFunctions],
) -> tuple[Array, Array]: ...
def predict_y(
    model: Record,
    Xs: ArrayLike,
    *,
    jitter: float | None = ...,
    chunk_size: int | None = ...,
    **options: Unpack[_OfTargets],
) -> tuple[Array, Array]: ...
def predict_log_density(
    model: Record,
    Xs: ArrayLike,
    Ys: ArrayLike,
    *,
    jitter: float | None = ...,
    chunk_size: int | None = ...,
    **options: Unpack[_OfTargets],
) -> Array: ...
def predict_cdf(
    model: Record,
    Xs: ArrayLike,
    Ys: ArrayLike,
    *,
    jitter: float | None = ...,
    chunk_size: int | None = ...,
    **options: Unpack[_OfQuantiles],
) -> Array: ...
def predict_quantiles(
    model: Record,
    Xs: ArrayLike,
    levels: ArrayLike,
    *,
    jitter: float | None = ...,
    chunk_size: int | None = ...,
    **options: Unpack[_OfQuantiles],
) -> Array: ...
def sample_f(
    model: Record,
    Xs: ArrayLike,
    num_samples: int = ...,
    *,
    rng: Seed = ...,
    jitter: float | None = ...,
) -> Array: ...
def natural_step(
    model: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    step_size: float = ...,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    weights: ArrayLike | None = ...,
    monotone: bool = ...,
    group: Group | None = ...,
    rows: ArrayLike | None = ...,  # of site,
    **options: Unpack[_OfDraws],
) -> tuple[RecordT, NaturalStepInfo]: ...
def natural_steps(
    model: RecordT,
    X: ArrayLike | Rows,
    Y: ArrayLike | Rows,
    *,
    rows: Iterable[ArrayLike] | None = ...,
    steps: int = ...,
    step_size: float = ...,
    num_data: float | None = ...,
    jitter: float | None = ...,
    rng: Seed = ...,
    monotone: bool = ...,
    tolerance: float | None = ...,
) -> tuple[RecordT, list[NaturalStepInfo]]: ...
# a pair of numbers gives a pair of sets
@overload
def kmeans_inducing(
    X: ArrayLike,
    M: int,
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
) -> Array: ...
@overload
def kmeans_inducing(
    X: ArrayLike,
    M: tuple[int, int],
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
) -> InducingPair: ...
@overload
def patch_inducing(
    X: ArrayLike,
    M: int,
    covariance: Convolutional,
    rng: Seed = ...,
) -> Array: ...
@overload
def patch_inducing(
    X: ArrayLike,
    M: tuple[int, int],
    covariance: Convolutional,
    rng: Seed = ...,
) -> InducingPair: ...
@overload
def greedy_variance_inducing(
    X: ArrayLike,
    M: int,
    covariance: Covariance,
    rng: Seed = ...,
    subset: int | None = ...,
) -> Array: ...
@overload
def greedy_variance_inducing(
    X: ArrayLike,
    M: tuple[int, int],
    covariance: Covariance,
    rng: Seed = ...,
    subset: int | None = ...,
) -> InducingPair: ...
@overload
def median_lengthscales(
    X: ArrayLike,
    rng: Seed = ...,
    ard: Literal[True] = ...,
    subset: int = ...,
    group: Group | None = ...,
) -> Array: ...
@overload
def median_lengthscales(
    X: ArrayLike,
    rng: Seed = ...,
    *,
    ard: Literal[False],
    subset: int = ...,
    group: Group | None = ...,
) -> float: ...
@overload
def median_lengthscales(
    X: ArrayLike,
    rng: Seed = ...,
    ard: bool = ...,
    subset: int = ...,
    group: Group | None = ...,
) -> Array | float: ...
__version__: str
