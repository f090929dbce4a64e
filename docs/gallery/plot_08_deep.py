"""
A deep GP
=========

A step function is difficult for a stationary covariance: either the step is steep, or the flat
parts are smooth. A second layer can stretch the inputs near the step.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(6)
X = np.sort(rng.uniform(-1, 1, (150, 1)), axis=0)
Y = np.where(X[:, 0] > 0, 0.5, -0.5) + 0.05 * rng.standard_normal(150)
grid = np.linspace(-1.3, 1.3, 200)[:, None]

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
for layers, ax in zip((1, 2), axes, strict=True):
    model = fs.layers.deep_gp(X, fs.Gaussian(variance=0.01), num_layers=layers, M=15, rng=0)
    model, info = fs.fit(
        model, X, Y, steps=500, optimiser=fs.adam(0.02), natural_step_size=0.1, rng=0
    )
    mean, var = fs.predict_y(model, grid, num_samples=64, rng=0)
    ax.plot(X, Y, ".", color="0.7")
    ax.plot(grid, mean)
    ax.fill_between(grid[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.set_title(f"{layers} layer{'s'[: layers > 1]}: {info.smoothed:.0f} nats")
figure.tight_layout()
plt.show()
