"""Use a covariance outside fastsvgp: plain NumPy functions, and bound and predictions on matrices.

    python examples/blocks.py                   # synthetic data, a second

The covariance is periodic, v exp(-2 sin^2(pi (x - x') / p) / length^2), and independent of
fastsvgp. The bound takes its matrices ``Blocks(Kuu, Kuf, kff)`` and returns the derivative in each
of their entries; the chain rule to v, length and p is in this file. SciPy's L-BFGS trains these,
q(u) and the noise. Predictions, far from the data, use the same blocks.
"""

import numpy as np
from scipy.optimize import minimize

import fastsvgp as fs

PERIOD, NOISE = 2.3, 0.2


def covariance(logs, A, B):
    """Return K(A, B), (NA, NB), and its derivatives in ``logs``, (3, NA, NB).

    ``logs`` are the logarithms of (v, length, p).
    """
    v, length, p = np.exp(logs)
    phase = np.pi * (A[:, None] - B) / p
    K = v * np.exp(-2 * np.sin(phase) ** 2 / length**2)
    return K, np.stack(
        [K, K * 4 * np.sin(phase) ** 2 / length**2, K * 2 * np.sin(2 * phase) * phase / length**2]
    )


def blocks_of(logs, Z, X, full_cov=False):
    """Return the blocks that the bound and predictions need."""
    Kff = covariance(logs, X, X)[0] if full_cov else None
    return fs.records.Blocks(
        covariance(logs, Z, Z)[0], covariance(logs, Z, X)[0], np.full(len(X), np.exp(logs[0])), Kff
    )


def logs_bar_of(logs, Z, X, bar):
    """Return the gradient in ``logs`` from that in the blocks."""
    by_matrices = sum(
        (dK * K_bar).sum((1, 2))
        for K_bar, dK in (
            (bar.Kuu, covariance(logs, Z, Z)[1]),
            (bar.Kuf, covariance(logs, Z, X)[1]),
        )
    )
    return by_matrices + np.array([np.exp(logs[0]) * bar.kff.sum(), 0.0, 0.0])


class Loss:
    """Minus the bound, and its gradient, of a flat vector: ``logs``, q(u), the noise."""

    def __init__(self, Z, X, Y, posterior, likelihood):
        self.Z, self.X, self.Y = Z, X, Y
        (q, self.posterior), (noise, self.likelihood) = fs.ravel(posterior), fs.ravel(likelihood)
        self.edges = np.cumsum([3, len(q)])
        # start near the true period: there are other optima
        self.start = np.concatenate([np.log([1.0, 1.0, 1.04 * PERIOD]), q, noise])

    def parts(self, vector):
        """Return ``(logs, posterior, likelihood)`` at a vector."""
        logs, q, noise = np.split(vector, self.edges)
        return logs, self.posterior(q), self.likelihood(noise)

    def __call__(self, vector):
        (logs, q, noise), (_, posterior, likelihood) = (
            np.split(vector, self.edges),
            self.parts(vector),
        )
        blocks = blocks_of(logs, self.Z, self.X)
        value, (blocks_bar, q_bar, likelihood_bar) = fs.bounds.elbo_and_grad_from_blocks(
            blocks, posterior, likelihood, self.Y
        )
        bars = (
            logs_bar_of(logs, self.Z, self.X, blocks_bar),
            self.posterior.pullback(q, q_bar),
            self.likelihood.pullback(noise, likelihood_bar),
        )
        return -value, -np.concatenate(bars)


def main(N=300, M=12):
    """Train, predict three periods beyond the data, print and return the results."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 4 * PERIOD, N)
    f = lambda x: np.abs((x / PERIOD) % 1 - 0.5) * 4 - 1  # noqa: E731 (a triangle wave)
    Y = f(X) + NOISE * rng.standard_normal(N)
    loss = Loss(
        np.linspace(0, PERIOD, M, endpoint=False),
        X,
        Y,
        fs.Whitened(np.zeros(M), np.eye(M)),
        fs.Gaussian(variance=0.1),
    )
    with fs.set_num_threads(1):
        found = minimize(loss, loss.start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
    logs, posterior, likelihood = loss.parts(found.x)
    far = np.linspace(6, 7, 50) * PERIOD
    mean, var = fs.bounds.predict_from_blocks(blocks_of(logs, loss.Z, far), posterior)
    _, cov = fs.bounds.predict_from_blocks(
        blocks_of(logs, loss.Z, far, full_cov=True), posterior, full_cov=True
    )
    rmse = float(np.sqrt(np.mean((mean - f(far)) ** 2)))
    period, noise = float(np.exp(logs[2])), float(np.sqrt(likelihood.variance))
    print(
        f"bound {-found.fun:.1f} from {-loss(loss.start)[0]:.1f}; period {period:.4f} ({PERIOD}),"
        f" noise {noise:.3f} ({NOISE})"
    )
    print(
        f"three periods beyond the data: RMSE {rmse:.3f}, mean sd {np.sqrt(var).mean():.3f},"
        f" of their average {np.sqrt(cov.mean()):.3f}"
    )
    return {
        "loss": loss,
        "rmse": rmse,
        "period": period,
        "noise": noise,
        "elbo": -found.fun,
        "var": var,
        "cov": cov,
    }


if __name__ == "__main__":
    main()
