"""
Missing outputs
===============

Three outputs, each observed at some of the inputs. A target of weight 0 is never read, so missing
targets can be NaN.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(11)
X = np.sort(rng.uniform(-3, 3, (240, 1)), axis=0)
truth = np.stack([np.sin(2 * X[:, 0]), np.cos(2 * X[:, 0]), np.tanh(2 * X[:, 0])], axis=1)
Y = truth + 0.1 * rng.standard_normal(truth.shape)
Y[80:150, 0] = np.nan  # a gap
Y[rng.random(240) < 0.8, 1] = np.nan  # one in five
weights = ~np.isnan(Y)

covariance, Z = fs.Matern52(1.0, 0.8), np.linspace(-3, 3, 25)[:, None]
start = fs.SVGP(
    covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=3), fs.Gaussian(0.05)
)
model, info = fs.fit(
    start, X, Y, weights=weights, steps=200, natural_step_size=0.3, optimiser=fs.adam(0.02), rng=0
)

mean, var = fs.predict_f(model, X)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for p, ax in enumerate(axes):
    ax.plot(X, Y[:, p], ".", color="0.7")
    ax.plot(X, truth[:, p], "k--", lw=1)
    ax.plot(X, mean[:, p])
    sd = np.sqrt(var[:, p])
    ax.fill_between(X[:, 0], mean[:, p] - 2 * sd, mean[:, p] + 2 * sd, alpha=0.3)
    ax.set_title(f"{weights[:, p].sum()} of 240 targets")
figure.tight_layout()
plt.show()
