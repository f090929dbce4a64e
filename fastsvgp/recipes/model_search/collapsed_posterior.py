"""The collapsed posterior of a regression at given features, and its score on held-out rows.

Neither the posterior nor the hyperparameters have seen these rows.

For a kernel s k with noise n, L L' = k(Z, Z) + jitter, Lam = L^-1 k(Z, F), and W the weights of
rows,

    A = Lam W Lam'      b = Lam W y      t = tr(W (kff - diag(Lam' Lam)))      B = I + (s / n) A

    bound = -sum(W) / 2 log(2 pi n) - log|B| / 2 - y'Wy / (2 n) + (s / n^2) b' B^-1 b / 2
            - s t / (2 n).

With A = U diag(w) U' and g = U' b this is a function of s and n only, which takes no other pass
over the data: with d = 1 + w s / n, r = (w s / n) / d, q = g^2 s / (n^2 d),

    bound = -sum(W) / 2 log(2 pi n) - sum log d / 2 - y'Wy / (2 n) + sum q / 2 - s t / (2 n)
    d bound / d log s = -sum r / 2 + sum q (1 - r) / 2 - s t / (2 n)
    d bound / d log n = -sum(W) / 2 + sum r / 2 + y'Wy / (2 n) - sum q (2 - r) / 2 + s t / (2 n).

At a new row, lam = L^-1 k(Z, phi):

    mean = (sqrt(s) / n) b' B^-1 sqrt(s) lam      variance of f = s (kff - lam'lam + lam' B^-1 lam).
"""

from typing import Any, NamedTuple

import numpy as np

from ... import kernels
from ...bounds.predict import predict_f
from ...bounds.svgp import SVGP
from ...check import DEFAULT_JITTER
from ...collapsed.sgpr import SGPR, optimal_svgp
from ...covariances import On, OnFeatures, Periodic, Product, Sum
from ...errors import NotPositiveDefinite
from ...inducing import greedy_variance, kmeans, unique_rows
from ...likelihoods import Gaussian
from ...posteriors import Whitened
from ...posteriors.base import add_to_diagonals
from ...records import replace
from ...runtime import tuning
from .candidates import feature_covariance, features
from .held_out_density import factors_of, log_densities

# largest variance of a process: without noise in the targets it would go to infinity, and jitter
# would be lost in it
LARGEST = 1e6
CONDITION = 1e12  # largest condition number of B
WIDEST = 8.0  # largest change of log s and of log n
FEWEST = 16  # inducing inputs below which no more are left out
M = 256
ROWS = 8000
CLUSTERED = 20_000  # rows whose features are clustered for inducing inputs
HALF = 3000  # rows above which inducing inputs are at most half of them
# jitter: of the variance, but at most this part of the noise or that of the training
RELATIVE_JITTER, OF_NOISE, TRAINED = 1e-6, 0.01, DEFAULT_JITTER[np.dtype(np.float64)]
LARGE = 15.0  # a factor close to its upper limit
MORE, TRIES = 8.0, 4  # beyond LARGE noise is multiplied by MORE, at most TRIES times


class Sums(NamedTuple):
    """The sums over rows that the collapsed bound needs."""

    L: Any  # (M, M)
    A: Any  # (M, M)
    b: Any  # (M,)
    yy: float
    t: float
    num_rows: float  # sum of their weights
    variance: float  # of the process, at a row


def _runs(X):
    """Return the chunks of rows, as slices."""
    size = tuning.current.search_chunk_rows
    return [slice(start, start + size) for start in range(0, len(X), size)]


