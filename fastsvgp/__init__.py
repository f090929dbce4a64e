"""Sparse variational Gaussian processes as fast array functions with closed-form gradients.

Public names load with their first use: importing this package compiles nothing and touches no GPU.
"""

import importlib

from .names import did_you_mean as _did_you_mean

__version__ = "0.1.0"

_ROOMS = {
    "records.decorator": ("Blocks", "Marginals", "leaf", "record", "static"),
    "records.tree": ("leaves", "replace", "replace_at", "tree_map"),
    "records.persistence": ("load", "load_with_extra", "save"),
    "records.inducing_sets": ("InducingPair",),
    "runtime.devices": ("to_device", "to_host"),
    "files.row_files": ("row_files",),
    "errors": ("DataFileError", "NotPositiveDefinite", "RemoteError", "VarianceClampWarning"),
    "runtime.num_threads": ("get_num_threads", "set_num_threads"),
    "covariances": (
        "Additive",
        "ArcCosine",
        "Categorical",
        "ChangePoints",
        "Constant",
        "Convolutional",
        "Coregion",
        "Cosine",
        "Covariance",
        "Linear",
        "Matern12",
        "Matern32",
        "Matern52",
        "Network",
        "On",
        "OnFeatures",
        "Periodic",
        "Polynomial",
        "Product",
        "RBF",
        "RationalQuadratic",
        "Sum",
        "extract_patches",
        "spectral_mixture",
    ),
    "means": ("ConstantMean", "IdentityMean", "LinearMean", "Mean", "ZeroMean"),
    "likelihoods": (
        "BernoulliLogit",
        "BernoulliProbit",
        "Beta",
        "Binomial",
        "Censored",
        "Exponential",
        "Gamma",
        "Gaussian",
        "HeteroskedasticGaussian",
        "HeteroskedasticNegativeBinomial",
        "KnownNoise",
        "Laplace",
        "Likelihood",
        "NegativeBinomial",
        "OneLatent",
        "Ordinal",
        "Poisson",
        "RobustMax",
        "Softmax",
        "StudentT",
        "Switched",
        "TwoLatents",
        "ZeroInflatedPoisson",
    ),
    "weight_space.bases": ("InducingBasis", "RandomFourier", "RelevanceBasis"),
    "posteriors": (
        "AbsorbedDualSites",
        "Decoupled",
        "DecoupledWeights",
        "DualSites",
        "InverseFreeWhitened",
        "LikelihoodForm",
        "Marginal",
        "Orthogonal",
        "Pass",
        "Posterior",
        "Relaxed",
        "Whitened",
        "WhitenedOrthogonal",
    ),
    "weight_space.posterior": ("ChevronWeights",),
    "bounds.svgp": ("SVGP",),
    "bounds.elbo": (
        "data_term_and_grad",
        "elbo",
        "elbo_and_grad",
        "kl_term_and_grad",
    ),
    "bounds.inverse_free_direction": ("likelihood_direction",),
    "bounds.from_blocks": ("elbo_and_grad_from_blocks", "predict_from_blocks"),
    "bounds.at_prior": ("at_prior", "to_joint"),
    "collapsed.sgpr": ("SGPR", "collapsed_bound", "collapsed_bound_and_grad", "optimal_svgp"),
    "collapsed.orthogonal": ("OrthogonalSGPR",),
    "weight_space.control_changes": ("advance_control",),
    "weight_space.control_variates": ("KrigedControl", "kriged_control"),
    "weight_space.paired_control": ("PairedControl", "paired_control"),
    "bounds.convert": ("convert",),
    "sites.dual_parameters": ("Sites", "dual_parameters", "leave_one_out"),
    "sites.site_svgp": (
        "SiteSVGP",
        "site_bound",
        "site_bound_and_grad",
        "site_bound_terms",
        "tied",
    ),
    "sites.vgp": ("VGP",),
    "weight_space.bases.samples": ("BasisSample", "SparseRows", "draw_basis_sample"),
    "weight_space.sampled_bound": ("SampledInfo", "sampled_bound_and_grad"),
    "weight_space.from_features": ("sampled_bound_and_grad_from_features",),
    "weight_space.optimal_weights": ("WeightsInfo", "optimal_diagonal"),
    "weight_space.relevance": ("optimal_precision", "prune", "relevance_vectors"),
    "weight_space.qsgp": ("QSGP", "weight_bound", "weight_bound_and_grad"),
    "collapsed.tighter": ("tighter_bound", "tighter_bound_and_grad"),
    "bounds.predict": (
        "predict_cdf",
        "predict_f",
        "predict_log_density",
        "predict_quantiles",
        "predict_y",
        "sample_f",
    ),
    "bounds.predict_vjp": ("predict_f_and_vjp",),
    "layers.convolutional": ("ConvolutionalLayer",),
    "layers.layer": ("DeepGP", "Layer"),
    "layers.build": ("deep_gp",),
    "latents.model": ("MultiGP",),
    "latents.parallel_layers": ("ParallelLayers",),
    "latents.build": ("multi_gp",),
    "paths.record": ("Paths",),
    "paths.sample": ("sample_paths",),
    "optim.natural.step": ("natural_step", "natural_step_and_grad"),
    "optim.natural.from_gradient": ("natural_update",),
    "optim.inverse.factor": ("inverse_factor", "newton_schulz_step"),
    "optim.inverse.updates": ("inverse_updates", "refresh_inverse"),
    "optim.inverse.variance_gap": ("variance_gap", "variance_interval"),
    "optim.flat": ("ravel",),
    "optim.by_field": ("by_field", "gentle_inducing"),
    "optim.adagrad": ("adagrad",),
    "optim.first_order": ("adam", "sgd"),
    "initialise.inducing": ("greedy_variance_inducing", "kmeans_inducing"),
    "initialise.lengthscales": ("median_lengthscales",),
    "initialise.patches": ("patch_inducing",),
    "initialise.principal_components": ("pca_mean",),
    "initialise.spectrum": ("spectral_start",),
    "train": ("fit",),
    "train.em": ("em",),
    "train.optimal_weights": ("optimal_weights",),
    "train.natural_steps": ("natural_steps",),
    "train.state": ("TrainingState",),
    "cli.fitted": ("Fitted", "load_fitted"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
_MODULES = ("distributed", "extending", "kernels", "models", "recipes", "schedules", "testing")

_ELSEWHERE = {  # names in GPflow, GPyTorch and scikit-learn
    "ExpSineSquared": "Periodic",
    "ExpSquared": "RBF",
    "GaussianLikelihood": "Gaussian",
    "GPR": "SGPR",
    "LinearCoregionalization": "multi_gp",
    "NaturalGradient": "natural_step",
    "RBFKernel": "RBF",
    "SquaredExponential": "RBF",
}
__all__ = ["__version__", *_ROOM_OF, *_MODULES]


def __getattr__(name):
    if name in _ROOM_OF:
        value = getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module(
            {"schedules": ".optim.schedules"}.get(name, f".{name}"), __name__
        )
    else:
        known = [] if name.startswith("_") else __all__
        meant = _did_you_mean(name, known, "'", _ELSEWHERE, most=1)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{meant}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
