"""
Counts
======

Poisson counts whose rate is the exponential of the function. The expected log density has a closed
form without tuning parameters. Quantiles are those of the counts.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(1)
X = np.sort(rng.uniform(0, 10, (400, 1)), axis=0)
rate = np.exp(1 + np.sin(1.5 * X[:, 0]) + 0.1 * X[:, 0])
counts = rng.poisson(rate)

covariance, Z = fs.RBF(variance=1.0, lengthscales=1.0), np.linspace(0, 10, 25)[:, None]
start = fs.SVGP(
    covariance,
    Z,
    fs.posteriors.at_prior(fs.Whitened, covariance, Z),
    fs.Poisson(),
    fs.means.ConstantMean(1.0),
)
model, info = fs.fit(
    start,
    X,
    counts,
    steps=200,
    batch_size=400,
    natural_step_size=0.1,
    optimiser=fs.adam(0.02),
    rng=0,
)

# %%
# The mean of the counts, and a 90 % interval.

mean, _ = fs.predict_y(model, X)
low, high = fs.predict_quantiles(model, X, (0.05, 0.95))
plt.figure(figsize=(8, 3.5))
plt.plot(X, counts, ".", color="0.7", label="counts")
plt.plot(X, rate, "k--", lw=1, label="true rate")
plt.plot(X, mean, label="predicted")
plt.fill_between(X[:, 0], low, high, alpha=0.2, step="mid")
plt.legend()
plt.tight_layout()
plt.show()

print("inside the interval:", np.mean((counts >= low) & (counts <= high)))
