"""
Yesterday's model, today's rows
===============================

A model of the rows up to 6 takes in rows up to 12, without the old ones. With its own inducing
inputs it cannot follow them; with more, it follows and forgets nothing. With inducing inputs in
place of the old ones it forgets, and ``fs.condition`` warns of that.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(0, 12, (240, 1)), axis=0)
Y = np.sin(2 * X[:, 0]) + 0.3 * np.sin(5 * X[:, 0]) + 0.15 * rng.standard_normal(240)
old, new = X[:, 0] < 6, X[:, 0] >= 6

Z = np.linspace(0, 6, 18)[:, None]
start = fs.SGPR(fs.Matern52(1.0, 1.0), Z, 0.1)
_, info = fs.fit(start, X[old], Y[old], steps=60, fixed="inducing")
yesterday = info.svgp

more = np.linspace(6.35, 12, 17)[:, None]
today = {
    "the same inducing inputs": fs.condition(yesterday, X[new], Y[new]),
    "more": fs.condition(yesterday, X[new], Y[new], inducing=np.concatenate([Z, more])),
}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    today["others"] = fs.condition(yesterday, X[new], Y[new], inducing=more)

Xs = np.linspace(0, 12, 500)[:, None]
figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), sharey=True)
for ax, (name, model) in zip(axes, today.items(), strict=True):
    mean, var = fs.predict_f(model, Xs)
    ax.plot(X[old], Y[old], ".", color="0.8")
    ax.plot(X[new], Y[new], ".", color="0.5")
    ax.plot(Xs, mean)
    ax.fill_between(Xs[:, 0], mean - 2 * np.sqrt(var), mean + 2 * np.sqrt(var), alpha=0.3)
    ax.plot(model.inducing, np.full(len(model.inducing), -2.2), "k|")
    ax.set_ylim(-2.4, 2.4)
    ax.set_title(name)
figure.tight_layout()
plt.show()

# %%
# With Gaussian noise, conditioning is exact: the model with more inducing inputs is that of all
# rows at once, except for what the first 18 of them could not tell of the old rows.
sgpr = fs.SGPR(yesterday.covariance, today["more"].inducing, yesterday.likelihood.variance)
whole = fs.optimal_svgp(sgpr, X, Y)
apart = abs(fs.predict_f(today["more"], Xs)[0] - fs.predict_f(whole, Xs)[0]).max()
print(f"largest difference of the means: {apart:.1e}")