def sums(covariance, Z, X, y, weights, jitter, effects=None):
    """Compute ``Sums`` of rows X (N, D), y (N,), weights (N,) or None, in chunks.

    ``effects``: labels (N,) and the ratio r of the variance of their random effects to the noise.
    These correlate noise: instead of W, with d_g = W 1_g of the rows of a label and their weight
    m_g, by Woodbury's identity

        (W^-1 + r sum_g 1_g 1_g')^-1 = W - sum_g rho_g d_g d_g',    rho_g = r / (1 + r m_g).

    N M^2 flops, and those of the features.
    """
    k = feature_covariance(covariance)
    K = k.matrix(Z)
    add_to_diagonals(K, jitter)
    L = kernels.cholesky(K)
    M = len(Z)
    A, b, prior = np.zeros((M, M)), np.zeros(M), 0.0
    labels, ratio = (None, 0.0) if effects is None else effects
    G = 0 if labels is None else int(labels.max()) + 1
    S = np.zeros((M, G))
    for rows in _runs(X):
        phi = features(covariance, X[rows])
        Lam = kernels.solve_triangular(L, k.matrix(Z, phi))
        counted = Lam if weights is None else Lam * weights[rows]
        A += kernels.matmul(counted, Lam, transpose_b=True)
        b += counted @ y[rows]
        if G:
            S += np.stack([np.bincount(labels[rows], one, G) for one in counted])
        kff = k.diag(phi)
        prior += kff.sum() if weights is None else kff @ weights[rows]
    weighted = y if weights is None else weights * y
    count = len(X) if weights is None else weights.sum()
    yy, t = float(weighted @ y), float(prior - np.trace(A))
    if G:
        rho = ratio / (1 + ratio * np.bincount(labels, weights))
        totals = np.bincount(labels, weighted)
        A -= kernels.matmul(S * rho, S, transpose_b=True)
        b -= S @ (rho * totals)
        yy -= float(rho @ np.square(totals))
    return Sums(L, A, b, yy, t, float(count), float(prior / count))


def maximise_bound(found, noise, fixed_noise=False):
    """Maximise the bound over s and n, from s = 1 and n = ``noise``; ``fixed_noise`` keeps n.

    The variance stays below ``LARGEST``, and n large enough to factorise B.

    9 M^3 flops, then O(M) per iteration.
    """
    from scipy.optimize import minimize

    w, U = np.linalg.eigh(found.A)
    w, g2 = np.maximum(w, 0), np.square(U.T @ found.b)

    def loss(point):
        s, n = np.exp(point)
        d = 1 + w * (s / n)
        r, q = (w * (s / n)) / d, g2 * (s / n**2) / d
        rest, lost = found.yy / (2 * n), s * found.t / (2 * n)
        bound = -0.5 * (found.num_rows * np.log(2 * np.pi * n) + np.log(d).sum() - q.sum())
        by_s = 0.5 * (q @ (1 - r) - r.sum()) - lost
        by_n = 0.5 * (r.sum() - found.num_rows - q @ (2 - r)) + rest + lost
        return (
            -(bound - rest - lost) / found.num_rows,
            -np.array([by_s, by_n]) / found.num_rows,
        )

    start = np.array([0.0, np.log(noise)])
    most = min(WIDEST, np.log(LARGEST / found.variance))
    around = 0.0 if fixed_noise else WIDEST
    bounds = [(min(-WIDEST, most), most), (start[1] - around, start[1] + around)]
    start[0] = min(start[0], most)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    s, n = np.exp(best)
    return float(s), float(max(n, s * w[-1] / CONDITION))


class Collapsed:
    """The posterior with kernel s k and noise n. M^3 / 3 flops.

    ``noise`` is that of a new row: with random effects, it has the variance of one.
    """

    def __init__(self, covariance, Z, found, s, n, effect=0.0):
        self.covariance, self.Z, self.s, self._L = covariance, Z, s, found.L
        self.noise, self.effect = n + effect, effect
        B = found.A * (s / n)
        add_to_diagonals(B, 1)
        self._B, self._R = B, kernels.cholesky(B)
        c = kernels.solve_triangular(self._R, (np.sqrt(s) / n) * found.b[:, None])
        self._mean = kernels.solve_triangular(self._R, c, transpose=True)[:, 0]

    def posterior(self):
        """Return q(u) for the kernel s k. 2 M^3 / 3 flops."""
        return Whitened(self._mean, kernels.cholesky_of_inverse(self._B))

    def predict(self, X):
        """Return mean and variance of f at X (N, D): two (N,) arrays. 4 N M^2 flops."""
        k, means, variances = feature_covariance(self.covariance), [], []
        for rows in _runs(X):
            phi = features(self.covariance, X[rows])
            Lam = kernels.solve_triangular(self._L, k.matrix(self.Z, phi))
            means.append(np.sqrt(self.s) * (self._mean @ Lam))
            explained = np.square(kernels.solve_triangular(self._R, Lam)).sum(0)
            explained -= np.square(Lam).sum(0)
            variances.append(self.s * np.maximum(k.diag(phi) + explained, 0))
        return np.concatenate(means), np.concatenate(variances)


