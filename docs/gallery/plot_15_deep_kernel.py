"""
A network under a GP
====================

The gradient of the bound in the inputs feeds the backward pass of a network: here one layer, with
its reverse rule by hand. The data have a jump, but on the learnt features the function is smooth.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(13)
X = rng.uniform(-1, 1, (600, 2))
side = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1.0, -1.0)  # a jump across a line
Y = side + 0.5 * np.sin(4 * X[:, 1]) + 0.1 * rng.standard_normal(600)

W, c, V = rng.standard_normal((2, 30)), rng.standard_normal(30), rng.standard_normal((30, 2)) / 8
covariance = fs.RBF(1.0, np.ones(2))


def features(X):
    return np.tanh(X @ W + c) @ V


# %% For comparison a process on the inputs, and one on the network's features, trained jointly.

plain = fs.SGPR(covariance, fs.inducing.kmeans(X, 40, rng=0), noise_variance=0.1)
plain, info = fs.fit(plain, X, Y, steps=200)
plain_bound = fs.collapsed_bound(plain, X, Y)

Z = fs.inducing.kmeans(features(X), 40, rng=0)
model = fs.SVGP(covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), fs.Gaussian(0.1))
adam = fs.adam(0.02, fixed="posterior")
state, sums, bounds = adam.init(model), [0.0, 0.0, 0.0], []
for step in range(400):
    hidden = np.tanh(X @ W + c)
    model, _ = fs.natural_step(model, hidden @ V, Y, step_size=0.5)
    value, grad, H_bar = fs.elbo_and_grad(model, hidden @ V, Y, inputs=True)
    before = (H_bar @ V.T) * (1 - hidden**2)
    bars = X.T @ before, before.sum(0), hidden.T @ H_bar
    sums = [0.95 * s + 0.05 * np.mean(bar**2) for s, bar in zip(sums, bars, strict=True)]
    W, c, V = (
        p + 0.01 * bar / np.sqrt(s / (1 - 0.95 ** (step + 1)))
        for p, bar, s in zip((W, c, V), bars, sums, strict=True)
    )
    model, state = adam.step(model, grad, state, value)
    bounds.append(value)

grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 80)] * 2), -1).reshape(-1, 2)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.4))
means = {
    f"inputs: {plain_bound:.0f} nats": fs.predict_f(fs.optimal_svgp(plain, X, Y), grid)[0],
    f"features: {bounds[-1]:.0f} nats": fs.predict_f(model, features(grid))[0],
}
for ax, (title, mean) in zip(axes, means.items(), strict=False):
    ax.contourf(*grid.T.reshape(2, 80, 80), mean.reshape(80, 80), 20)
    ax.set_title(title)
axes[2].plot(bounds)
axes[2].axhline(plain_bound, color="k", ls=":", lw=1)
axes[2].set(xlabel="step", ylabel="bound, nats", ylim=(-1000, None))
figure.tight_layout()
plt.show()
