"""
Influence of each datum
=======================

At the optimum each datum has a Gaussian site, whose precision is its influence. Removing a site
gives the leave-one-out prediction of its datum, without a second training.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(10)
X = np.sort(np.concatenate([rng.uniform(-3, 0, 60), rng.uniform(0, 3, 15)]))[:, None]
labels = (rng.random(75) < 1 / (1 + np.exp(-4 * np.sin(1.5 * X[:, 0])))).astype(int)
Z = np.linspace(-3, 3, 15)[:, None]
sites = fs.posteriors.AbsorbedDualSites(lambda1=np.zeros(15), lambda2=np.zeros((15, 15)))
start = fs.SVGP(fs.RBF(2.0, 1.0), Z, sites, fs.likelihoods.BernoulliLogit())
model, info = fs.em(start, X, labels, rounds=5, fixed="inducing")

found = fs.sites.dual_parameters(model, X, labels)
without = fs.sites.leave_one_out(model, X, labels)
grid = np.linspace(-3.5, 3.5, 200)[:, None]
probability, _ = fs.predict_y(model, grid)

figure, axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True)
axes[0].plot(grid, probability)
axes[0].scatter(X, labels, s=200 * found.lambda2, alpha=0.5, label="area: precision of the site")
axes[0].legend()
axes[1].plot(X, without, ".", label="predicted without the datum")
axes[1].plot(X, fs.predict_log_density(model, X, labels), "k+", label="predicted with it")
axes[1].set_ylabel("log density")
axes[1].legend()
figure.tight_layout()
plt.show()

print("held-out NLPD, without holding anything out:", -without.mean())
