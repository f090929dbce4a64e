"""
A second set of inducing inputs
===============================

SOLVE-GP adds a second set of inducing inputs for the residual of the first. With Gaussian noise all
these bounds are collapsed. They are compared at the same parameters: 5 inducing inputs, 5 and 5,
and 10.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(8)
X = np.sort(rng.uniform(-3, 3, (200, 1)), axis=0)
Y = np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(200)
covariance, noise = fs.RBF(1.0, 0.6), 0.04
both = np.linspace(-2.7, 2.7, 10)[:, None]
few, between = both[::2], both[1::2]

models = {
    "5": fs.SGPR(covariance, few, noise),
    "5 and 5": fs.bounds.OrthogonalSGPR(
        covariance, fs.posteriors.InducingPair(few, between), noise
    ),
    "10": fs.SGPR(covariance, both, noise),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    mean, var = fs.predict_f(fs.optimal_svgp(model, X, Y), X)
    ax.plot(X, Y, ".", color="0.8")
    ax.plot(X, mean)
    ax.fill_between(X[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.set_title(f"{name}: {fs.collapsed_bound(model, X, Y):.1f} nats")
figure.tight_layout()
plt.show()
