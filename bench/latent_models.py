"""Problems of ``latent_peers.py``, and their bounds with all gradients in three programs.

A problem is a dictionary of arrays: layers side by side, each with an ARD RBF, inducing inputs and
a whitened q; a mixing or None; Gaussian noise of one variance, or noise whose log variance is the
second latent function. Each builder returns ``step()``, and ``step.answer(result)`` converts what
it returns to the value and the gradients in the natural parameters of fastsvgp, by names such as
"0.scale_tril". How close the problems are:

- GPflow: ``LinearCoregionalization`` or ``SeparateIndependent`` with inducing inputs of their own;
  for intrinsic coregionalisation one kernel object, and one set of inducing inputs, for all latent
  functions. Each covariance matrix is factorised once per latent function. Heteroskedastic noise is
  ``HeteroskedasticTFPConditional`` with the scale exp(h / 2), by a tensor Gauss-Hermite rule.
- GPyTorch: ``LMCVariationalStrategy`` or ``IndependentMultitaskVariationalStrategy`` over a batch
  of ``VariationalStrategy``; for intrinsic coregionalisation one covariance matrix for the batch.
  It has no heteroskedastic likelihood for a variational model: that of this file uses the closed
  form. It adds jitter to the variances of the batch too, so values differ by a few 1e-7 relative.
"""

import numpy as np

JITTER, SCALE = 1e-6, 10.0  # SCALE: num_data / batch
KINDS = "lmc", "icm", "separate", "heteroskedastic"
FLOOR = 1e-6  # what GPflow adds to softplus for the variance of Gaussian noise