# --- scores ---


class ScoredPosterior(NamedTuple):
    """A posterior and its scores on held-out rows."""

    collapsed: Any
    factors: tuple  # (a, c)
    density: Any  # (N,) log density of each held-out target
    score: float
    rmse: float
    gaussian: float  # mean Gaussian log density


def score_posterior(hyper, scale, rows, held_out, count):
    """Compute the posterior of ``rows`` at given hyperparameters, and score it on ``held_out``.

    An overfitted network has its largest bound at almost no noise. If held-out rows require a far
    larger variance, posteriors with more and more noise are tried as long as their Gaussian density
    rises.
    """
    Z, found = sums_of(hyper, rows, count)
    X, exact = scale.X(held_out.X), hyper.effect or are_rows(Z, rows)
    s, n = (1.0, hyper.noise) if exact else maximise_bound(found, hyper.noise)
    best = _score(Collapsed(hyper.covariance, Z, found, s, n, hyper.effect), X, held_out)
    for _ in range(TRIES):
        if hyper.effect or max(best.factors) < LARGE:
            break
        s, n = maximise_bound(found, n * MORE, fixed_noise=True)
        other = _score(Collapsed(hyper.covariance, Z, found, s, n), X, held_out)
        if other.gaussian <= best.gaussian:
            break
        best = other
    return best


def _score(collapsed, X, held_out):
    mean, var_f = collapsed.predict(X)
    a, c = factors_of(
        mean, var_f, collapsed.noise, held_out.y, held_out.weights, held_out.least_noise
    )
    return score_of(collapsed, mean, a * var_f + c * collapsed.noise, (a, c), held_out)


def score_of(posterior, mean, var, factors, held_out):
    """Return the ``ScoredPosterior`` with this mean and variance of held-out targets."""
    density = log_densities(mean, var, held_out.y, held_out.weights)
    squares = np.square(mean - held_out.y)
    gaussian = -0.5 * np.average(np.log(2 * np.pi * var) + squares / var, weights=held_out.weights)
    score = float(np.average(density, weights=held_out.weights))
    rmse = float(np.sqrt(np.average(squares, weights=held_out.weights)))
    return ScoredPosterior(posterior, factors, density, score, rmse, float(gaussian))


def density_of(found, scale, rows):
    """Return the log density (N,) of rows that can be new to the posterior and its factors."""
    mean, var_f = found.collapsed.predict(scale.X(rows.X))
    a, c = found.factors
    return log_densities(mean, a * var_f + c * found.collapsed.noise, rows.y, rows.weights)


def posterior_of(hyper, rows, count, tune=True):
    """Return the collapsed posterior with ``count`` inducing inputs.

    ``tune``: whether variance and noise maximise its bound. Those of an exact process, with all
    rows as inducing inputs, do already.
    """
    Z, found = sums_of(hyper, rows, count)
    tune = tune and not hyper.effect and not are_rows(Z, rows)
    best = maximise_bound(found, hyper.noise) if tune else (1.0, hyper.noise)
    return Collapsed(hyper.covariance, Z, found, *best, hyper.effect)


def sums_of(hyper, rows, count):
    """Return at most ``count`` inducing inputs (see ``inducing_of``), and the ``Sums`` of rows.

    More jitter than noise would pass for noise in ``maximise_bound``.
    """
    k, Z = feature_covariance(hyper.covariance), inducing_of(hyper, rows, count)
    relative = RELATIVE_JITTER * float(k.diag(Z).mean())
    jitter = min(relative, max(TRAINED, OF_NOISE * hyper.noise))
    effects = (rows.labels, hyper.effect / hyper.noise) if hyper.effect else None
    return Z, sums(hyper.covariance, Z, rows.X, rows.y, rows.weights, jitter, effects)


def are_rows(Z, rows):
    """Whether the inducing inputs are all distinct rows, which are then in memory."""
    return isinstance(rows.X, np.ndarray) and unique_rows.are_the_rows(Z, rows.X)


