"""
Ten lines
=========

A sparse Gaussian process on 500 data with 20 inducing inputs: the hyperparameters and the inducing
inputs maximise the collapsed bound (:class:`fastsvgp.SGPR`), and the band is the mean of new
observations with two standard deviations.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, (500, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * rng.standard_normal(500)

start = fs.SGPR(
    fs.RBF(1.0, np.ones(1)), inducing=fs.inducing.kmeans(X, 20, rng=0), noise_variance=0.1
)
sgpr, info = fs.fit(start, X, Y, steps=50)
grid = np.linspace(-4, 4, 300)[:, None]
mean, var = fs.predict_y(info.svgp, grid)

# %%
# The learnt hyperparameters.

noise, lengthscale = sgpr.noise_variance**0.5, sgpr.covariance.lengthscales[0]
print(f"bound {info.values[-1]:.1f} nats, noise {noise:.3f}, lengthscale {lengthscale:.2f}")

# %%
# The predictions.

figure, ax = plt.subplots(figsize=(8, 3))
ax.plot(X[:, 0], Y, ".", color="0.7", ms=3, label="data")
ax.fill_between(grid[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
ax.plot(grid, mean, label="mean, with two standard deviations")
ax.plot(sgpr.inducing[:, 0], np.full(20, ax.get_ylim()[0]), "k|", ms=10, label="inducing inputs")
ax.legend(loc="upper left", fontsize="small")
figure.tight_layout()
plt.show()