def problem(kind, M, B, P=10, L=3, D=4, seed=0):
    """Return the arrays of a problem; the condition of Kuu is moderate."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((B, D))
    count = {"lmc": L, "icm": 1, "separate": P, "heteroskedastic": 2}[kind]
    lead = (L,) if kind == "icm" else ()

    def factors():
        W = np.tril(rng.standard_normal((*lead, M, M))) * (0.1 / np.sqrt(M))
        W[..., np.arange(M), np.arange(M)] = rng.uniform(0.5, 1.0, (*lead, M))
        return W

    layers = [
        {
            "Z": rng.standard_normal((M, D)),
            "variance": rng.uniform(0.8, 1.5),
            "lengthscales": rng.uniform(0.9, 1.5, D),
            "mean": 0.5 * rng.standard_normal((*lead, M)),
            "scale_tril": factors(),
        }
        for _ in range(count)
    ]
    outputs = 1 if kind == "heteroskedastic" else P
    phases = np.linspace(0, 2, outputs)
    Y = np.sin(X.sum(axis=1)[:, None] + phases) + 0.3 * rng.standard_normal((B, outputs))
    mixing = rng.standard_normal((P, L)) if kind in ("lmc", "icm") else None
    noise = None if kind == "heteroskedastic" else 0.2
    return {"X": X, "Y": Y, "layers": layers, "mixing": mixing, "noise": noise}


def our_layers(p):
    """Return the layers of a problem as records."""
    import fastsvgp as fs

    return tuple(
        fs.layers.Layer(
            fs.RBF(q["variance"], q["lengthscales"]),
            q["Z"],
            fs.Whitened(q["mean"], q["scale_tril"]),
        )
        for q in p["layers"]
    )


def our_model(p):
    """Return ``(model, targets)``."""
    import fastsvgp as fs

    if p["noise"] is None:
        return fs.MultiGP(our_layers(p), fs.likelihoods.HeteroskedasticGaussian()), p["Y"][:, 0]
    return fs.MultiGP(our_layers(p), fs.Gaussian(p["noise"]), p["mixing"]), p["Y"]


def ours(p):
    import fastsvgp as fs

    model, Y = our_model(p)
    options = {"num_data": SCALE * len(Y), "jitter": JITTER}

    def step():
        return fs.elbo_and_grad(model, p["X"], Y, **options)

    def answer(result):
        value, grad = result
        named = {}
        for i, bars in enumerate(grad.latents):
            q, covariance = bars.posterior, bars.covariance
            named |= {f"{i}.mean": q.mean, f"{i}.scale_tril": q.scale_tril, f"{i}.Z": bars.inducing}
            named |= {
                f"{i}.variance": covariance.variance,
                f"{i}.lengthscales": covariance.lengthscales,
            }
        if p["mixing"] is not None:
            named["mixing"] = grad.mixing
        if p["noise"] is not None:
            named["noise"] = grad.likelihood.variance
        return value, named

    step.answer = answer
    return step


def stacked_q(p):
    """Return ``(mean (L, M), scale_tril (L, M, M))`` of all latent functions."""
    M = len(p["layers"][0]["Z"])
    return (
        np.concatenate([q["mean"].reshape(-1, M) for q in p["layers"]]),
        np.concatenate([q["scale_tril"].reshape(-1, M, M) for q in p["layers"]]),
    )


def per_layer(p, stacked):
    """Yield the number of each layer, and its entries of an array over all latent functions."""
    at = 0
    for i, q in enumerate(p["layers"]):
        count = 1 if q["mean"].ndim == 1 else len(q["mean"])
        part = stacked[at : at + count]
        yield i, part[0] if q["mean"].ndim == 1 else part
        at += count


def gpflow_model(p, nodes=None):
    """Return the model of GPflow, and the inducing inputs of each layer.

    nodes : number of nodes of its rule per latent function, 20 if None
    """
    import gpflow
    import tensorflow_probability as tfp

    gpflow.config.set_default_jitter(JITTER)
    kernels = [
        gpflow.kernels.SquaredExponential(q["variance"], q["lengthscales"]) for q in p["layers"]
    ]
    points = [gpflow.inducing_variables.InducingPoints(q["Z"]) for q in p["layers"]]
    mean, tril = stacked_q(p)
    if len(mean) > len(kernels):  # one kernel for all functions
        inducing = gpflow.inducing_variables.SharedIndependentInducingVariables(points[0])
        kernels *= len(mean)
    else:
        inducing = gpflow.inducing_variables.SeparateIndependentInducingVariables(points)
    if p["mixing"] is None:
        kernel = gpflow.kernels.SeparateIndependent(kernels)
    else:
        kernel = gpflow.kernels.LinearCoregionalization(kernels, W=p["mixing"])
    if p["noise"] is None:
        half = tfp.bijectors.Scale(np.float64(0.5))
        rule = None if nodes is None else gpflow.quadrature.NDiagGHQuadrature(2, nodes)
        likelihood = gpflow.likelihoods.HeteroskedasticTFPConditional(
            distribution_class=tfp.distributions.Normal,
            scale_transform=tfp.bijectors.Chain([tfp.bijectors.Exp(), half]),
            quadrature=rule,
        )
    else:
        likelihood = gpflow.likelihoods.Gaussian(p["noise"])
    return gpflow.models.SVGP(
        kernel,
        likelihood,
        inducing,
        num_latent_gps=len(mean),
        q_mu=mean.T,
        q_sqrt=tril,
        whiten=True,
        num_data=int(SCALE * len(p["Y"])),
    ), points


def gpflow_step(p, nodes=None):
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    model, points = gpflow_model(p, nodes)
    kernels = model.kernel.kernels[: len(points)]
    data = tf.constant(p["X"]), tf.constant(p["Y"])
    leaves = {"mean": model.q_mu, "scale_tril": model.q_sqrt}
    for i, (kernel, inducing) in enumerate(zip(kernels, points, strict=True)):
        leaves |= {f"{i}.variance": kernel.variance, f"{i}.lengthscales": kernel.lengthscales}
        leaves[f"{i}.Z"] = inducing.Z
    if p["mixing"] is not None:
        leaves["mixing"] = model.kernel.W
    if p["noise"] is not None:
        leaves["noise"] = model.likelihood.variance

    @tf.function
    def compiled():
        with tf.GradientTape() as tape:
            value = model.elbo(data)
        return value, tape.gradient(
            value, {name: leaf.unconstrained_variable for name, leaf in leaves.items()}
        )

    def step():
        value, grad = compiled()
        return value.numpy(), grad

    def answer(result):
        """Return natural parameters: softplus inverted, packed triangles as matrices."""
        value, raw = result
        grad = {name: tf.convert_to_tensor(bar).numpy() for name, bar in raw.items()}
        for name in grad:
            if name.endswith(("variance", "lengthscales", "noise")):
                above = leaves[name].numpy() - (FLOOR if name == "noise" else 0)
                grad[name] = grad[name] / (1 - np.exp(-above))
        trils = model.q_sqrt.transform.forward(grad.pop("scale_tril")).numpy()
        grad |= {f"{i}.mean": part for i, part in per_layer(p, grad.pop("mean").T)}
        grad |= {f"{i}.scale_tril": part for i, part in per_layer(p, trils)}
        return float(value), grad

    step.answer, step.model = answer, model
    return step


def gpytorch_likelihood(p):
    import gpytorch
    import torch

    class Heteroskedastic(gpytorch.likelihoods.Likelihood):
        def forward(self, f):
            return torch.distributions.Normal(f[..., 0], torch.exp(0.5 * f[..., 1]))

        def expected_log_prob(self, y, f):
            (m, h), (v, u) = f.mean.unbind(-1), f.variance.unbind(-1)
            q = ((y - m) ** 2 + v) * torch.exp(0.5 * u - h)
            return -0.5 * (np.log(2 * np.pi) + h + q)

    if p["noise"] is None:
        return Heteroskedastic()
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(
        num_tasks=p["Y"].shape[1],
        has_task_noise=False,
        noise_constraint=gpytorch.constraints.Positive(),
    )
    likelihood.noise = torch.tensor(p["noise"])
    return likelihood


def gpytorch_model(p):
    """Return ``(model, coefficients)`` of GPyTorch; the last is None or (L, P)."""
    import gpytorch
    import torch

    mean, tril = (torch.as_tensor(part) for part in stacked_q(p))
    (L, M), layers = mean.shape, p["layers"]
    shared, P = len(layers) < L, p["Y"].shape[1]
    batch = torch.Size([] if shared else [L])
    of_layers = {
        name: torch.as_tensor(np.stack([q[name] for q in layers]))
        for name in ("Z", "variance", "lengthscales")
    }
    if shared:
        of_layers = {name: values[0] for name, values in of_layers.items()}

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(M, torch.Size([L]))
            strategy = gpytorch.variational.VariationalStrategy(
                self, of_layers["Z"].clone(), q, learn_inducing_locations=True, jitter_val=JITTER
            )
            # otherwise the first call overwrites q with the prior
            strategy.variational_params_initialized.fill_(1)
            if p["mixing"] is None:
                whole = gpytorch.variational.IndependentMultitaskVariationalStrategy(
                    strategy, num_tasks=L
                )
            else:
                whole = gpytorch.variational.LMCVariationalStrategy(
                    strategy, num_tasks=P, num_latents=L, latent_dim=-1, jitter_val=JITTER
                )
                whole.lmc_coefficients.data.copy_(torch.as_tensor(p["mixing"].T))
            super().__init__(whole)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
            base = gpytorch.kernels.RBFKernel(ard_num_dims=p["X"].shape[1], batch_shape=batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)
            self.covar_module.outputscale = of_layers["variance"]
            base.lengthscale = of_layers["lengthscales"][..., None, :]
            with torch.no_grad():
                q.variational_mean.copy_(mean)
                q.chol_variational_covar.copy_(tril)
            self.inducing, self.q = strategy.inducing_points, q

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model()
    coefficients = None
    if p["mixing"] is not None:
        coefficients = model.variational_strategy.lmc_coefficients
    return model, coefficients


def gpytorch_step(p):
    import gpytorch
    import torch

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    (model, coefficients), likelihood = gpytorch_model(p), gpytorch_likelihood(p)
    model.train(), likelihood.train()
    B = len(p["X"])
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=SCALE * B)
    Y = p["Y"] if p["noise"] is not None else p["Y"][:, 0]
    X, Y = torch.as_tensor(p["X"]), torch.as_tensor(Y)
    kernel = model.covar_module
    raw = {
        "variance": kernel.raw_outputscale,
        "lengthscales": kernel.base_kernel.raw_lengthscale,
        "Z": model.inducing,
        "mean": model.q.variational_mean,
        "scale_tril": model.q.chol_variational_covar,
    }
    if coefficients is not None:
        raw["mixing"] = coefficients
    if p["noise"] is not None:
        raw["noise"] = likelihood.raw_noise

    def step():
        for parameter in raw.values():
            parameter.grad = None
        with gpytorch.settings.cholesky_jitter(double_value=JITTER):
            value = objective(model(X), Y)
            value.backward()
        return value

    def answer(value):
        """Return the result in the units of fastsvgp: the whole ELBO, natural parameters."""
        grad = {name: SCALE * B * parameter.grad.numpy() for name, parameter in raw.items()}
        for name in ("variance", "lengthscales", "noise"):
            if name in raw:
                # d softplus / du = 1 / (1 + e^-u)
                grad[name] = grad[name] * (1 + np.exp(-raw[name].detach().numpy()))
        named = {"mixing": grad["mixing"].T} if "mixing" in grad else {}
        if "noise" in grad:
            named["noise"] = grad["noise"][0]
        for name in ("mean", "scale_tril"):
            named |= {f"{i}.{name}": part for i, part in per_layer(p, grad[name])}
        for i, q in enumerate(p["layers"]):
            for name in ("Z", "variance", "lengthscales"):
                part = grad[name] if len(p["layers"]) == 1 else grad[name][i]
                named[f"{i}.{name}"] = part.reshape(np.shape(q[name]))
        return SCALE * B * value.item(), named

    step.answer = answer
    return step
