"""The programs that ``time_to_accuracy.py`` trains: fastsvgp, and others as in their documentation.

Each is constructed from the problem, and has ``warm()``, which compiles everything that a step
needs and restores the state, ``step(rows)``, ``parameters()`` (in natural space, q whitened:
N(mean, scale_tril scale_tril')), and ``versions``.
"""

import os
from functools import cache
from importlib.metadata import version

THREADS = 2
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, str(THREADS))  # read once, when the libraries load

import numpy as np  # noqa: E402

JITTER, RATE, NATURAL = 1e-6, 0.01, 0.1


class Program:
    """One training, which needs ``packages``."""

    packages: tuple = ()

    def __init__(self, problem):
        self.X, self.y, self.problem = problem["X"], problem["y"], problem
        self.begin()

    @property
    def versions(self):
        return [f"{package} {version(package)}" for package in self.packages]

    def warm(self):
        """Take two steps with another instance."""
        other = type(self)(self.problem)
        for rows in self.problem["rows"][:2]:
            other.step(rows)

    def start(self, name):
        """Return a copy of the starting values."""
        return np.array(self.problem[name])


class Ours(Program):
    """Adam in all parameters."""

    packages, fixed = ("fastsvgp",), ()

    def begin(self):
        import fastsvgp as fs

        fs.set_num_threads(THREADS)
        covariance = fs.RBF(float(self.problem["variance"]), self.start("lengthscales"))
        self.fs, likelihood = fs, fs.Gaussian(float(self.problem["noise"]))
        self.model = fs.SVGP(
            covariance, self.start("Z"), self.posterior(len(self.problem["Z"])), likelihood
        )
        self.adam = fs.adam(RATE).fixing(tuple(f"posterior.{field}" for field in self.fixed))
        self.state = self.adam.init(self.model)
        self.options = {"num_data": len(self.X), "jitter": JITTER}

    def posterior(self, M):
        return self.fs.Whitened(np.zeros(M), np.eye(M))

    def step(self, rows):
        rows = np.sort(rows)
        value, grad = self.fs.elbo_and_grad(self.model, self.X[rows], self.y[rows], **self.options)
        self.model, self.state = self.adam.step(self.model, grad, self.state, value)

    def parameters(self):
        model, q = (
            self.model,
            self.fs.posteriors.convert(self.model, self.fs.Whitened, jitter=JITTER).posterior,
        )
        return {
            "Z": model.inducing,
            "variance": model.covariance.variance,
            "lengthscales": model.covariance.lengthscales,
            "noise": model.likelihood.variance,
            "mean": q.mean,
            "scale_tril": q.scale_tril,
        }


class OursNatural(Ours):
    """The steps of ``fit`` with ``natural_step_size=0.1``."""

    fixed = "mean", "scale_tril"

    def step(self, rows):
        X, y = self.X[np.sort(rows)], self.y[np.sort(rows)]
        model, _, value, grad = self.fs.optim.natural_step_and_grad(
            self.model, X, y, step_size=NATURAL, **self.options
        )
        self.model, self.state = self.adam.step(model, grad, self.state, value)


class OursInTwoPasses(OursNatural):
    """The natural step first, and then the gradient at the new q."""

    def step(self, rows):
        X, y = self.X[np.sort(rows)], self.y[np.sort(rows)]
        model, _ = self.fs.natural_step(self.model, X, y, step_size=NATURAL, **self.options)
        value, grad = self.fs.elbo_and_grad(
            model, X, y, wrt=("covariance", "inducing", "likelihood"), **self.options
        )
        self.model, self.state = self.adam.step(model, grad, self.state, value)


class OursInLikelihoodForm(Ours):
    """L-SVGP: M pseudo-targets, each of which represents an equal share of the data."""

    def posterior(self, M):
        return self.fs.posteriors.LikelihoodForm(
            np.zeros(M), np.full(M, float(self.problem["noise"]) * M / len(self.X))
        )


class Jax(Program):
    """The algorithm of ``OursInTwoPasses`` in JAX: natural gradients by autodiff.

    See ``natural_peers``.
    """

    packages = "jax", "jaxlib"

    def begin(self):
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        M, positive = len(self.problem["Z"]), ("variance", "lengthscales", "noise")
        self.q = jnp.zeros(M), jnp.eye(M)
        self.parts = {name: jnp.log(jnp.expm1(self.start(name))) for name in positive} | {
            "Z": jnp.asarray(self.start("Z"))
        }
        self.moments, self.count = (
            [{name: jnp.zeros_like(a) for name, a in self.parts.items()} for _ in range(2)],
            0,
        )
        self.X, self.y = jnp.asarray(self.X), jnp.asarray(self.y)
        self.compiled = jax_step(len(self.X))

    def step(self, rows):
        import jax

        self.count += 1
        found = self.compiled(
            self.q, self.parts, self.moments, self.count, self.X[rows], self.y[rows]
        )
        self.q, self.parts, self.moments = jax.block_until_ready(found)

    def parameters(self):
        found = {
            name: np.asarray(a) if name == "Z" else np.logaddexp(a, 0)
            for name, a in self.parts.items()
        }
        return found | {"mean": np.asarray(self.q[0]), "scale_tril": np.asarray(self.q[1])}


