"""
Out of core
===========

200,000 rows in files: only the rows of a batch are read. The whole arrays are never in memory.
"""

import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

folder, rng, N = tempfile.mkdtemp(), np.random.default_rng(5), 200_000
files = {name: os.path.join(folder, f"{name}.npy") for name in ("X", "Y")}
X = np.lib.format.open_memmap(files["X"], "w+", float, (N, 2))
Y = np.lib.format.open_memmap(files["Y"], "w+", float, (N,))
for rows in np.split(np.arange(N), 10):
    X[rows] = rng.uniform(-2, 2, (len(rows), 2))
    Y[rows] = np.sin(3 * X[rows, 0]) * np.cos(2 * X[rows, 1]) + 0.2 * rng.standard_normal(len(rows))

# %%
# ``fit`` takes any object that returns rows for an array of row numbers.

X, Y = (np.load(files[name], mmap_mode="r") for name in ("X", "Y"))
some = np.array(X[::400])
covariance, Z = fs.RBF(1.0, 0.7 * np.ones(2)), fs.inducing.kmeans(some, 80, rng=0)
start = fs.SVGP(covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), fs.Gaussian(0.1))
model, info = fs.fit(
    start, X, Y, steps=300, batch_size=1000, natural_step_size=0.1, optimiser=fs.adam(0.02), rng=0
)

side = np.linspace(-2, 2, 60)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
mean, _ = fs.predict_f(model, grid)
plt.figure(figsize=(5, 4))
plt.contourf(side, side, mean.reshape(60, 60), 20)
plt.plot(*model.inducing.T, "k+")
plt.title(f"{N} rows on disk; noise {np.sqrt(model.likelihood.variance):.3f}, true 0.2")
plt.tight_layout()
plt.show()
