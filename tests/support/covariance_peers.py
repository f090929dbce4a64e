"""Write the entries of covariances that other packages compute: ``peer_covariances.json``.

    python tests/support/covariance_peers.py

Its environment has GPflow, GPyTorch and BoTorch; the tests need only the file.
"""

import importlib.metadata
import json
import pathlib

import numpy as np

FILE = pathlib.Path(__file__).resolve().parents[1] / "covariances" / "peer_covariances.json"
L, W = np.array([0.7, 1.6]), np.array([0.9, 0.4])
CODES = np.array([[0.0, 2.0, 1.0, 3.0, 2.0]]).T


def inputs():
    """Return X1 (4, 2) and X2 (5, 2), with few digits, so that they are exact in text."""
    rng = np.random.default_rng(20240917)
    return np.round(rng.uniform(-2, 2, (4, 2)), 3), np.round(rng.uniform(-2, 2, (5, 2)), 3)


def of_gpflow(X1, X2):
    import gpflow.kernels as k

    def entries(kernel, A=X1, B=X2):
        return kernel(A, B).numpy().tolist()

    coregion = k.Coregion(output_dim=4, rank=2)
    coregion.W.assign(np.arange(8.0).reshape(4, 2) / 5 - 0.7)
    coregion.kappa.assign([0.3, 0.8, 1.1, 0.5])
    parts = [k.RBF(1.3, L[:1]), k.Matern32(0.6, L[1:])]
    changes = k.ChangePoints(parts, locations=[0.25], steepness=[2.5])
    return {
        "rational quadratic": entries(k.RationalQuadratic(1.3, L, 0.6)),
        "periodic": entries(k.Periodic(k.RBF(1.3, L), [2.1, 3.4])),
        # of several columns its Matern covariances add absolute values, ours squares
        "periodic matern52": entries(k.Periodic(k.Matern52(0.8, 1.1), 2.7), X1[:, :1], X2[:, :1]),
        "cosine": entries(k.Cosine(1.2, L)),
        "polynomial": entries(k.Polynomial(3, W, 0.7)),
        "arc cosine": entries(k.ArcCosine(1, 1.1, weight_variances=W, bias_variance=0.5)),
        "arc cosine of order 2": entries(
            k.ArcCosine(2, 1.1, weight_variances=W, bias_variance=0.5)
        ),
        "coregion": entries(coregion, CODES, CODES[:4]),
        "change points": entries(changes, X1[:, :1], X2[:, :1]),
        "on": entries(k.RBF(1.3, 0.7, active_dims=[1]) * k.Linear(0.4, active_dims=[0])),
    }


def of_gpytorch(X1, X2):
    import gpytorch.kernels as k
    import torch
    from botorch.models.kernels.categorical import CategoricalKernel

    torch.set_default_dtype(torch.float64)

    def entries(kernel, A=X1, B=X2):
        with torch.no_grad():
            return kernel(torch.tensor(A), torch.tensor(B)).to_dense().numpy().tolist()

    # of several columns it is a product of cosines, ours a cosine of the sum
    mixture = k.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=1)
    mixture.initialize(
        mixture_weights=torch.tensor([0.8, 0.5]),
        mixture_means=torch.tensor([0.3, 0.9]).reshape(2, 1, 1),
        mixture_scales=torch.tensor([0.2, 0.1]).reshape(2, 1, 1),
    )
    base = k.RBFKernel(ard_num_dims=3)
    base.initialize(lengthscale=torch.tensor([[0.7, 1.6, 1.1]]))
    additive = k.NewtonGirardAdditiveKernel(base, 3, max_degree=2)
    additive.initialize(outputscale=torch.tensor([0.9, 0.4]).reshape(2, 1, 1))
    categorical = CategoricalKernel(ard_num_dims=1)
    categorical.initialize(lengthscale=torch.tensor([[0.7]]))
    three = [np.c_[X, X[:, :1] * X[:, 1:]] for X in (X1, X2)]
    return {
        "spectral mixture": entries(mixture, X1[:, :1], X2[:, :1]),
        "additive": entries(additive, *three),
        "categorical": entries(categorical, CODES, CODES[:4]),
    }


def main():
    X1, X2 = inputs()
    found = {"X1": X1.tolist(), "X2": X2.tolist(), "codes": CODES.tolist()}
    found["versions"] = {
        name: importlib.metadata.version(name) for name in ("gpflow", "gpytorch", "botorch")
    }
    found |= {"gpflow": of_gpflow(X1, X2), "gpytorch": of_gpytorch(X1, X2)}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
