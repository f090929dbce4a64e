"""
Near rows for the detail
========================

Ten inducing inputs cannot follow 25 waves. An SVGP calls what they leave noise; a VIF conditions
each row on its 5 nearest earlier rows, and predicts nearly as the exact process does. Predictions
jump a little where other rows become the nearest.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(0, 25, (300, 1)), axis=0)
Y = np.sin(2 * np.pi * X[:, 0]) + 0.5 * np.sin(0.4 * X[:, 0]) + 0.1 * rng.standard_normal(300)
covariance, noise = fs.Matern52(0.5, 0.4) + fs.RBF(0.2, 4.0), fs.Gaussian(0.01)
few = np.linspace(1, 24, 10)[:, None]

exact = fs.optimal_svgp(fs.SGPR(covariance, X, noise.variance), X, Y)
svgp = fs.optimal_svgp(fs.SGPR(covariance, few, noise.variance), X, Y)
near = fs.bounds.neighbours(X, covariance, 5, Y=Y)
vif = fs.VIF(covariance, few, svgp.posterior, noise, near=near)
vif, _ = fs.natural_step(vif, X, Y, step_size=1.0)  # q(u) at its optimum

Xs = np.linspace(8, 14, 400)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for ax, (name, model) in zip(
    axes, {"SVGP": svgp, "near rows": vif, "exact": exact}.items(), strict=True
):
    mean, var = fs.predict_f(model, Xs)
    ax.plot(X, Y, ".", color="0.7")
    ax.plot(Xs, mean)
    ax.fill_between(Xs[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.set_xlim(8, 14)
    ax.set_title(name)
figure.tight_layout()
plt.show()

# %%
# The bound with five near rows, and the evidence of the exact process:
print(f"near rows {fs.elbo(vif, X, Y):.1f}, SVGP {fs.elbo(svgp, X, Y):.1f}")
print(f"exact {fs.elbo(exact, X, Y):.1f}")
