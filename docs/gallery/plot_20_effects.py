"""
How inputs act
==============

The mean effect of each input of a searched model, with the band of the joint posterior, and the
share of the variance that it explains by itself.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(5)
X = rng.uniform(-np.pi, np.pi, (500, 4))  # the Ishigami function, and an input without effect
f = np.sin(X[:, 0]) + 7 * np.sin(X[:, 1]) ** 2 + 0.1 * X[:, 2] ** 4 * np.sin(X[:, 0])
y = f + 0.5 * rng.standard_normal(500)

found = fs.search(X, y, seconds=3, rng=0)
Xs = found.scale.X(X)
effects = fs.sensitivity.effects(found.model, Xs)
shares = fs.sensitivity.sobol(found.model, Xs)

figure, axes = plt.subplots(1, 4, figsize=(11, 3), sharey=True)
exact = [0.314, 0.442, 0.0, 0.0]  # of the function without noise
for d, (ax, effect) in enumerate(zip(axes, effects, strict=True)):
    at = np.repeat(Xs[:1], len(effect.grid), axis=0)
    at[:, d] = effect.grid
    x = found.scale.X_back(at)[:, d]
    ax.fill_between(x, *map(found.scale.back, (effect.low, effect.high)), alpha=0.3)
    ax.plot(x, found.scale.back(effect.mean))
    ax.set_title(f"x{d}: {shares.first[d]:.2f}, exactly {exact[d]:.2f}")
figure.tight_layout()
plt.show()

for d in range(4):
    print(f"x{d}: share {shares.first[d]:.3f}, from {shares.low[d]:.3f} to {shares.high[d]:.3f}")
