"""
A decade of hourly data
=======================

87,600 hours in one pass: sums of the rows, then training and cross-validation that read no row
again.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(0)
days = np.arange(87_600) / 24
year, month = 2 * np.pi * days / 365.25, 2 * np.pi * days / 29.5
signal = 8 * np.sin(year) + 2 * np.sin(month + np.sin(3 * year)) + 0.001 * days
X, Y = days[:, None], signal + 3 * rng.standard_normal(len(days))
Y = Y - Y.mean()

# %%
# In a decade, lengthscales of eight days and more need some 600 functions.
shortest = fs.RBF(30.0, 8.0)
basis = fs.bounds.HilbertBasis.for_lengthscales(X, shortest)
began = time.perf_counter()
folds = [fs.bounds.sufficient_sums(basis, X[i::4], Y[i::4]) for i in range(4)]
sums = sum(folds[1:], folds[0])
print(f"{basis.size} functions, pass of {len(sums):,} rows: {time.perf_counter() - began:.2f} s")

# %%
# The evidence is free of the rows; so is the density of a fold given the others.
model, info = fs.fit(fs.bounds.BasisGP(shortest, basis, 9.0), sums, steps=12)
print("lengthscale, days:", round(float(model.covariance.lengthscales), 1))
print("standard deviation of the noise:", round(model.noise_variance**0.5, 3))
print("variance left out:", f"{model.missing(sums):.1e}")

# %%
# One season of the decade.
at = slice(40_000, 44_000)
mean, var = fs.predict_f(info.svgp, X[at])
plt.plot(days[at], Y[at], ".", color="0.8", markersize=2, label="hours")
plt.plot(days[at], mean, label="mean")
band = 1.96 * np.sqrt(var)
plt.fill_between(days[at], mean - band, mean + band, alpha=0.3, label="95 %")
plt.xlabel("days")
plt.legend()
plt.show()

centred = signal - signal.mean()
print(
    "root mean square error of the function:", np.sqrt(np.mean((mean - centred[at]) ** 2)).round(3)
)
