"""The public names, each written once: the module that shows it and the file that defines it.

Names load with their first use. ``python tools/public_names.py`` writes the lists that follow from
these tables.
"""

import importlib.machinery
import sys

from .names import did_you_mean

# module: {file that defines names, as a path in the package: these names}; a file without names is
# itself a module of this one
MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "priors": {  # first: ``Gamma`` alone is the likelihood below
        "priors.densities": ("Gamma", "HalfNormal", "LogNormal", "Prior", "dimension_scaled"),
        "priors.around_mode": ("laplace",),
        "priors.on_models": ("log_prior_and_grad",),
    },
    "bounds": {
        "bounds.from_blocks": ("elbo_and_grad_from_blocks", "predict_from_blocks"),
        "bounds.inverse_free_direction": ("lsvgp_direction",),
        "bounds.mixture": ("Mixture",),
        "bounds.objectives": ("data_term_and_grad", "elbo", "elbo_and_grad", "kl_term_and_grad"),
        "bounds.predict_vjp": ("predict_f_and_vjp",),
        "bounds.svgp": ("SVGP",),
        "collapsed.certificate": ("Certificate",),
        "collapsed.moment_interval": ("MomentInterval", "moment_interval"),
        "collapsed.orthogonal": ("OrthogonalSGPR",),
        "conditioning.streaming": ("streaming_bound_and_grad", "streaming_svgp"),
        "collapsed.sgpr": ("SGPR", "collapsed_bound", "collapsed_bound_and_grad", "optimal_svgp"),
        "collapsed.tighter": ("tighter_bound", "tighter_bound_and_grad"),
        "hilbert.basis": ("HilbertBasis",),
        "hilbert.collapsed": ("BasisGP",),
        "hilbert.model": ("BasisSVGP",),
        "hilbert.sums": ("SufficientSums", "sufficient_sums"),
        "train.compare_sums": ("FoldScores", "compare"),
        "near.model": ("VIF",),
        "near.record": ("NearRows", "neighbours"),
        "uncertain.forecast": ("forecast", "lagged"),
        "uncertain.gplvm": ("GPLVM", "start_gplvm"),
        "uncertain.infer": ("infer_inputs",),
        "uncertain.input_covariance": ("input_covariance",),
        "uncertain.inputs": ("GaussianInputs",),
        "uncertain.measured": ("measured",),
    },
    "covariances": {
        "covariances.additive": ("Additive",),
        "covariances.base": ("Covariance",),
        "covariances.categories": ("Categorical", "Coregion"),
        "covariances.change_points": ("ChangePoints",),
        "covariances.columns": ("On",),
        "covariances.compose": ("Product", "Sum"),
        "covariances.convolutional": ("Convolutional",),
        "covariances.cosine": ("Cosine", "spectral_mixture"),
        "covariances.image_patches": ("extract_patches",),
        "covariances.inner_products": ("ArcCosine", "Polynomial"),
        "covariances.linear": ("Constant", "Linear"),
        "covariances.network": ("Network",),
        "covariances.on_features": ("OnFeatures",),
        "covariances.periodic": ("Periodic",),
        "covariances.stationary": ("Matern12", "Matern32", "Matern52", "RBF", "RationalQuadratic"),
        "covariances.weighted": ("Weighted", "pairs"),
    },
    "distributed": {
        "distributed.groups.leaving": ("tell_at_exit",),
        "distributed.groups.mpi": ("mpi",),
        "distributed.groups.nccl": ("nccl",),
        "distributed.groups.threads": ("threads",),
    },
    "errors": {
        "errors": (
            "BadEntry",
            "DataFileError",
            "Diverged",
            "InvalidSites",
            "NotPositiveDefinite",
            "RemoteError",
            "VarianceClampWarning",
        ),
        "train.state": ("OtherTraining",),
    },
    "inducing": {
        "inducing.choice": ("greedy_variance", "kmeans"),
        "inducing.image_patches": ("patches",),
        "inducing.lengthscales": ("median_lengthscales",),
        "inducing.principal_components": ("pca_mean",),
        "inducing.spectrum": ("spectral_start",),
    },
    "layers": {
        "latents.build": ("multi_gp",),
        "latents.model": ("MultiGP",),
        "latents.parallel_layers": ("ParallelLayers",),
        "layers.build": ("deep_gp",),
        "layers.convolutional": ("ConvolutionalLayer",),
        "layers.layer": ("DeepGP", "Layer"),
    },
    "likelihoods": {
        "likelihoods.base": ("Likelihood",),
        "likelihoods.bernoulli": ("BernoulliLogit", "BernoulliProbit"),
        "likelihoods.beta": ("Beta",),
        "likelihoods.censored": ("Censored",),
        "likelihoods.counts.binomial": ("Binomial",),
        "likelihoods.counts.negative_binomial": ("NegativeBinomial",),
        "likelihoods.counts.poisson": ("Poisson",),
        "likelihoods.counts.zero_inflated": ("ZeroInflatedPoisson",),
        "likelihoods.gamma": ("Exponential", "Gamma"),
        "likelihoods.gaussian": ("Gaussian",),
        "likelihoods.known_noise": ("KnownNoise",),
        "likelihoods.laplace": ("Laplace",),
        "likelihoods.multiclass": ("RobustMax", "Softmax"),
        "likelihoods.one_latent": ("OneLatent",),
        "likelihoods.ordinal": ("Ordinal",),
        "likelihoods.student_t": ("StudentT",),
        "likelihoods.switched": ("Switched",),
        "likelihoods.two_functions.base": ("TwoLatents",),
        "likelihoods.two_functions.gaussian": ("HeteroskedasticGaussian",),
        "likelihoods.two_functions.negative_binomial": ("HeteroskedasticNegativeBinomial",),
    },
    "means": {
        "means": ("ConstantMean", "IdentityMean", "LinearMean", "Mean", "ZeroMean"),
    },
    "optim": {
        "optim.adaptive": ("adagrad",),
        "optim.fields": ("by_field",),
        "optim.first_order": ("adam", "sgd"),
        "optim.flat": ("ravel",),
        "optim.inverse.factor": ("inverse_factor", "newton_schulz_step"),
        "optim.inverse.updates": ("inverse_updates", "update_inverse_factor"),
        "optim.inverse.variance_gap": ("variance_gap", "variance_interval"),
        "optim.natural.from_gradient": ("natural_update",),
        "optim.natural.step": ("natural_step", "natural_step_and_grad"),
        "optim.schedules": (),
        "train.info": ("FitInfo", "StepInfo"),
        "train.state": ("TrainingState",),
    },
    "posteriors": {
        "bounds.at_prior": ("at_prior", "joint_posterior"),
        "bounds.convert": ("convert",),
        "paths.record": ("Paths",),
        "posteriors.base": ("Pass", "Posterior"),
        "posteriors.decoupled": ("Decoupled", "DecoupledWeights"),
        "posteriors.dual_sites": ("AbsorbedDualSites", "DualSites"),
        "posteriors.gaussian_factor": ("Marginal", "Whitened"),
        "posteriors.inverse_free_whitened": ("InverseFreeWhitened",),
        "posteriors.likelihood_form": ("LikelihoodForm",),
        "posteriors.orthogonal": ("Orthogonal", "WhitenedOrthogonal"),
        "posteriors.predictive": ("PredictiveWeights",),
        "posteriors.relaxed": ("Relaxed",),
        "records.inducing_sets": ("InducingPair",),
    },
    "qsgp": {
        "qsgp.bases.fourier": ("RandomFourier",),
        "qsgp.bases.inducing": ("InducingBasis", "RelevanceBasis"),
        "qsgp.bases.samples": ("BasisSample", "SparseRows", "draw_basis_sample"),
        "qsgp.closed_form": ("WeightsInfo", "optimal_diagonal"),
        "qsgp.control_changes": ("update_control_variate",),
        "qsgp.control_variates": ("KrigedControl", "kriging_control_variate"),
        "qsgp.from_features": ("sampled_bound_and_grad_from_features",),
        "qsgp.model": ("QSGP", "bound", "bound_and_grad"),
        "qsgp.paired": ("PairedControl", "paired_control_variate"),
        "qsgp.posterior": ("ChevronWeights",),
        "qsgp.relevance": ("optimal_precision", "prune", "relevance_vectors"),
        "qsgp.sampled_bound": ("SampledInfo", "sampled_bound_and_grad"),
        "train.optimal_weights": ("optimal_weights",),
    },
    "recipes": {
        "recipes.model_search.search_models": ("search",),
        "recipes.detail": ("near_rows",),
        "recipes.searching": ("classification", "regression"),
        "recipes.splits": ("Split",),
    },
    "records": {
        "files.row_files": ("row_files",),
        "records.decorator": ("Blocks", "Marginals", "leaf", "record", "static"),
        "records.persistence": ("load", "load_with_extra", "save"),
        "records.tree": ("leaves", "replace", "replace_at", "tree_map"),
    },
    "sensitivity": {
        "sensitivity.mean_effects": ("Effect", "effects"),
        "sensitivity.sobol_indices": ("Sobol", "sobol"),
    },
    "sites": {
        "sites.dual": ("Sites", "dual_parameters", "leave_one_out"),
        "sites.site_svgp": ("SiteSVGP", "bound", "bound_and_grad", "bound_terms", "tie_sites"),
        "sites.vgp": ("VGP",),
        "train.natural_steps": ("natural_steps",),
    },
    "testing": {
        "testing": ("assert_gradient",),
    },
}
# names of the package itself that no module shows
OWN = {
    "bounds.predict": (
        "predict_cdf",
        "predict_f",
        "predict_log_density",
        "predict_quantiles",
        "predict_y",
        "sample_f",
    ),
    "bounds.predictor": ("predictor",),
    "cli.fitted": ("load_fitted",),
    "conditioning.condition": ("condition",),
    "exporting.write": ("export",),
    "collapsed.certificate": ("certificate",),
    "paths.sample": ("sample_paths",),
    "runtime.devices": ("to_device", "to_host"),
    "runtime.num_threads": ("get_num_threads", "set_num_threads"),
    "train": ("fit",),
    "train.em": ("em",),
}
# and those that a module shows too
FRONT = (
    "search",
    "SVGP",
    "SGPR",
    "VIF",
    "MultiGP",
    "DeepGP",
    "QSGP",
    "elbo",
    "elbo_and_grad",
    "collapsed_bound",
    "collapsed_bound_and_grad",
    "optimal_svgp",
    "natural_step",
    "RBF",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Linear",
    "Gaussian",
    "BernoulliProbit",
    "Poisson",
    "StudentT",
    "Softmax",
    "Whitened",
    "Marginal",
    "ravel", "adam", "sgd", "save", "load", "replace",
    "DataFileError", "Diverged", "NotPositiveDefinite", "RemoteError", "VarianceClampWarning",
)  # fmt: skip
WHOLE = ("extending", "kernels")  # modules that are public as a whole
SEPARATE = ("interop", "sklearn")  # and those that need other packages: they are imported by name
# Names that work at the package too, because programs of others use them; no page does.
FIXED = """
AbsorbedDualSites BasisGP BernoulliLogit Blocks ChevronWeights Constant ConstantMean Convolutional
Decoupled DecoupledWeights DualSites GPLVM GaussianInputs HeteroskedasticGaussian HilbertBasis
InducingBasis InducingPair InverseFreeWhitened Laplace Layer LikelihoodForm LinearMean Marginals
Mixture Network OnFeatures Orthogonal OrthogonalSGPR Product RandomFourier Relaxed RelevanceBasis
RobustMax SiteSVGP Sites Sum VGP WhitenedOrthogonal ZeroMean compare data_term_and_grad deep_gp
dual_parameters effects elbo_and_grad_from_blocks extract_patches forecast infer_inputs
kl_term_and_grad lagged laplace log_prior_and_grad measured multi_gp natural_step_and_grad
natural_steps neighbours newton_schulz_step optimal_weights predict_f_and_vjp sampled_bound_and_grad
sobol sufficient_sums tighter_bound
tighter_bound_and_grad
""".split()
FIXED_AS = {
    "site_bound": "sites.bound",
    "site_bound_and_grad": "sites.bound_and_grad",
    "weight_bound": "qsgp.bound",
    "weight_bound_and_grad": "qsgp.bound_and_grad",
}
# What names in GPflow, GPyTorch, GPJax, tinygp and scikit-learn are here; one with a module counts
# in that module alone.
_NAMED = {
    "BernoulliProbit": "Bernoulli BernoulliLikelihood",
    "Gaussian": "GaussianLikelihood White WhiteKernel",
    "Linear": "DotProduct LinearKernel",
    "Marginal": "Unwhitened UnwhitenedVariationalStrategy VariationalGaussian",
    "Matern12": "PoweredExponential",
    "Matern52": "Matern MaternKernel",
    "NotPositiveDefinite": "NotPSDError",
    "Periodic": "ExpSineSquared PeriodicKernel",
    "RBF": "ExpSquared RBFKernel ScaleKernel SquaredExponential",
    "SGPR": (
        "CGLB CollapsedVariationalGaussian ConjugatePosterior ExactGP GPR GPRFITC "
        "GaussianProcess InducingPointKernel"
    ),
    "SVGP": "ApproximateGP NonConjugatePosterior Prior",
    "Softmax": "SoftmaxLikelihood",
    "StudentT": "StudentTLikelihood",
    "Whitened": (
        "CholeskyVariationalDistribution IndependentMultitaskVariationalStrategy "
        "SharedIndependent VariationalStrategy WhitenedVariationalGaussian"
    ),
    "adam": "Adam",
    "bounds.kl_term_and_grad": "gauss_kl",
    "collapsed_bound": (
        "ExactMarginalLogLikelihood collapsed_elbo conjugate_mll log_marginal_likelihood"
    ),
    "covariances": "kernel",
    "covariances.Additive": "AdditiveStructureKernel",
    "covariances.Categorical": "CategoricalKernel",
    "covariances.Constant": "ConstantKernel",
    "covariances.Coregion": "Coregionalize IndexKernel",
    "covariances.Cosine": "CosineKernel",
    "covariances.Covariance": "Kernel",
    "covariances.Polynomial": "PolynomialKernel",
    "covariances.Product": "Exponentiation ProductKernel",
    "covariances.RationalQuadratic": "RQKernel",
    "covariances.Sum": "AdditiveKernel CompoundKernel",
    "covariances.spectral_mixture": "SpectralMixtureKernel",
    "elbo": (
        "DeepApproximateMLL ELBO VariationalELBO maximum_log_likelihood_objective mlls "
        "variational_expectation"
    ),
    "elbo_and_grad": "training_loss",
    "fit": "SVI Scipy checkpoint fit_lbfgs fit_scipy set_trainable",
    "bounds.GPLVM": "BayesianGPLVM",
    "inducing.kmeans": "InducingPoints KMeans Kmeans inducing_points",
    "inducing.patches": "InducingPatches",
    "kernels.cholesky": "Cholesky",
    "layers.Layer": "DeepGPLayer",
    "layers.multi_gp": (
        "ICMKernel LMCVariationalStrategy LinearCoregionalization MultitaskKernel "
        "SeparateIndependent"
    ),
    "likelihoods.Beta": "BetaLikelihood",
    "likelihoods.HeteroskedasticGaussian": "HeteroskedasticTFPConditional",
    "likelihoods.KnownNoise": "FixedNoiseGaussianLikelihood MultitaskGaussianLikelihood",
    "likelihoods.Laplace": "LaplaceLikelihood",
    "likelihoods.RobustMax": "MultiClass",
    "likelihoods.Switched": "SwitchedLikelihood",
    "means": "mean_functions",
    "means.ZeroMean": "Zero",
    "natural_step": (
        "NGD NaturalGradient NaturalVariationalDistribution TrilNaturalVariationalDistribution"
    ),
    "optimal_svgp": "compute_qu",
    "posteriors": "variational",
    "posteriors.Decoupled": "OrthogonallyDecoupledVariationalStrategy",
    "posteriors.DualSites": "NaturalVariationalGaussian",
    "posteriors.LikelihoodForm": "VGPOpperArchambeau",
    "posteriors.Marginal": "posteriors.Gaussian",
    "predict_f": "conditional",
    "predict_y": "predict",
    "qsgp.RandomFourier": "RFF RFFKernel",
    "ravel": "minimize",
    "records": "utilities utils",
    "records.Marginals": "MultivariateNormal",
    "records.leaf": "Parameter",
    "records.leaves": "parameter_dict print_summary read_values",
    "sample_f": "predict_f_samples",
    "sample_paths": "sample_y",
    "sgd": "SGD",
    "sklearn.SVGPClassifier": "GaussianProcessClassifier SVGPClassifier",
    "sklearn.SVGPRegressor": "GaussianProcessRegressor SVGPRegressor",
}
ELSEWHERE = {one: here for here, names in _NAMED.items() for one in names.split()}

