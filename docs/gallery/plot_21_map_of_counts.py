"""
A map of counts
===============

Counts at 50,000 places on a map, with a Poisson likelihood above a fixed basis of sines. Each
natural step reads the rows once; its cost does not depend on the number of functions.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(0)
X = rng.uniform(0, 10, (50_000, 2)) * [1.0, 0.6]


def log_rate(X):
    return np.sin(1.3 * X[:, 0]) * np.cos(1.7 * X[:, 1]) - 0.5


counts = rng.poisson(np.exp(log_rate(X)))

# %%
# The basis holds lengthscales of 0.8 and more.
covariance = fs.RBF(1.0, np.array([0.8, 0.8]))
basis = fs.bounds.HilbertBasis.for_lengthscales(X, covariance)
q = fs.Whitened(np.zeros(basis.size), np.eye(basis.size))
model = fs.bounds.BasisSVGP(covariance, basis, q, fs.Poisson())
for _ in range(8):
    model, step = fs.natural_step(model, X, counts, step_size=0.9)
model, info = fs.fit(model, X, counts, collapsed=True, steps=5)
print("functions:", basis.size, "lengthscales:", model.covariance.lengthscales.round(2))

# %%
# The rate, and the counts that it explains.
a, b = np.meshgrid(np.linspace(0, 10, 120), np.linspace(0, 6, 72))
Xs = np.stack([a.ravel(), b.ravel()], axis=1)
rate = fs.predict_y(model, Xs)[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
left.scatter(*X[:4000].T, c=counts[:4000], s=4, vmax=4)
left.set(title="4,000 of 50,000 counts", xlabel="east", ylabel="north")
image = right.pcolormesh(a, b, rate.reshape(a.shape), shading="auto")
right.set(title="rate", xlabel="east")
figure.colorbar(image, ax=right)
plt.tight_layout()
plt.show()

error = rate - np.exp(log_rate(Xs))
print("root mean square error of the rate:", np.sqrt(np.mean(error**2)).round(3))
