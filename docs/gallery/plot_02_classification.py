"""
Two classes
===========

A Bernoulli likelihood with the logistic link, on two half moons. Natural-gradient steps train q(u),
and Adam trains the other parameters.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import fastsvgp as fs

X, labels = make_moons(600, noise=0.25, random_state=0)
covariance = fs.Matern52(variance=4.0, lengthscales=fs.inducing.median_lengthscales(X, rng=0))
Z = fs.inducing.kmeans(X, 32, rng=0)
start = fs.SVGP(
    covariance,
    Z,
    fs.posteriors.at_prior(fs.Whitened, covariance, Z),
    fs.likelihoods.BernoulliLogit(),
)
schedule = fs.optim.schedules.log_linear(1e-2, 0.2, 50)
model, info = fs.fit(
    start,
    X,
    labels,
    steps=300,
    batch_size=200,
    natural_step_size=schedule,
    optimiser=fs.adam(0.02),
    rng=0,
)

# %%
# The probability of the second class, and the standard deviation of the function.

side = np.linspace(-2, 3, 80)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
probability, _ = fs.predict_y(model, grid)
_, var = fs.predict_f(model, grid)

figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
for ax, values, title in ((axes[0], probability, "P(y = 1)"), (axes[1], np.sqrt(var), "sd of f")):
    filled = ax.contourf(
        side, side, values.reshape(80, 80), 20, cmap="RdBu_r" if ax is axes[0] else "viridis"
    )
    ax.scatter(*X.T, c=labels, cmap="RdBu_r", s=8, edgecolors="k", linewidths=0.3)
    ax.plot(*model.inducing.T, "k+", ms=6)
    ax.set_title(title)
    figure.colorbar(filled, ax=ax)
figure.tight_layout()
plt.show()

accuracy = np.mean((fs.predict_y(model, X)[0] > 0.5) == labels)
print(
    f"accuracy {accuracy:.3f}, mean log density"
    f" {fs.predict_log_density(model, X, labels).mean():.3f}"
)
