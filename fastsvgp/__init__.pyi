"""The public names, for type checkers and editors; at run time they load lazily (see __init__.py)."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, Unpack, overload

from . import (
    distributed as distributed,
    extending as extending,
    kernels as kernels,
    models as models,
    recipes as recipes,
    testing as testing,
)
from .bounds.at_prior import at_prior as at_prior, to_joint as to_joint
from .bounds.convert import (
    convert as convert,
)
from .bounds.elbo import (
    SVGP as SVGP,
    kl_term_and_grad as kl_term_and_grad,
    likelihood_direction as likelihood_direction,
)
from .bounds.from_blocks import (
    elbo_and_grad_from_blocks as elbo_and_grad_from_blocks,
    predict_from_blocks as predict_from_blocks,
)
from .bounds.predict_vjp import predict_f_and_vjp as predict_f_and_vjp
from .cli.fitted import (
    Fitted as Fitted,
    load_fitted as load_fitted,
)
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
    Constant as Constant,
    Convolutional as Convolutional,
    Covariance as Covariance,
    Linear as Linear,
    Matern12 as Matern12,
    Matern32 as Matern32,
    Matern52 as Matern52,
    Product as Product,
    Sum as Sum,
    extract_patches as extract_patches,
)
from .errors import (
    DataFileError as DataFileError,
    NotPositiveDefinite as NotPositiveDefinite,
    RemoteError as RemoteError,
    VarianceClampWarning as VarianceClampWarning,
)
from .files.row_files import row_files as row_files
from .initialise import (
    pca_mean as pca_mean,
)
from .layers.build import deep_gp as deep_gp
from .layers.convolutional import (
    ConvolutionalLayer as ConvolutionalLayer,
)
from .layers.layer import (
    DeepGP as DeepGP,
    Layer as Layer,
)
from .likelihoods import (
    BernoulliLogit as BernoulliLogit,
    BernoulliProbit as BernoulliProbit,
    Gaussian as Gaussian,
    Laplace as Laplace,
    Likelihood as Likelihood,
    Poisson as Poisson,
    RobustMax as RobustMax,
    Softmax as Softmax,
    StudentT as StudentT,
)
from .means import (
    ConstantMean as ConstantMean,
    IdentityMean as IdentityMean,
    LinearMean as LinearMean,
    Mean as Mean,
    ZeroMean as ZeroMean,
)
from .optim import schedules as schedules
from .optim.adagrad import (
    adagrad as adagrad,
)
from .optim.by_field import (
    by_field as by_field,
    gentle_inducing as gentle_inducing,
)
from .optim.first_order import (
    adam as adam,
    sgd as sgd,
)
from .optim.flat import (
    ravel as ravel,
)
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
from .optim.natural.backtracking import NaturalStepInfo
from .optim.natural.from_gradient import natural_update as natural_update
from .optim.natural.svgp import natural_step_and_grad as natural_step_and_grad
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
from .records import (
    Blocks as Blocks,
    Marginals as Marginals,
    leaf as leaf,
    leaves as leaves,
    record as record,
    replace as replace,
    replace_at as replace_at,
    static as static,
    tree_map as tree_map,
)
from .records.inducing_sets import InducingPair as InducingPair
from .records.persistence import load as load, load_with_extra as load_with_extra, save as save
from .records.typed import Array, ArrayLike, Group, Names, Random, Record, RecordT, Rows, Seed
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
from .train import (
    fit as fit,
)
from .train.em import (
    em as em,
)
from .train.state import (
    TrainingState as TrainingState,
)
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
from .weight_space.control_variates import (
    KrigedControl as KrigedControl,
    advance_control as advance_control,
    kriged_control as kriged_control,
)
from .weight_space.from_features import (
    sampled_bound_and_grad_from_features as sampled_bound_and_grad_from_features,
)
from .weight_space.optimal_weights import (
    WeightsInfo as WeightsInfo,
    optimal_diagonal as optimal_diagonal,
    optimal_weights as optimal_weights,
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
