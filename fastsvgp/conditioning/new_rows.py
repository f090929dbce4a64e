"""q(u) after new rows, from q(u) before them: inducing inputs and parameters are fixed.

The old q(v) = N(m, S), v = L^-1 u, S = W W', is the prior of the new rows. With Lam = L^-1 K(Z, X),
H = W'Lam and mu0 = Lam'm, a Gaussian site of each row, exp(lambda_1 f - lambda_2 f^2 / 2), gives

    S+^-1 = S^-1 + Lam diag(lambda_2) Lam' = W^-T P W^-1,    P = I + H diag(lambda_2) H'
    T T' = P^-1, T lower:    W+ = W T                        lower, and no inverse of S
    S+^-1 m+ = S^-1 m + Lam lambda_1
    m+ = m + S+ Lam r = m + W T h,    r = lambda_1 - lambda_2 mu0,    h = T'H r

P >= I if no site is negative, so each step is well conditioned for any q. The marginals at the
rows, and the divergence from the old q in the coordinates in which that is N(0, I), are, V = T'H,

    mean = mu0 + V'h,    var = kff - colsum Lam^2 + colsum V^2,    KL = KL[N(T h, T T') || N(0, I)]

E-step of size g, a and b the derivatives of the expected log likelihood in mean and variance:

    lambda_2 <- (1 - g) lambda_2 - 2 g b
    r        <- (1 - g) r + g (a - 2 b V'h)        a - 2 b mean for lambda_1, less -2 b mu0

With Gaussian noise a - 2 b V'h and b do not depend on q: one step is exact. Otherwise the steps
ascend E log p(y | f) - KL, and are halved until it does not fall and P is positive definite.
"""

import numpy as np

from .. import check, kernels
from ..bounds.convert import as_gaussian, from_state, state_of
from ..bounds.protocol import LayerProtocol, kind_of
from ..bounds.relay import Batch, sweep
from ..check import weights as weighing
from ..errors import NotPositiveDefinite, warn
from ..posteriors import Whitened
from ..posteriors.base import PriorFactor, add_to_diagonals
from ..posteriors.dual_sites import DualTying
from ..posteriors.gaussian_factor import GaussianFactor
from ..posteriors.predictive import PredictiveWeights
from ..records import Marginals
from ..records.inducing_sets import naming_repeated

MAX_STEPS = 500
MAX_HALVINGS = 30


class Entering:
    """One layer and new rows: the old q(u) of each of its functions, and q(u) with their sites."""

    def __init__(self, layer, X, jitter):
        self._q = layer.posterior
        blocks = layer.covariance.blocks(layer.inducing, X)
        self._prior = PriorFactor(blocks.Kuu, jitter)
        with naming_repeated(layer.inducing):
            old = as_gaussian(Whitened, self._q, self._prior)
        M, offset = len(blocks.Kuu), 0 if layer.mean is None else layer.mean(X)
        self._mean, self._tril = old.mean.reshape(-1, M), old.scale_tril.reshape(-1, M, M)
        self._Lam = kernels.solve_triangular(self._prior.L, blocks.Kuf, overwrite_b=True)
        pairs = [kernels.column_moments(self._Lam, mean) for mean in self._mean]
        self._start = np.stack([start for start, _ in pairs])
        self._offset = self._start + offset
        self._rest = blocks.kff - pairs[0][1]
        kernels.raise_to_floor(self._rest, blocks.kff)
        self._H = [kernels.multiply_triangular(W, self._Lam, transpose=True) for W in self._tril]
        self._T, self._h = None, np.zeros_like(self._mean)

    @property
    def num_inducing(self):
        return self._mean.shape[1]

    @property
    def count(self):
        """The number of functions, P."""
        return len(self._mean)

    def give_sites(self, r, lambda2):
        """Recompute q(u) with sites r and lambda_2 (P, N); raise ``NotPositiveDefinite``."""
        T, h = [], []
        for H, residual, precision in zip(self._H, r, lambda2, strict=True):
            P = add_to_diagonals(kernels.symmetrise(kernels.weighted_gram(H, precision)), 1)
            T.append(kernels.cholesky_of_inverse(P))
            sums = kernels.matmul(H, residual[:, None])
            h.append(kernels.multiply_triangular(T[-1], sums, transpose=True)[:, 0])
        self._T, self._h = np.stack(T), np.stack(h)

    def marginals(self):
        """Return ``(mean, var, shift)`` (P, N); ``shift`` is V'h, what the sites add to a mean."""
        pairs = []
        for p, H in enumerate(self._H):
            V = H if self._T is None else kernels.multiply_triangular(self._T[p], H, transpose=True)
            pairs.append(kernels.column_moments(V, self._h[p]))
        shift, var = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
        return self._offset + shift, self._rest + var, shift

    def kl(self):
        """Return the divergence of q(u) from the old one, summed over the functions."""
        return 0.0 if self._T is None else kernels.kl_from_standard(self._moves(), self._T)

    def _moves(self):
        """T h (P, M): the change of the mean, in coordinates in which the old q is standard."""
        return kernels.multiply_triangular(self._T, self._h[..., None])[..., 0]

    def posterior(self, r, lambda2):
        """Return q(u) with the sites last given, in the parameters of the old one."""
        q, prior = self._q, self._prior
        if isinstance(q, DualTying):
            t, A = state_of(q, prior)
            t, A = t.reshape(self._mean.shape).copy(), A.reshape(self._tril.shape).copy()
            lambda1 = r + lambda2 * self._start
            t += kernels.matmul(lambda1, self._Lam, transpose_b=True)
            for one, precision in zip(A, lambda2, strict=True):
                kernels.weighted_gram(self._Lam, precision, out=one, add=True)
            A = kernels.symmetrise(A).reshape(q.lambda2.shape)
            return from_state(type(q), prior.L, t.reshape(q.lambda1.shape), A)
        steps = kernels.multiply_triangular(self._tril, self._moves()[..., None])
        mean = self._mean + steps[..., 0]
        tril = kernels.tril_multiply(self._tril, self._T, lower=True).reshape(q.scale_tril.shape)
        return q.unwhiten(prior.L, mean.reshape(q.mean.shape), kernels.tril(tril))