def inducing_of(hyper, rows, count):
    """Return learnt inducing inputs, filled up to ``count`` with k-means centres of features."""
    rng = np.random.default_rng(2)
    learnt = hyper.inducing
    if learnt is not None and len(learnt) >= count:
        return learnt
    phi = features(hyper.covariance, rows.draw(CLUSTERED, rng).X)
    distinct = unique_rows.distinct(phi)[0]
    most = min(count, len(rows) // 2 if len(rows) > HALF else len(rows))
    if most >= len(distinct):
        return distinct
    if learnt is None:
        return kmeans(distinct, most, rng=0)
    if most <= len(learnt):
        return learnt
    return np.concatenate([learnt, kmeans(distinct, most - len(learnt), rng=0)])


# --- a model with the posterior ---


def rescale(covariance, factor):
    """Return the covariance times a factor."""
    if isinstance(covariance, OnFeatures):
        return replace(covariance, covariance=rescale(covariance.covariance, factor))
    if isinstance(covariance, Sum):
        return replace(covariance, parts=tuple(rescale(one, factor) for one in covariance.parts))
    if isinstance(covariance, On | Periodic):
        return replace(covariance, part=rescale(covariance.part, factor))
    if isinstance(covariance, Product):
        first, *others = covariance.parts
        return replace(covariance, parts=(rescale(first, factor), *others))
    return replace(covariance, variance=covariance.variance * factor)


def make_svgp(collapsed, Z, factors, rows):
    """Return ``(svgp, (a, c))``: an SVGP with the mean of the collapsed posterior of ``rows``.

    Its variance of f is a times that of the collapsed posterior, its noise c times.

    The model of variance a s at jitter 1e-6 has the factor sqrt(a) L, with L that of the model of
    variance s at jitter 1e-6 / a. If its whitened mean is divided by sqrt(a) and the whitened
    factor is the same, means are equal and variances a times as large. If Kuu is not positive
    definite at jitter 1e-6 / a, a is 1; if it is not at 1e-6 either, inducing inputs are left out
    and noise is added.
    """
    a, c = factors
    for factor, inducing, noise in _tries(collapsed, Z, a):
        try:
            return _multiply_variances(collapsed, inducing, noise, (factor, c), rows), (factor, c)
        except NotPositiveDefinite as error:
            failed = error
    raise failed


def _tries(collapsed, Z, a):
    """Yield factors a, inducing inputs and noise to try.

    All as they are first, then the factor 1, then fewer inducing inputs and more noise.
    """
    n = collapsed.noise - collapsed.effect
    yield a, Z, n
    if a != 1:
        yield 1.0, Z, n
    k = feature_covariance(collapsed.covariance)
    while len(Z) > FEWEST:
        Z, n = greedy_variance(Z, len(Z) // 2, k), 10 * n
        yield 1.0, Z, n


def _multiply_variances(collapsed, Z, n, factors, rows):
    """Make the model with factors (a, c); check that it predicts at the default jitter."""
    a, c = factors
    sgpr = SGPR(rescale(collapsed.covariance, collapsed.s), Z, n)
    jitter = DEFAULT_JITTER[np.dtype(np.float64)] / a
    svgp = _optimum(sgpr, rows, jitter, collapsed.effect)
    q = Whitened(svgp.posterior.mean / np.sqrt(a), svgp.posterior.scale_tril)
    noise = replace(svgp.likelihood, variance=(n + collapsed.effect) * c)
    covariance = rescale(svgp.covariance, a)
    svgp = replace(svgp, covariance=covariance, posterior=q, likelihood=noise)
    predict_f(svgp, rows.X[:1])
    return svgp


def _optimum(sgpr, rows, jitter, effect):
    """Return ``optimal_svgp`` of rows in memory, or of rows on disk or with random effects."""
    if isinstance(rows.X, np.ndarray) and not effect:
        return optimal_svgp(sgpr, rows.X, rows.y, jitter=jitter, weights=rows.weights)
    covariance, Z, n = sgpr.covariance, sgpr.inducing, sgpr.noise_variance
    effects = (rows.labels, effect / n) if effect else None
    found = sums(covariance, Z, rows.X, rows.y, rows.weights, jitter, effects)
    q = Collapsed(covariance, Z, found, 1.0, n).posterior()
    return SVGP(covariance, Z, q, Gaussian(n))
