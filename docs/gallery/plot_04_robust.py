"""
Robust noise
============

One datum in ten is an outlier. Gaussian noise must explain it by more noise everywhere, or by a
distorted function. Heavy tails can ignore it.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(-3, 3, (200, 1)), axis=0)
truth = np.sin(2 * X[:, 0])
Y = truth + 0.1 * rng.standard_normal(200)
wild = rng.random(200) < 0.1
Y[wild] += rng.normal(0, 3, wild.sum())

covariance, Z = fs.RBF(1.0, 0.7), np.linspace(-3, 3, 15)[:, None]
likelihoods = {
    "Gaussian": fs.Gaussian(0.1),
    "Laplace": fs.likelihoods.Laplace(0.2),
    "Student-t": fs.StudentT(scale=0.2, df=3.0),
}
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for ax, (name, likelihood) in zip(axes, likelihoods.items(), strict=True):
    start = fs.SVGP(covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), likelihood)
    steps = fs.optim.schedules.log_linear(1e-3, 0.1, 50)
    model, info = fs.fit(
        start,
        X,
        Y,
        steps=400,
        batch_size=200,
        natural_step_size=steps,
        optimiser=fs.adam(0.02),
        rng=0,
    )
    mean, var = fs.predict_f(model, X)
    ax.plot(X, Y, ".", color="0.7")
    ax.plot(X, truth, "k--", lw=1)
    ax.plot(X, mean)
    ax.fill_between(X[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.set(
        title=f"{name}: RMSE to the truth {np.sqrt(np.mean((mean - truth) ** 2)):.3f}", ylim=(-3, 3)
    )
figure.tight_layout()
plt.show()
