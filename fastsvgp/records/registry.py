"""The records of the package by their names, as files know them, and what files of earlier versions hold beside."""

# The module of each record of the package: a file may name these, whatever was imported, and no
# other module is imported for it.
OURS = {
    name: module
    for module, names in (
        ("records.decorator", ("Blocks", "Marginals")),
        ("covariances.stationary", ("RBF", "Matern12", "Matern32", "Matern52")),
        ("covariances.linear", ("Linear", "Constant")),
        ("covariances.compose", ("Sum", "Product")),
        ("covariances.convolutional", ("Convolutional",)),
        ("weight_space.bases.fourier", ("RandomFourier",)),
        ("weight_space.bases.inducing", ("InducingBasis",)),
        ("weight_space.bases.relevance", ("RelevanceBasis",)),
        ("means", ("ZeroMean", "ConstantMean", "LinearMean", "IdentityMean")),
        ("likelihoods.bernoulli", ("BernoulliProbit", "BernoulliLogit")),
        ("likelihoods.gaussian", ("Gaussian",)),
        ("likelihoods.laplace", ("Laplace",)),
        ("likelihoods.multiclass", ("RobustMax", "Softmax")),
        ("likelihoods.poisson", ("Poisson",)),
        ("likelihoods.student_t", ("StudentT",)),
        ("records.inducing_sets", ("InducingPair",)),
        ("posteriors.base", ("Posterior",)),
        ("posteriors.inverse_free_whitened", ("InverseFreeWhitened",)),
        ("posteriors.likelihood_form", ("LikelihoodForm",)),
        ("posteriors.marginal", ("Marginal",)),
        ("posteriors.decoupled", ("Decoupled",)),
        ("posteriors.decoupled_weights", ("DecoupledWeights",)),
        ("posteriors.dual_sites", ("DualTying", "AbsorbedDualSites", "DualSites", "WhitenedState")),
        (
            "posteriors.orthogonal",
            ("OrthogonalSets", "UnwhitenedSets", "Orthogonal", "WhitenedOrthogonal"),
        ),
        ("posteriors.pseudo_targets", ("PseudoData",)),
        ("posteriors.relaxed", ("Relaxed",)),
        ("weight_space.posterior", ("ChevronWeights",)),
        ("posteriors.whitened", ("Whitened",)),
        ("posteriors.whitened_pass", ("GaussianFactor",)),
        ("bounds.from_blocks", ("_Model",)),
        ("weight_space.control_variates", ("KrigedControl",)),
        ("weight_space.paired_control", ("PairedControl",)),
        ("bounds.decoupled_pass", ("_OnlyZ",)),
        ("bounds.at_prior", ("_Prior",)),
        ("sites.dual_parameters", ("Sites",)),
        ("sites.site_svgp", ("SiteSVGP",)),
        ("sites.vgp", ("VGP",)),
        ("weight_space.qsgp", ("QSGP",)),
        ("bounds.elbo", ("SVGP",)),
        ("collapsed.sgpr", ("SGPR",)),
        ("collapsed.orthogonal", ("OrthogonalSGPR",)),
        ("layers.convolutional", ("ConvolutionalLayer",)),
        ("layers.layer", ("Layer", "DeepGP")),
        ("optim.adagrad", ("AdaGradState",)),
        ("optim.base", ("OptimiserState",)),
        ("optim.by_field", ("ByFieldState",)),
        ("optim.schedules", ("NoState", "PlateauState")),
        ("optim.moving_average", ("Trend",)),
        ("train.em", ("Rounds",)),
        ("train.state", ("TrainingState",)),
    )
    for name in names
}

# Settings that records had in earlier versions, with the value that goes without a word, and what
# to do for another.
GONE = {
    "Relaxed": {
        "direction": (
            "exact",
            (
                "training now asks for it by fit(...,"
                ' inverse_updates=fs.inverse_updates(direction="likelihood"))'
            ),
        ),
    },
}