_HOMES = {
    name: module for module, files in MODULES.items() for names in files.values() for name in names
}
_DOTTED = [
    f"{module}.{name}"
    for module, files in MODULES.items()
    for name in sorted(
        name for file, names in files.items() for name in names or [file.rpartition(".")[2]]
    )
    if name not in FRONT
]


def place(name):
    """Return a public name as users write it: ``fastsvgp.RBF``, ``fastsvgp.covariances.Sum``."""
    module = "" if name in FRONT else _HOMES.get(name, "")
    return ".".join(filter(None, (__package__, module, name)))


def find(name):
    """Return the public object of this name, with or without its module; None if there is none."""
    package = sys.modules[__package__]
    if "." not in name and name not in dir(package):
        name = f"{_HOMES[name]}.{name}" if name in _HOMES else name
    module, _, last = name.rpartition(".")
    return getattr(getattr(package, module) if module else package, last, None)


def offer(module):
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a public module."""
    places: dict = {name: (file, name) for file, names in MODULES[module].items() for name in names}
    rooms = [file for file, names in MODULES[module].items() if not names]
    places |= {file.rpartition(".")[2]: (file, None) for file in rooms}
    return _lazily(f"{__package__}.{module}", places, sorted(places))


def offer_defined(module):
    """Return ``__getattr__`` and ``__dir__`` of a module; it shows its own definitions."""
    things = vars(sys.modules[module]).items()
    own = [name for name, thing in things if _home(thing).startswith(module) and name[0] != "_"]
    return _lazily(module, {}, sorted(own))[:2]


def _home(thing):
    return getattr(thing, "__module__", None) or ""


def offer_package():
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of the package."""
    places: dict = {module: (module, None) for module in (*MODULES, *WHOLE)}
    places |= {name: (file, name) for file, names in OWN.items() for name in names}
    places |= {name: (_HOMES[name], name) for name in FRONT}
    shown = sorted([*places, "__version__"])
    places |= {name: (_HOMES[name], name) for name in FIXED}
    places |= {name: tuple(place.split(".")) for name, place in FIXED_AS.items()}
    return _lazily(__package__, places, shown)