@cache
def jax_step(num_data):
    """Return the jitted step, one for all instances."""
    import jax
    import jax.numpy as jnp
    from jax.nn import softplus
    from jax.scipy.linalg import cho_solve, solve_triangular

    def covariance(A, B, p):
        A, B = A / softplus(p["lengthscales"]), B / softplus(p["lengthscales"])
        r2 = (A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * A @ B.T
        return softplus(p["variance"]) * jnp.exp(-0.5 * jnp.maximum(r2, 0.0))

    def projected(p, X):
        L = jnp.linalg.cholesky(covariance(p["Z"], p["Z"], p) + JITTER * jnp.eye(len(p["Z"])))
        return solve_triangular(L, covariance(p["Z"], X, p), lower=True)

    def bound(m, W, p, Lam, y):
        noise = softplus(p["noise"])
        var = softplus(p["variance"]) - (Lam**2).sum(0) + ((W.T @ Lam) ** 2).sum(0)
        data = -0.5 * jnp.log(2 * jnp.pi * noise) - ((y - Lam.T @ m) ** 2 + var) / (2 * noise)
        kl = 0.5 * ((W**2).sum() + m @ m - len(m)) - jnp.log(jnp.diag(W)).sum()
        return num_data / len(y) * data.sum() - kl

    def in_expectations(expectations, p, Lam, y):
        m, second = expectations
        return bound(m, jnp.linalg.cholesky(second - jnp.outer(m, m)), p, Lam, y)

    @jax.jit
    def step(q, p, moments, count, X, y):
        (m, W), eye = q, jnp.eye(len(q[0]))
        first, second = jax.grad(in_expectations)(
            (m, W @ W.T + jnp.outer(m, m)), p, projected(p, X), y
        )
        precision = cho_solve((W, True), eye)
        theta = precision @ m + NATURAL * first
        C = jnp.linalg.cholesky(precision - NATURAL * (second + second.T))
        S = cho_solve((C, True), eye)
        q = S @ theta, jnp.linalg.cholesky(S)
        grad = jax.grad(lambda p: bound(*q, p, projected(p, X), y))(p)
        one = {name: 0.9 * moments[0][name] + 0.1 * g for name, g in grad.items()}
        two = {name: 0.999 * moments[1][name] + 0.001 * g * g for name, g in grad.items()}
        rate = RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        return (
            q,
            {name: a + rate * one[name] / (jnp.sqrt(two[name]) + 1e-8) for name, a in p.items()},
            (one, two),
        )

    return step


class GPyTorch(Program):
    """Adam for all parameters, or for all except q, which takes natural steps (``NGD``)."""

    packages = "torch", "gpytorch"
    strategy, natural = "VariationalStrategy", False

    def begin(self):
        import gpytorch
        import torch

        torch.set_num_threads(THREADS)
        torch.set_default_dtype(torch.float64)
        self.torch, self.gpytorch, Z = torch, gpytorch, torch.as_tensor(self.start("Z"))
        kinds, kind = (
            gpytorch.variational,
            ("Natural" if self.natural else "Cholesky") + "VariationalDistribution",
        )
        strategy, kernels = getattr(kinds, self.strategy), gpytorch.kernels

        class Model(gpytorch.models.ApproximateGP):
            def __init__(self):
                q = getattr(kinds, kind)(len(Z), mean_init_std=0.0)
                super().__init__(
                    strategy(self, Z, q, learn_inducing_locations=True, jitter_val=JITTER)
                )
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=Z.shape[1]))

            def forward(self, x):
                return gpytorch.distributions.MultivariateNormal(
                    self.mean_module(x), self.covar_module(x)
                )

        self.model = Model()
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.Positive()
        )
        self.model.covar_module.outputscale = float(self.problem["variance"])
        self.model.covar_module.base_kernel.lengthscale = self.start("lengthscales")
        self.likelihood.noise = float(self.problem["noise"])
        self.X, self.y = torch.as_tensor(self.X), torch.as_tensor(self.y)
        self.objective = gpytorch.mlls.VariationalELBO(
            self.likelihood, self.model, num_data=len(self.X)
        )
        others = [*self.model.hyperparameters(), *self.likelihood.parameters()]
        q = list(self.model.variational_parameters())
        if self.natural:
            self.optimisers = [
                gpytorch.optim.NGD(q, num_data=len(self.X), lr=NATURAL),
                torch.optim.Adam(others, lr=RATE),
            ]
        else:
            self.optimisers = [torch.optim.Adam([*q, *others], lr=RATE)]
        self.model.train()
        self.likelihood.train()

    def step(self, rows):
        for optimiser in self.optimisers:
            optimiser.zero_grad()
        rows = self.torch.as_tensor(rows, dtype=self.torch.long)
        with self.gpytorch.settings.cholesky_jitter(double_value=JITTER):
            loss = -self.objective(self.model(self.X[rows]), self.y[rows])
            loss.backward()
        for optimiser in self.optimisers:
            optimiser.step()

    def parameters(self):
        with self.torch.no_grad():
            q = self.model.variational_strategy._variational_distribution()
            tensors = {
                "Z": self.model.variational_strategy.inducing_points,
                "variance": self.model.covar_module.outputscale,
                "lengthscales": self.model.covar_module.base_kernel.lengthscale[0],
                "noise": self.likelihood.noise[0],
                "mean": q.mean,
                "scale_tril": self.torch.linalg.cholesky(q.covariance_matrix),
            }
            return {name: tensor.numpy().copy() for name, tensor in tensors.items()}


