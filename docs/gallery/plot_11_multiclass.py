"""
Three classes
=============

One latent function per class, with a shared covariance and a softmax likelihood.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsvgp as fs

rng = np.random.default_rng(9)
angle = rng.uniform(0, 4, 600)
labels = rng.integers(0, 3, 600)
turned = angle + 2 * np.pi * labels / 3
X = 0.5 * angle[:, None] * np.stack(
    [np.cos(turned), np.sin(turned)], 1
) + 0.12 * rng.standard_normal((600, 2))

covariance, Z = fs.RBF(4.0, 0.6), fs.inducing.kmeans(X, 40, rng=0)
q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=3)
start = fs.SVGP(covariance, Z, q, fs.Softmax(num_classes=3))
steps = fs.optim.schedules.log_linear(1e-2, 0.2, 50)
model, info = fs.fit(
    start,
    X,
    labels,
    steps=150,
    batch_size=200,
    natural_step_size=steps,
    optimiser=fs.adam(0.02),
    rng=0,
)

side = np.linspace(-2.3, 2.3, 90)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
probabilities, _ = fs.predict_y(model, grid)
plt.figure(figsize=(5, 5))
plt.imshow(
    np.clip(probabilities, 0, 1).reshape(90, 90, 3),
    origin="lower",
    extent=(-2.3, 2.3, -2.3, 2.3),
    alpha=0.6,
)
plt.scatter(*X.T, c=np.eye(3)[labels] * 0.8, s=8)
plt.title(f"accuracy {np.mean(fs.predict_y(model, X)[0].argmax(1) == labels):.3f}")
plt.tight_layout()
plt.show()
