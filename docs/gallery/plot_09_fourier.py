"""
Random Fourier features
=======================

A QSGP has a posterior over the weights of random Fourier features, which are never stored. Its
optimal mean solves a linear system, by conjugate gradients. How many features are needed to match
the mean of the exact GP?
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(7)
X = rng.uniform(-2, 2, (400, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(400)
new = rng.uniform(-2, 2, (500, 2))
covariance = fs.RBF(1.0, 0.7)
exact, _ = fs.predict_f(fs.optimal_svgp(fs.SGPR(covariance, X, noise_variance=0.01), X, Y), new)

numbers, errors = (30, 100, 300, 1000, 3000, 10_000), []
for m in numbers:
    prior = fs.qsgp.ChevronWeights(mean=np.zeros(m), columns=np.zeros((m, 0)), diagonal=np.ones(m))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(covariance, num_features=m, seed=0), prior, fs.Gaussian(0.01)
    )
    model, info = fs.qsgp.optimal_weights(model, X, Y, iterations=200)
    mean, _ = fs.predict_f(model, new)
    errors.append(np.sqrt(np.mean((mean - exact) ** 2)))

plt.figure(figsize=(6, 3.5))
plt.loglog(numbers, errors, "o-")
plt.loglog(
    numbers,
    errors[-1] * np.sqrt(numbers[-1] / np.array(numbers)),
    "k:",
    label="one over the root of their number",
)
plt.xlabel("features")
plt.ylabel("RMSE to the exact mean")
plt.legend()
plt.tight_layout()
plt.show()