class GPyTorchNatural(GPyTorch):
    natural = True


class GPyTorchLargeBatch(GPyTorch):
    strategy = "LargeBatchVariationalStrategy"


class GPflow(Program):
    """Natural-gradient steps of q, and Adam for the rest.

    The code is that of the "natural gradients" notebook in its documentation, compiled.
    """

    packages = "tensorflow", "gpflow"
    natural = True

    def begin(self):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
        import gpflow
        import tensorflow as tf

        try:
            tf.config.threading.set_intra_op_parallelism_threads(THREADS)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        except RuntimeError:  # the second instance: the threads exist already
            pass
        gpflow.config.set_default_jitter(JITTER)
        kernel = gpflow.kernels.SquaredExponential(
            float(self.problem["variance"]), self.start("lengthscales")
        )
        likelihood = gpflow.likelihoods.Gaussian(
            float(self.problem["noise"]), variance_lower_bound=0.0
        )
        self.model = gpflow.models.SVGP(
            kernel, likelihood, self.start("Z"), num_data=len(self.X), whiten=True
        )
        self.X, self.y = tf.constant(self.X), tf.constant(self.y[:, None])
        adam = tf.keras.optimizers.Adam(RATE)
        q = [(self.model.q_mu, self.model.q_sqrt)]
        if self.natural:
            for parameter in q[0]:
                gpflow.set_trainable(parameter, False)
        natural, variables = (
            gpflow.optimizers.NaturalGradient(gamma=NATURAL),
            self.model.trainable_variables,
        )

        @tf.function
        def step(rows):
            batch = tf.gather(self.X, rows), tf.gather(self.y, rows)
            if self.natural:
                natural.minimize(lambda: -self.model.elbo(batch), q)
            with tf.GradientTape() as tape:
                loss = -self.model.elbo(batch)
            adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

        self.step = lambda rows: step(tf.constant(rows))

    def parameters(self):
        model = self.model
        tensors = {
            "Z": model.inducing_variable.Z,
            "variance": model.kernel.variance,
            "lengthscales": model.kernel.lengthscales,
            "noise": model.likelihood.variance,
            "mean": model.q_mu[:, 0],
            "scale_tril": model.q_sqrt[0],
        }
        return {name: np.array(tensor) for name, tensor in tensors.items()}

    def warm(self):
        """Compile the step of this instance, and restore the state."""
        import tensorflow as tf

        before = [tf.identity(v) for v in self.model.variables]
        self.step(self.problem["rows"][0])
        for variable, value in zip(self.model.variables, before, strict=True):
            variable.assign(value)


PROGRAMS = {
    "fastsvgp, natural + Adam": OursNatural,
    "fastsvgp, natural + Adam in two passes": OursInTwoPasses,
    "fastsvgp, Adam": Ours,
    "fastsvgp, L-SVGP": OursInLikelihoodForm,
    "JAX, natural + Adam": Jax,
    "GPyTorch, Adam": GPyTorch,
    "GPyTorch, LargeBatch, Adam": GPyTorchLargeBatch,
    "GPyTorch, natural + Adam": GPyTorchNatural,
    "GPflow, natural + Adam": GPflow,
}
