"""
Natural gradients against Adam
==============================

The bound of all data during two trainings, which differ in the update of q(u): natural-gradient
steps, or Adam as for all other parameters.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(3)
X = rng.uniform(-2, 2, (1000, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(1000)
covariance, Z = fs.RBF(1.0, np.ones(2)), fs.inducing.kmeans(X, 50, rng=0)
start = fs.SVGP(covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), fs.Gaussian(0.1))

plt.figure(figsize=(7, 3.5))
for name, options in {"Adam alone": {}, "natural steps of 0.1": {"natural_step_size": 0.1}}.items():
    trace = []

    def look(step, value, info, trace=trace):
        if step % 10 == 0:
            trace.append((step, fs.elbo(info.model, X, Y)))

    fs.fit(
        start,
        X,
        Y,
        steps=400,
        batch_size=200,
        optimiser=fs.adam(0.01),
        rng=0,
        callback=look,
        **options,
    )
    plt.plot(*np.transpose(trace), label=name)
plt.xlabel("step")
plt.ylabel("bound, nats")
plt.legend()
plt.tight_layout()
plt.show()
