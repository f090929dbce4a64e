"""Sparse variational Gaussian processes as fast array functions with closed-form gradients.

Public names load with their first use: importing this package compiles nothing and touches no GPU.
"""

import importlib

__version__ = "0.1.0"

_ROOMS = {
    "records": (
        "Blocks",
        "Marginals",
        "leaf",
        "leaves",
        "record",
        "replace",
        "replace_at",
        "static",
        "tree_map",
    ),
    "persistence": ("load", "load_with_extra", "save"),
    "inducing": ("InducingPair",),
    "devices": ("to_device", "to_host"),
    "row_files": ("row_files",),
    "errors": ("DataFileError", "NotPositiveDefinite", "RemoteError", "VarianceClampWarning"),
    "kernels.num_threads": ("get_num_threads", "set_num_threads"),
    "covariances": (
        "Constant",
        "Convolutional",
        "Covariance",
        "Linear",
        "Matern12",
        "Matern32",
        "Matern52",
        "Product",
        "RBF",
        "Sum",
        "extract_patches",
    ),
    "means": ("ConstantMean", "IdentityMean", "LinearMean", "Mean", "ZeroMean"),
    "likelihoods": (
        "BernoulliLogit",
        "BernoulliProbit",
        "Gaussian",
        "Laplace",
        "Likelihood",
        "Poisson",
        "RobustMax",
        "Softmax",
        "StudentT",
    ),
    "bases": ("InducingBasis", "RandomFourier", "RelevanceBasis"),
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
    "posteriors.weights": ("ChevronWeights",),
    "bounds.elbo": ("SVGP", "data_term_and_grad", "elbo", "elbo_and_grad", "kl_term_and_grad", "likelihood_direction"),
    "bounds.blocks": ("elbo_and_grad_from_blocks", "predict_from_blocks"),
    "bounds.orthogonal": ("at_prior", "to_joint"),
    "bounds.collapsed": ("SGPR", "collapsed_bound", "collapsed_bound_and_grad", "optimal_svgp"),
    "bounds.collapsed_orthogonal": ("OrthogonalSGPR",),
    "bounds.controls": ("KrigedControl", "advance_control", "kriged_control"),
    "bounds.paired": ("PairedControl", "paired_control"),
    "bounds.convert": ("convert",),
    "bounds.sites": ("Sites", "dual_parameters", "leave_one_out"),
    "bounds.site_svgp": ("SiteSVGP", "site_bound", "site_bound_and_grad", "site_bound_terms", "tied"),
    "bounds.vgp": ("VGP",),
    "bases.samples": ("BasisSample", "SparseRows", "draw_basis_sample"),
    "bounds.sampled": ("SampledInfo", "sampled_bound_and_grad"),
    "bounds.sampled_features": ("sampled_bound_and_grad_from_features",),
    "bounds.optimal_weights": ("WeightsInfo", "optimal_diagonal", "optimal_weights"),
    "bounds.relevance": ("optimal_precision", "prune", "relevance_vectors"),
    "bounds.weight_space": ("QSGP", "weight_bound", "weight_bound_and_grad"),
    "bounds.tighter": ("tighter_bound", "tighter_bound_and_grad"),
    "bounds.predict": ("predict_cdf", "predict_f", "predict_log_density", "predict_quantiles", "predict_y", "sample_f"),
    "bounds.predict_gradient": ("predict_f_and_vjp",),
    "layers.convolutional": ("ConvolutionalLayer",),
    "layers.layer": ("DeepGP", "Layer"),
    "layers.start": ("deep_gp",),
    "optim.natural": ("natural_step", "natural_step_and_grad"),
    "optim.natural_update": ("natural_update",),
    "optim.inverse_factor": ("inverse_factor", "newton_schulz_step"),
    "optim.inverse_updates": ("inverse_updates", "refresh_inverse"),
    "optim.variance_gap": ("variance_gap", "variance_interval"),
    "optim.flat": ("ravel",),
    "optim.by_field": ("by_field", "gentle_inducing"),
    "optim.adagrad": ("adagrad",),
    "optim.first_order": ("adam", "sgd"),
    "initialise": ("greedy_variance_inducing", "kmeans_inducing", "median_lengthscales", "patch_inducing", "pca_mean"),
    "train": ("fit",),
    "train.em": ("em",),
    "train.natural_steps": ("natural_steps",),
    "train.state": ("TrainingState",),
    "cli.fitted": ("Fitted", "load_fitted"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}
_MODULES = ("distributed", "extending", "kernels", "models", "recipes", "schedules")

__all__ = ["__version__", *_ROOM_OF, *_MODULES]


def __getattr__(name):
    if name in _ROOM_OF:
        value = getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)
    elif name in _MODULES:
        value = importlib.import_module({"schedules": ".optim.schedules"}.get(name, f".{name}"), __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
