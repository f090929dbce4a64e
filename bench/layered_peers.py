"""Problems of ``peers.py --step deep`` and ``--step convolutional``: value and all gradients.

Deep: two layers of D = P = 8 outputs and one output, M inducing inputs each, one draw of the hidden
layer for all programs, no mean functions. GPyTorch's layers share covariance and inducing inputs
among outputs as fastsvgp's do, so it also factorises one Kuu per layer. Convolutional: images 28 x
28, patches 5 x 5, ten classes by robust maximum. GPflow's covariance divides by the number of
patches; fastsvgp's weights include this factor.
"""

import os

import numpy as np

JITTER, SCALE, NOISE = 1e-6, 10.0, 0.2


def deep_problem(M, B, D=8, seed=0):
    """Return the arrays of two layers, and the draw (1, B, D) of the hidden one."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((B, D))

    def factors(*lead):
        W = np.tril(rng.standard_normal((*lead, M, M))) * (0.1 / np.sqrt(M))
        W[..., np.arange(M), np.arange(M)] = rng.uniform(0.5, 1.0, (*lead, M))
        return W

    layers = [
        {
            "Z": rng.standard_normal((M, D)),
            "variance": 1.3,
            "lengthscales": rng.uniform(0.9, 1.5, D),
            "mean": 0.5 * rng.standard_normal((*lead, M)),
            "scale_tril": factors(*lead),
        }
        for lead in ((D,), ())
    ]
    y = np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(B)
    return {"X": X, "y": y, "layers": layers, "draw": rng.standard_normal((1, B, D))}


def deep_flops(M, B, D=8):
    """Return the flops of both whitened layers, each in the cheaper of two forms."""
    return sum(
        min((3 * P + 3) * M**2 * B + 4 / 3 * M**3, (3 * P + 2) * M**2 * B + (4 / 3 + 2 * P) * M**3)
        for P in (D, 1)
    )


def our_deep(p, device):
    import fastsvgp as fs

    layers = (
        fs.layers.Layer(
            fs.RBF(q["variance"], q["lengthscales"]),
            q["Z"],
            fs.Whitened(q["mean"], q["scale_tril"]),
        )
        for q in p["layers"]
    )
    model, X, y, draws = (
        fs.DeepGP(tuple(layers), fs.Gaussian(variance=NOISE)),
        p["X"],
        p["y"],
        (p["draw"],),
    )

    def step():
        return fs.elbo_and_grad(model, X, y, num_data=SCALE * len(y), jitter=JITTER, draws=draws)

    def answer(result):
        value, grad = result
        named = {}
        for i, bars in enumerate(grad.layers):
            q, covariance = bars.posterior, bars.covariance
            named |= {f"{i}.mean": q.mean, f"{i}.scale_tril": q.scale_tril, f"{i}.Z": bars.inducing}
            named |= {
                f"{i}.variance": covariance.variance,
                f"{i}.lengthscales": covariance.lengthscales,
            }
        return value, named

    step.answer = answer
    return step


def gpytorch_deep(p, device):
    import gpytorch
    import torch
    from gpytorch.models.deep_gps import DeepGP, DeepGPLayer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.set_default_dtype(torch.float64)
    (B, D), draw = p["X"].shape, torch.as_tensor(p["draw"])

    class Layer(DeepGPLayer):
        def __init__(self, q, outputs):
            M, batch = len(q["Z"]), torch.Size([] if outputs is None else [outputs])
            distribution = gpytorch.variational.CholeskyVariationalDistribution(
                M, batch_shape=batch
            )
            strategy = gpytorch.variational.VariationalStrategy(
                self,
                torch.as_tensor(q["Z"].copy()),
                distribution,
                learn_inducing_locations=True,
                jitter_val=JITTER,
            )
            super().__init__(strategy, D, outputs)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=D)
            )
            self.covar_module.outputscale = torch.tensor(q["variance"])
            self.covar_module.base_kernel.lengthscale = torch.as_tensor(q["lengthscales"])
            strategy.variational_params_initialized.fill_(1)
            with torch.no_grad():
                distribution.variational_mean.copy_(torch.as_tensor(q["mean"]))
                distribution.chol_variational_covar.copy_(torch.as_tensor(q["scale_tril"]))

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    class Model(DeepGP):
        def __init__(self):
            super().__init__()
            self.hidden, self.last = Layer(p["layers"][0], D), Layer(p["layers"][1], None)

        def forward(self, x):
            return self.last(self.hidden(x))

    model = Model()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive()
    )
    likelihood.noise = torch.tensor(NOISE)
    model.train(), likelihood.train()
    objective = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(likelihood, model, num_data=SCALE * B)
    )
    X, y = (torch.as_tensor(p[name]) for name in ("X", "y"))
    parameters = [*model.parameters(), *likelihood.parameters()]
    # the hidden draw of all programs: DeepGPLayer uses it for its inputs
    torch.distributions.Normal.rsample = lambda self, shape=None: self.loc + self.scale * draw

    def step():
        for parameter in parameters:
            parameter.grad = None
        with (
            gpytorch.settings.num_likelihood_samples(1),
            gpytorch.settings.cholesky_jitter(double_value=JITTER),
        ):
            value = objective(model(X), y)
            value.backward()
        return value

    def answer(value):
        """Return the result in the units of fastsvgp: the whole ELBO, natural parameters."""
        grad = {}
        for i, layer in enumerate((model.hidden, model.last)):
            q, kernel = layer.variational_strategy, layer.covar_module
            raw = {
                "variance": kernel.raw_outputscale,
                "lengthscales": kernel.base_kernel.raw_lengthscale,
            }
            for name, parameter in raw.items():
                u = parameter.detach().cpu().numpy()
                # d softplus / du = 1 / (1 + e^-u)
                natural = parameter.grad.cpu().numpy() * (1 + np.exp(-u))
                grad[f"{i}.{name}"] = SCALE * B * natural.reshape(np.shape(p["layers"][i][name]))
            of_q = q._variational_distribution
            leaves = {
                "Z": q.inducing_points,
                "mean": of_q.variational_mean,
                "scale_tril": of_q.chol_variational_covar,
            }
            grad |= {
                f"{i}.{name}": SCALE * B * leaf.grad.cpu().numpy() for name, leaf in leaves.items()
            }
        return SCALE * B * value.item(), grad

    step.answer = answer
    return step


DEEP = {"fastsvgp": our_deep, "GPyTorch": gpytorch_deep}


def convolutional_problem(M, B, classes=10, seed=0):
    """Return images like digits (mostly black), inducing patches, and q of all classes."""
    rng = np.random.default_rng(seed)
    images = np.clip(rng.standard_normal((B, 28, 28)), 0, 1)
    images[:, :6] = images[:, -6:] = images[:, :, :6] = images[:, :, -6:] = 0.0
    windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2)).reshape(-1, 25)
    windows = windows[windows.any(1)]
    Z = windows[rng.choice(len(windows), M, replace=False)] + 0.05 * rng.standard_normal((M, 25))
    W = np.tril(rng.standard_normal((classes, M, M))) * (0.1 / np.sqrt(M))
    W[:, np.arange(M), np.arange(M)] = rng.uniform(0.5, 1.0, (classes, M))
    return {
        "X": images.reshape(B, -1),
        "y": rng.integers(0, classes, B),
        "Z": Z,
        "variance": 2.0,
        "lengthscale": 1.4,
        "weights": rng.uniform(0.5, 1.5, 576),
        "mean": 0.5 * rng.standard_normal((classes, M)),
        "scale_tril": W,
    }


def convolutional_flops(M, B, classes=10, patches=576, numbers=25):
    """Return the flops of Kuf and kff, 6 per entry and pixel, and of a whitened layer."""
    entries = B * patches * (M + (patches + 1) // 2)
    return 6 * numbers * entries + (3 * classes + 3) * M**2 * B + 4 / 3 * M**3


def our_convolutional(p, device):
    import fastsvgp as fs

    covariance = fs.covariances.Convolutional(
        fs.RBF(p["variance"], p["lengthscale"]),
        p["weights"] / 576,
        image_shape=(28, 28),
        patch_shape=(5, 5),
    )
    classes = len(p["mean"])
    model = fs.SVGP(
        covariance,
        p["Z"],
        fs.Whitened(p["mean"], p["scale_tril"]),
        fs.likelihoods.RobustMax(num_classes=classes),
    )

    def step():
        return fs.elbo_and_grad(model, p["X"], p["y"], num_data=SCALE * len(p["y"]), jitter=JITTER)

    def answer(result):
        value, grad = result
        q, patches = grad.posterior, grad.covariance
        return value, {
            "mean": q.mean,
            "scale_tril": q.scale_tril,
            "Z": grad.inducing,
            "weights": patches.weights / 576,
            "variance": patches.patch_covariance.variance,
            "lengthscale": patches.patch_covariance.lengthscales,
        }

    step.answer = answer
    return step


def gpflow_convolutional(p, device):
    import gpflow
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ["OMP_NUM_THREADS"]))
    gpflow.config.set_default_jitter(JITTER)
    base = gpflow.kernels.SquaredExponential(p["variance"], p["lengthscale"])
    kernel = gpflow.kernels.Convolutional(base, [28, 28], [5, 5], weights=p["weights"])
    classes = len(p["mean"])
    model = gpflow.models.SVGP(
        kernel,
        gpflow.likelihoods.MultiClass(classes),
        gpflow.inducing_variables.InducingPatches(p["Z"]),
        whiten=True,
        num_latent_gps=classes,
        q_mu=p["mean"].T,
        q_sqrt=p["scale_tril"],
        num_data=int(SCALE * len(p["y"])),
    )
    data = tf.constant(p["X"]), tf.constant(p["y"][:, None].astype(float))
    leaves = {
        "mean": model.q_mu,
        "scale_tril": model.q_sqrt,
        "Z": model.inducing_variable.Z,
        "weights": kernel.weights,
        "variance": base.variance,
        "lengthscale": base.lengthscales,
    }

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
        for name in ("variance", "lengthscale"):
            grad[name] = grad[name] / (1 - np.exp(-p[name]))
        grad["mean"], grad["scale_tril"] = (
            grad["mean"].T,
            model.q_sqrt.transform.forward(grad["scale_tril"]).numpy(),
        )
        return float(value), grad

    step.answer = answer
    return step


CONVOLUTIONAL = {"fastsvgp": our_convolutional, "GPflow": gpflow_convolutional}
