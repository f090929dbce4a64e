"""Functions drawn by BoTorch from the posterior of an ``fs.SVGP``: peers of ``fs.sample_paths``."""

import functools

import gpytorch
import torch
from botorch.sampling.pathwise import draw_kernel_feature_paths, draw_matheron_paths
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

PACKAGES = "torch", "gpytorch", "botorch"
torch.set_num_threads(1)


class OfModel(gpytorch.models.ApproximateGP):
    """The same prior and the same whitened q(u): ARD ``RBF``, and no mean or a constant."""

    def __init__(self, model, jitter):
        k, q, Z = model.covariance, model.posterior, torch.as_tensor(model.inducing)
        M, D = Z.shape
        own = CholeskyVariationalDistribution(M)
        strategy = VariationalStrategy(self, Z, own, False, jitter_val=jitter)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=D))
        self.to(torch.float64).requires_grad_(False)
        self.mean_module.constant.fill_(0.0 if model.mean is None else float(model.mean.value))
        self.covar_module.outputscale = float(k.variance)
        self.covar_module.base_kernel.lengthscale = torch.as_tensor(k.lengthscales)
        strategy.variational_params_initialized.fill_(1)
        own.variational_mean.copy_(torch.as_tensor(q.mean))
        own.chol_variational_covar.copy_(torch.as_tensor(q.scale_tril))
        self.eval()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def sample_paths(model, count, num_features):
    """Draw functions of an ``OfModel``; their random features are shared."""
    D = model.variational_strategy.inducing_points.shape[-1]
    prior = functools.partial(draw_kernel_feature_paths, num_inputs=D, num_features=num_features)
    with torch.no_grad():
        return draw_matheron_paths(model, torch.Size([count]), prior_sampler=prior)


def values(paths, X):
    """Return values (S, n) at points (n, D) of all functions, or (S, n, D) of each."""
    with torch.no_grad():
        return paths(torch.as_tensor(X)).numpy()


def values_and_slopes(paths, X):
    """Return values (S, n) at own points (S, n, D), and gradients (S, n, D)."""
    at = torch.tensor(X, requires_grad=True)
    found = paths(at)
    (slopes,) = torch.autograd.grad(found.sum(), at)
    return found.detach().numpy(), slopes.numpy()
