"""
Functions drawn from a posterior
================================

Left: functions drawn from a posterior are evaluated on a fine grid, and each is maximised by its
gradient, all in one call of L-BFGS-B. Right: Thompson sampling of a function of two inputs. A round
of trials are the maximisers of eight functions drawn from the posterior of all trials so far.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import fastsvgp as fs

rng = np.random.default_rng(3)


def trained(X, Y, lengthscales):
    start = fs.SGPR(fs.RBF(1.0, lengthscales), X, noise_variance=0.01)
    sgpr, info = fs.fit(start, X, Y, steps=30, fixed=("inducing",))
    return info.svgp


def maximisers(paths, bounds, rng):
    """Return one point per function: the best of some random points, then L-BFGS-B on all."""
    low, high = np.array(bounds).T
    points = rng.uniform(low, high, (300, len(low)))
    start = points[paths(points).argmax(axis=1)]

    def negative_sum(flat):
        values, slopes = paths.and_grad(flat.reshape(len(paths), 1, -1))
        return -values.sum(), -slopes.ravel()

    box = bounds * len(paths)
    return minimize(negative_sum, start.ravel(), jac=True, bounds=box).x.reshape(start.shape)


figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.5))
X = np.concatenate([rng.uniform(0, 3, 15), rng.uniform(6, 8, 10)])[:, None]
Y = np.sin(2 * X[:, 0]) - 0.2 * (X[:, 0] - 4.3) ** 2 + 0.1 * rng.standard_normal(25)
paths = fs.sample_paths(trained(X, Y, np.ones(1)), 6, rng=0)
grid = np.linspace(0, 8, 1000)[:, None]
left.plot(grid, paths(grid).T, lw=1)
best = maximisers(paths, [(0, 8)], rng)
left.plot(best[:, 0], paths(best[:, None])[:, 0], "kv", label="maxima")
left.plot(X, Y, ".", color="0.5")
left.legend()
left.set_title("six functions")


def hidden(X):
    return np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1]) - 0.2 * ((X - 0.5) ** 2).sum(axis=1)


bounds = [(-2, 2), (-2, 2)]
dense = np.stack(np.meshgrid(*[np.linspace(-2, 2, 200)] * 2), axis=-1).reshape(-1, 2)
X = rng.uniform(-2, 2, (8, 2))
Y = hidden(X) + 0.05 * rng.standard_normal(8)
regrets = [hidden(dense).max() - hidden(X).max()]
for number in range(8):
    paths = fs.sample_paths(trained(X, Y, np.ones(2)), 8, rng=number)
    trials = maximisers(paths, bounds, rng)
    X = np.concatenate([X, trials])
    Y = np.concatenate([Y, hidden(trials) + 0.05 * rng.standard_normal(8)])
    regrets.append(hidden(dense).max() - hidden(X).max())
right.semilogy(np.maximum(regrets, 1e-5), "o-")
right.set_xlabel("round of eight trials")
right.set_title("distance to the maximum")
figure.tight_layout()
plt.show()
