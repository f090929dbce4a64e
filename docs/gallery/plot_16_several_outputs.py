"""
Several outputs
===============

Left and middle: three outputs are mixtures of two functions, and the first one was not observed
between 3 and 7. Separate models know nothing there; a linear mixing learns what the outputs share,
and fills the gap from the others. Right: the variance of the noise is a second latent function.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(4)
X = np.sort(rng.uniform(0, 10, (150, 1)), axis=0)
g = np.stack([np.sin(2 * X[:, 0]), np.cos(1.3 * X[:, 0] + 1)], axis=1)
truth = g @ np.array([[0.9, 0.6], [0.8, -0.7], [-0.4, 1.0]]).T
Y = truth + 0.1 * rng.standard_normal(truth.shape)
Y[(X[:, 0] > 3) & (X[:, 0] < 7), 0] = np.nan
weights = ~np.isnan(Y)


def band(ax, x, mean, sd, title):
    ax.plot(x, mean)
    ax.fill_between(x, mean - 2 * sd, mean + 2 * sd, alpha=0.3)
    ax.set_title(title)


figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for num_latents, ax in zip(("separate", 2), axes, strict=False):
    start = fs.layers.multi_gp(X, Y, num_latents, M=25, weights=weights, rng=0)
    mixed = start.mixing is not None  # then the mixing has the scale of the variances
    held = [f"latents.{number}.covariance.variance" for number in range(2)] if mixed else []
    optimiser = fs.adam(0.05, fixed=held)
    model, info = fs.fit(
        start, X, Y, weights=weights, steps=300, natural_step_size=1.0, optimiser=optimiser, rng=0
    )
    mean, var = fs.predict_f(model, X)
    ax.plot(X, Y[:, 0], ".", color="0.7")
    ax.plot(X, truth[:, 0], "k--", lw=1)
    band(ax, X[:, 0], mean[:, 0], np.sqrt(var[:, 0]), "two functions" if mixed else "separate")

y = np.sin(X[:, 0]) + np.exp(-1.5 + np.sin(0.7 * X[:, 0])) * rng.standard_normal(150)
start = fs.layers.multi_gp(
    X, y, "separate", M=15, likelihood=fs.likelihoods.HeteroskedasticGaussian(), rng=0
)
model, info = fs.em(start, X, y, rounds=10)
mean, var = fs.predict_y(model, X)
axes[2].plot(X, y, ".", color="0.7")
band(axes[2], X[:, 0], mean, np.sqrt(var), "noise that varies")
figure.tight_layout()
plt.show()
