"""
Pseudo-data, and no inverse
===========================

L-SVGP parameterises q(u) by M pseudo-targets and their noise variances. It has few parameters, and
factorises only a well-conditioned matrix. R-SVGP is the same model from matrix products only:
Newton-Schulz steps update a factor of the inverse. Both are compared with the whitened posterior,
all trained by Adam.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(4)
X = rng.uniform(-2, 2, (800, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * rng.standard_normal(800)
covariance, Z, M = fs.RBF(1.0, np.ones(2)), fs.inducing.kmeans(X, 40, rng=0), 40

posteriors = {
    "W-SVGP": fs.posteriors.at_prior(fs.Whitened, covariance, Z),
    "L-SVGP": fs.posteriors.LikelihoodForm(mean=np.zeros(M), variance=np.ones(M)),
    "R-SVGP": fs.posteriors.Relaxed(
        mean=np.zeros(M), variance=np.ones(M), inverse_tril=0.1 * np.eye(M)
    ),
}
plt.figure(figsize=(7, 3.5))
for name, posterior in posteriors.items():
    model = fs.SVGP(covariance, Z, posterior, fs.Gaussian(0.1))
    if name == "R-SVGP":
        model, _ = fs.optim.update_inverse_factor(model)
    model, info = fs.fit(model, X, Y, steps=500, batch_size=200, optimiser=fs.adam(0.01), rng=0)
    plt.plot(info.values, lw=0.5, label=f"{name}: {fs.elbo(model, X, Y):.0f} nats at the end")
plt.ylim(-2000, 500)
plt.xlabel("step")
plt.ylabel("bound of the batch, nats")
plt.legend(loc="lower right")
plt.tight_layout()
plt.show()

# %%
# The curves of L-SVGP and R-SVGP coincide: the factor of the inverse is accurate enough.