class NewRows(LayerProtocol):
    """The functions that a likelihood reads at new rows, for a ``sweep``; formulas as above."""

    def __init__(self, layers, axes, mean, X, jitter):
        self.parts = [Entering(layer, X, jitter) for layer in layers]
        self._axes, self._mean = axes, 0 if mean is None else mean(X)
        J = sum(part.count for part in self.parts)
        self.r, self.lambda2 = np.zeros((2, J, len(X)), X.dtype, like=X)
        self._read()

    def _read(self):
        parts = zip(*(part.marginals() for part in self.parts), strict=True)
        mean, var, self.shift = (np.concatenate(arrays) for arrays in parts)
        shape = *self._axes, mean.shape[-1]
        self.f = Marginals(mean.reshape(shape) + self._mean, var.reshape(shape))

    @property
    def sizes(self):
        return [(part.num_inducing, 1) for part in self.parts]

    def _split(self, r, lambda2):
        first = 0
        for part in self.parts:
            rows = slice(first, first + part.count)
            yield part, r[rows], lambda2[rows]
            first += part.count

    def give_sites(self, r, lambda2, read=True):
        for part, *sites in self._split(r, lambda2):
            part.give_sites(*sites)
        self.r, self.lambda2 = r, lambda2
        if read:
            self._read()

    def forward(self, X, rows=slice(None)):
        parts = (np.ascontiguousarray(f[..., rows], like=f) for f in (self.f.mean, self.f.var))
        return Marginals(*parts), None

    def kl(self):
        return sum(part.kl() for part in self.parts)

    def posteriors(self):
        return [part.posterior(*sites) for part, *sites in self._split(self.r, self.lambda2)]


def posteriors_after(name, model, layers, axes, mean, batch, jitter):
    """Return q(u) of each layer after a ``Batch`` of new rows.

    layers : records with covariance, inducing inputs, posterior and mean
    axes : leading axes of the functions that the likelihood reads
    mean : a mean function on top of those of the layers, or None
    """
    rows = NewRows(layers, axes, mean, batch.X, jitter)
    value, target = _evaluate(model, rows, batch)
    if model.likelihood.linear_in_var:
        rows.give_sites(*target, read=False)
    else:
        _ascend(name, model, rows, batch, value, target)
    return rows.posteriors()


def _evaluate(model, rows, batch):
    """Return E log p - KL at the sites of the rows, and the sites of a unit step."""
    value, a, b = 0.0, [], []
    for chunk in sweep(model, rows, batch):
        value = value + chunk.ell
        a.append(chunk.f_bar.mean)
        b.append(chunk.f_bar.var)
    a, lambda2 = (np.concatenate(part, -1).reshape(rows.r.shape) for part in (a, b))
    lambda2 = -2 * lambda2
    return check.result(value - rows.kl(), model), (a + lambda2 * rows.shift, lambda2)


def _ascend(name, model, rows, batch, value, target):
    """Take E-steps until the sites stay."""
    eps = np.finfo(rows.r.dtype).eps
    size, tolerance = 1.0, eps ** (2 / 3)
    rounding = 10 * eps * sum(part.count * part.num_inducing for part in rows.parts)  # of the KL
    for _ in range(MAX_STEPS):
        before = rows.r, rows.lambda2
        changes = [new - old for new, old in zip(target, before, strict=True)]
        if all(
            float(abs(change).max()) <= tolerance * float(abs(new).max())
            for change, new in zip(changes, target, strict=True)
        ):
            return
        size = min(2 * size, 0.5 if (target[1] < 0).any() else 1.0)
        for _ in range(MAX_HALVINGS):
            try:
                rows.give_sites(*(b + size * c for b, c in zip(before, changes, strict=True)))
                reached, found = _evaluate(model, rows, batch)
            except NotPositiveDefinite:
                reached = -np.inf
            if reached >= value - 10 * eps * abs(value) - rounding:
                break
            size /= 2
        else:  # no step ascends any more: rounding
            rows.give_sites(*before)
            return
        value, target = reached, found
    warn(
        f"{name}: the sites of the new rows still move after {MAX_STEPS} steps; the model holds the"
        " last ones. Give fewer rows in a call",
        RuntimeWarning,
    )


def refuse_posterior(name, q):
    """Raise ``TypeError`` if q(u) cannot hold what new rows add to its covariance."""
    if isinstance(q, PredictiveWeights):
        raise TypeError(f"{name}: a predictor only predicts; give the model that it was made of")
    if not isinstance(q, GaussianFactor | DualTying):
        raise TypeError(
            f"{name}: a {type(q).__name__} posterior cannot hold sites of new rows; it must be"
            " Whitened, Marginal, AbsorbedDualSites or DualSites: try fs.posteriors.convert"
        )


def read_arguments(model, X, Y, weights, jitter):
    """Check and cast the arguments: ``(model, batch, jitter)``."""
    checked = kind_of(model).checked
    model, X, Y, weights, dtype = weighing.svgp(model, X, Y, weights, checked)
    return model, Batch(X, Y, rng=0, weights=weights), check.jitter_amount(jitter, dtype)
