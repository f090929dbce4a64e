"""A neural network under a Gaussian process, trained together: two layers by hand, and the bound's gradient in its inputs.

    python examples/network.py                  # kin40k, M = 128, 2000 steps: RMSE 0.091, NLPD -1.02 in 11 s of CPU time

``elbo_and_grad(..., inputs=True)`` says how the bound changes with what the network makes of the
data, and the network's own reverse rule, three lines here, takes that on to the weights. The
figures are those of split 0, float64, seed 0, one BLAS thread; rates and widths were chosen on that
split. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import sys
import time
from typing import Any

import inverse_free
import numpy as np

import fastsvgp as fs


@fs.record
class NetworkGP:
    """An SVGP whose inputs are tanh(X A + a) B. A (D, H), a (H,), B (H, K); gp : SVGP."""

    A: Any = fs.leaf()
    a: Any = fs.leaf()
    B: Any = fs.leaf()
    gp: Any


def network(model, X):
    """``(hidden units (N, H), inputs of the GP (N, K))``."""
    hidden = np.tanh(X @ model.A + model.a)
    return hidden, hidden @ model.B


def elbo_and_grad(model, X, y, **options):
    """The bound, and its gradient in the weights and in all of the GP: a record as the model is."""
    hidden, inputs = network(model, X)
    value, gp_bar, inputs_bar = fs.elbo_and_grad(model.gp, inputs, y, inputs=True, **options)
    before_tanh = (inputs_bar @ model.B.T) * (1 - hidden**2)
    return value, NetworkGP(X.T @ before_tanh, before_tanh.sum(0), hidden.T @ inputs_bar, gp_bar)


def start(X, rng, H=128, K=8, M=128):
    """Random weights; inducing inputs where these send some of the data."""
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
    """Each step moves q(u) along its natural gradient and then all else by Adam; gives the model, and the bound at each step."""
    optimiser, values = (
        fs.adam(fs.schedules.log_linear(2e-2, 1e-3, steps), fixed="gp.posterior"),
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
