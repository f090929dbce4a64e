"""Train a neural network of two layers, differentiated by hand, jointly with a Gaussian process.

    python examples/network.py    # kin40k, M = 128, 2000 steps: RMSE 0.091, NLPD -1.02 in 11 CPU s

``elbo_and_grad(..., inputs=True)`` returns the gradient of the bound in the output of the network.
The reverse rule of the network, three lines here, turns it into the gradient in the weights. The
figures are those of split 0, float64, seed 0, one BLAS thread; rates and widths were chosen on that
split. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import sys
import time
from typing import Any

import inverse_free
import numpy as np

import fastsvgp as fs


@fs.records.record
class NetworkGP:
    """An SVGP whose inputs are tanh(X A + a) B. A (D, H), a (H,), B (H, K); gp : SVGP."""

    A: Any = fs.records.leaf()
    a: Any = fs.records.leaf()
    B: Any = fs.records.leaf()
    gp: Any


def network(model, X):
    """Return ``(hidden units (N, H), inputs of the GP (N, K))``."""
    hidden = np.tanh(X @ model.A + model.a)
    return hidden, hidden @ model.B


def elbo_and_grad(model, X, y, **options):
    """Return the bound, and its gradient in the weights and the GP, a record like the model."""
    hidden, inputs = network(model, X)
    value, gp_bar, inputs_bar = fs.elbo_and_grad(model.gp, inputs, y, inputs=True, **options)
    before_tanh = (inputs_bar @ model.B.T) * (1 - hidden**2)
    return value, NetworkGP(X.T @ before_tanh, before_tanh.sum(0), hidden.T @ inputs_bar, gp_bar)


def start(X, rng, H=128, K=8, M=128):
    """Return a model with random weights, and inducing inputs at the features of some data."""
    D = X.shape[1]
    A, B = rng.standard_normal((D, H)) / np.sqrt(D), rng.standard_normal((H, K)) / np.sqrt(H)
    model = NetworkGP(A, np.zeros(H), B, gp=None)
    Z = network(model, rng.permutation(X)[:M])[1]
    gp = fs.SVGP(
        fs.RBF(1.0, np.ones(K)),
        Z,
        fs.Whitened(np.zeros(len(Z)), np.eye(len(Z))),
        fs.Gaussian(variance=0.1),
    )
    return fs.replace(model, gp=gp)


def train(model, X, y, steps, rng, batch=256):
    """Train q(u) by natural gradients and the rest by Adam; return the model and the bounds."""
    optimiser, values = (
        fs.adam(fs.optim.schedules.log_linear(2e-2, 1e-3, steps), fixed="gp.posterior"),
        [],
    )
    state = optimiser.init(model)
    for _ in range(steps):
        rows = rng.choice(len(X), batch)
        gp, _ = fs.natural_step(
            model.gp, network(model, X[rows])[1], y[rows], step_size=0.3, num_data=len(X)
        )
        model = fs.replace(model, gp=gp)
        value, grad = elbo_and_grad(model, X[rows], y[rows], num_data=len(X))
        model, state = optimiser.step(model, grad, state, value)
        values.append(value)
    return model, values


if __name__ == "__main__":
    X, y, X_test, y_test = inverse_free.table("kin40k", 0)
    rng, began = np.random.default_rng(0), time.process_time()
    model, _ = train(start(X, rng), X, y, int(sys.argv[1]) if sys.argv[1:] else 2000, rng)
    seconds, inputs = time.process_time() - began, network(model, X_test)[1]
    rmse = np.sqrt(np.mean((fs.predict_y(model.gp, inputs)[0] - y_test) ** 2))
    print(
        f"RMSE {rmse:.4f}, NLPD {-fs.predict_log_density(model.gp, inputs, y_test).mean():.4f},"
        f" {seconds:.0f} s of CPU time"
    )