def _lazily(package, places, shown):
    """Load names at their first use; ``places`` has the file of each, and its name there."""

    def __getattr__(name):
        if name not in places:
            meant = "" if name.startswith("_") else _meant(name, package, shown)
            raise AttributeError(f"module {package!r} has no attribute {name!r}{meant}")
        file, there = places[name]
        module = importlib.import_module(f"{__package__}.{file}")
        value = module if there is None else getattr(module, there)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: list(shown), shown


def _meant(name, package, shown):
    """Return "; did you mean ...?" for a name that a module does not have.

    The names of a module itself come first.
    """
    path = getattr(sys.modules[package], "__path__", ())
    if importlib.machinery.PathFinder.find_spec(f"{package}.{name}", path):  # an import asks first
        return f"; write import {package}.{name}" if name in SEPARATE else ""
    front = [*FRONT, *(one for names in OWN.values() for one in names)]
    there = {one.rpartition(".")[2]: one for one in [*front, *_DOTTED]} | ELSEWHERE
    if package != __package__:  # names of other modules with the package
        there = {one: f"{__package__}.{place}" for one, place in there.items()}
        there |= {one: one for one in shown}
        own = [one for one in shown if name.lower() in one.lower()]
        if meant := there.get(f"{package.rpartition('.')[2]}.{name}"):
            there[name] = meant
        elif own and name not in ELSEWHERE:
            there[name] = min(own, key=len)
    return did_you_mean(name, [*shown, *there.values()], "'", there, most=1)
