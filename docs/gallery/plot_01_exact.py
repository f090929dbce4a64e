"""
Against the exact GP
====================

How many inducing inputs are needed? The collapsed bound (:class:`fastsvgp.SGPR`) is compared with
the exact Gaussian process, which is affordable for 150 data.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-3, 3, (150, 1)), axis=0)
Y = np.sin(3 * X[:, 0]) + 0.5 * X[:, 0] + 0.2 * rng.standard_normal(150)
grid = np.linspace(-4, 4, 300)[:, None]

covariance, noise = fs.RBF(variance=1.5, lengthscales=0.6), 0.04

# %%
# The exact posterior and evidence, from their definitions.

K = covariance.matrix(X) + noise * np.eye(150)
to_grid = covariance.matrix(grid, X)
exact_mean = to_grid @ np.linalg.solve(K, Y)
exact_sd = np.sqrt(1.5 - np.sum(to_grid * np.linalg.solve(K, to_grid.T).T, axis=1))
evidence = -0.5 * (Y @ np.linalg.solve(K, Y) + np.linalg.slogdet(K)[1] + 150 * np.log(2 * np.pi))

# %%
# With M inducing inputs, at the same parameters.

figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for M, ax in zip((6, 10, 20), axes, strict=True):
    sgpr = fs.SGPR(covariance, np.linspace(-3, 3, M)[:, None], noise_variance=noise)
    bound = fs.collapsed_bound(sgpr, X, Y)
    mean, var = fs.predict_f(fs.optimal_svgp(sgpr, X, Y), grid)
    ax.plot(X[:, 0], Y, ".", color="0.8")
    ax.plot(grid, exact_mean, "k--", lw=1, label="exact")
    ax.plot(grid, exact_mean - 2 * exact_sd, "k:", lw=1)
    ax.plot(grid, exact_mean + 2 * exact_sd, "k:", lw=1)
    ax.fill_between(grid[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.plot(grid, mean, label="SGPR")
    ax.set_title(f"M = {M}: {evidence - bound:.2g} nats below the evidence")
axes[0].legend()
figure.tight_layout()
plt.show()

# %%
# With one inducing input per datum the two agree up to the jitter.

full = fs.SGPR(covariance, X, noise_variance=noise)
print(evidence - fs.collapsed_bound(full, X, Y))
