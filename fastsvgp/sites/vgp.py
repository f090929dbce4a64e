"""VGP without inducing variables: q(f) is the prior times a site per datum (t-VGP, section 3).

With K = K_ff, Lambda = diag(lambda_2), S = (K^-1 + Lambda)^-1 and T = K^-1 S = (I + Lambda K)^-1,

    w = T lambda_1,    q(f) = N(K w, S)
    KL = 1/2 (log |I + K Lambda| - sum_i lambda_2i S_ii + w' K w)

K is never inverted and needs no jitter. The non-negative sites, r = sqrt(max(lambda_2, 0)), enter
first,

    B = I + r K r = C C',    U = C^-1 r K,    V = C^-1 r
    S_+ = K - U' U,    T_+ = I - V' U,    D_+ = V' V = (K + 1 / r^2)^-1

(the eigenvalues of B are at least 1). The negative sites, s = sqrt(-lambda_2) at their rows, follow
as a downdate,

    B_- = I - s S_+ s = C_- C_-',    U_- = C_-^-1 s S_+,    E = T_+ s C_-^-T
    S = S_+ + U_-' U_-,    T = T_+ + E U_-,    D = D_+ - E E',    |I + K Lambda| = |B| |B_-|

and the sites are valid exactly if B_- is positive definite. w = T_+ x with x = T_- lambda_1 =
lambda_1 + s C_-^-T U_- lambda_1. The form r B^-1 (x / r) avoids the cancellation of large numbers;
the entries x_0 of x at r = 0 are multiplied by K:

    T_+ x = x_0 + r B^-1 (x_+ / r - r K x_0)

Rounding: each B_ii = 1 + lambda_2i K_ii has a relative error of up to eps, and B^-1 is at most I.
So log |B| has an error of up to about eps tr(r K r): in float32, 1000 data and noise 1e-3, 0.1
nats. If that exceeds ``ROUNDING``, K and all that depends on it are computed in float64; marginals
and gradients are still returned in the model's dtype.

Reverse, a and b the cotangents of mean and variance of the data term: the bound is log Z + c
(``site_svgp``), where

    dlog Z / dK = 1/2 (w w' - D),    dS = T' dK T,    d mean = T' dK w
    a' = dc / d mean = a - lambda_1 + lambda_2 mean,    b' = dc / d var = b + lambda_2 / 2
    K_bar = 1/2 (w w' - D) + sym(T a' w') + T diag(b') T'

The sites enter only through q in c, the rest cancels: dS = -S dLambda S, d mean = S (d lambda_1 -
dLambda mean),

    lambda_1_bar = S a',    lambda_2_bar = -mean S a' - (S o S) b'

Source: Adam et al. 2021, section 3 and equations 16, 17; Rasmussen and Williams 2006, section
3.4.3, for B.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels, models
from ..bounds.convert import check_kind, convert
from ..bounds.protocol import ALL, LayerProtocol
from ..bounds.relay import Batch, sweep
from ..bounds.svgp import SVGP
from ..covariances import Covariance
from ..errors import InvalidSites, NotPositiveDefinite
from ..likelihoods import Likelihood
from ..means import Mean
from ..posteriors import AbsorbedDualSites
from ..posteriors.base import add_to_diagonals, raise_to_floor
from ..posteriors.pseudo_targets import add_symmetric_outer
from ..records import Marginals, plus, record, replace, restricted, tree_map
from .dual import Sites
from .site_pass import INVALID, finite_sums
from .site_svgp import check_site_model, predictor_of_sites, terms

ROUNDING = 1e-3  # nats


@record
class VGP:
    """A Gaussian process over all data with a site per datum: no inducing inputs, N^3 flops.

    In float32, strong sites (eps sum lambda2 k(x, x) > 1e-3) are computed in float64, at twice the
    time and memory.

    Parameters
    ----------
    covariance : Covariance
    sites : Sites
        ``lambda1``, ``lambda2`` (N,), or (P, N) for P outputs, in the order of the rows of X. Zeros
        are the prior.
    likelihood : Likelihood
    mean : Mean, optional

    Examples
    --------
    >>> full = fs.sites.VGP(covariance, fs.sites.Sites(Y / 0.1, np.full(40, 10.0)), gaussian)
    >>> round(fs.sites.bound(full, X, Y), 2)
    -4.39
    """

    covariance: Covariance
    sites: Sites
    likelihood: Likelihood
    mean: Mean | None = None


def bound(model, X, Y, *, jitter=None, rng=None):
    """Compute the bound of a ``VGP``: 4/3 N^3 flops per output; ``jitter`` is not used."""
    model, X, Y, _ = check_site_model(model, X, Y, jitter)
    full = DataSites(model, X)
    return check.result(
        sum(chunk.ell for chunk in sweep(model, full.layer(), Batch(X, Y, rng=rng), need=False))
        - full.kl(),
        model,
    )


def bound_terms(model, X, Y, *, jitter=None, rng=None):
    """Split the bound of a ``VGP`` into ``log_Z + c``."""
    model, X, Y, _ = check_site_model(model, X, Y, jitter)
    full = DataSites(model, X)
    data = sum(chunk.ell for chunk in sweep(model, full.layer(), Batch(X, Y, rng=rng), need=False))
    return terms(model, data, full.kl(), full.means, full.ws, full.trace())


def bound_and_grad(model, X, Y, *, jitter=None, rng=None, wrt=None):
    """Compute bound and gradient of a ``VGP``, with some (N, N) arrays.

    4 N^3 flops per output, and N^3 for the gradient in the sites; some more for negative sites.
    """
    model, X, Y, _ = check_site_model(model, X, Y, jitter)
    wrt = check.names(wrt, model)
    roots = {name.partition(".")[0] for name in wrt}
    full, data, bars, likelihood_bar = DataSites(model, X), 0.0, [], None
    for chunk in sweep(model, full.layer(), Batch(X, Y, rng=rng)):
        data += chunk.ell
        likelihood_bar = plus(chunk.likelihood_bar, likelihood_bar)
        bars.append(chunk.f_bar)
    f_bar = Marginals(
        *(np.concatenate([getattr(bar, name) for bar in bars], -1) for name in ("mean", "var"))
    )
    covariance_bar = sites_bar = mean_bar = None
    if "mean" in roots and model.mean is not None:
        mean_bar, _ = model.mean.vjp(f_bar.mean, X, ("mean",))
    if roots & {"covariance", "sites"}:
        K_bar, sites_bar = full.pull(f_bar, "covariance" in roots, "sites" in roots)
        if K_bar is not None:
            of_covariance = tuple(name for name in wrt if name.partition(".")[0] == "covariance")
            covariance_bar = full.covariance_bar(K_bar, of_covariance)
    value = check.result(data - full.kl(), model)
    return value, restricted(VGP(covariance_bar, sites_bar, likelihood_bar, mean_bar), wrt)


def tie_sites(model, X, *, to=AbsorbedDualSites, jitter=None):
    """Create the SVGP of a ``VGP``, with inducing inputs X."""
    check_kind("tie_sites: `to`", to)
    model, X, _, _ = check_site_model(model, X, check.ABSENT, jitter)
    sites = model.sites
    lambda2 = np.zeros((*sites.lambda2.shape, len(X)), X.dtype, like=X)
    lambda2.reshape(-1, len(X) ** 2)[:, :: len(X) + 1] = sites.lambda2.reshape(-1, len(X))
    svgp = SVGP(
        model.covariance,
        X.copy(),
        AbsorbedDualSites(sites.lambda1.copy(), lambda2),
        model.likelihood,
        model.mean,
    )
    finite_sums(svgp.posterior)
    return svgp if to is AbsorbedDualSites else convert(svgp, to, jitter=jitter)


class Downdate(NamedTuple):
    """The downdate by the negative sites of one output: their rows, s, C_- and U_-."""

    rows: Any
    s: Any
    C: Any
    U: Any


class DataSites:
    """q(f) of a checked ``VGP``, in the dtype that its sites need.

    K : (N, N); ws, means, vars : (P, N), without the mean function; clamped : as in ``Pass``
    """

    def __init__(self, model, X, jitter=None, K=None):
        self.model, self._X, N = model, X, len(X)
        strength = np.maximum(model.sites.lambda2, 0).astype(float) * (
            model.covariance.kff(X) if K is None else K.diagonal()
        )
        self._dtype = (
            np.dtype(float) if np.finfo(X.dtype).eps * float(strength.sum()) > ROUNDING else X.dtype
        )
        self._covariance = (
            model.covariance if self._dtype == X.dtype else _cast(model.covariance, self._dtype)
        )
        same = K is not None and K.dtype == self._dtype
        self.K = K if same else self._covariance.Kff(X.astype(self._dtype, copy=False))
        sites = model.sites.lambda1, model.sites.lambda2
        self._first, self._second = (
            a.reshape(-1, N).astype(self._dtype, copy=False) for a in sites
        )
        self._roots = np.sqrt(np.maximum(self._second, 0))
        self._Cs, self._Us, self._downdates = [], [], []
        self.ws, self.means, self.vars = (np.empty_like(self._first) for _ in range(3))
        for p in range(len(self._first)):
            self._output(p)
        self.clamped = raise_to_floor(self.vars, self.K.diagonal())

    def _output(self, p):
        K, r = self.K, self._roots[p]
        try:
            C = kernels.cholesky(add_to_diagonals(K * r * r[:, None], 1), overwrite_a=True)
        except NotPositiveDefinite as error:
            raise InvalidSites(
                f"`sites.lambda2` up to {float(self._second[p].max()):.2g} is too strong for"
                f" {K.dtype}: I + r K r, r its root, is not positive definite there; use a"
                " covariance and sites of a smaller scale"
            ) from error
        U = kernels.solve_triangular(C, r[:, None] * K, overwrite_b=True)
        x, var, down = self._first[p].copy(), K.diagonal() - np.sum(np.square(U), axis=0), None
        rows = np.argwhere(self._second[p] < 0)[:, 0]
        if len(rows):
            s = np.sqrt(-self._second[p][rows])
            S_plus = np.ascontiguousarray(K[rows], like=K) - kernels.matmul(
                U[:, rows], U, transpose_a=True
            )
            try:
                inner = np.ascontiguousarray(S_plus[:, rows], like=K) * -s * s[:, None]
                C_minus = kernels.cholesky(add_to_diagonals(inner, 1), overwrite_a=True)
            except NotPositiveDefinite as error:
                raise InvalidSites(INVALID) from error
            U_minus = kernels.solve_triangular(C_minus, s[:, None] * S_plus, overwrite_b=True)
            var += np.sum(np.square(U_minus), axis=0)
            x[rows] += s * _vector(
                kernels.solve_triangular, C_minus, _product(U_minus, self._first[p]), True
            )
            down = Downdate(rows, s, C_minus, U_minus)
        self.ws[p] = self._T_plus(r, C, x)
        self.means[p], self.vars[p] = _product(self.K, self.ws[p]), var
        self._Cs.append(C)
        self._Us.append(U)
        self._downdates.append(down)

    def _T_plus(self, r, C, x):
        """Return T_+ x."""
        positive = r > 0
        inner = np.where(positive, x, 0) / np.where(positive, r, 1) - r * _product(
            self.K, np.where(positive, 0, x)
        )
        return np.where(positive, 0, x) + r * _vector(
            kernels.solve_triangular, C, _vector(kernels.solve_triangular, C, inner), True
        )

    def path_weights(self, values, normal):
        """Draw the weights v (P, N, S) of f = f0 + k(x, X) v, for prior values f0 (P, N, S) at X.

        Positive sites are observations lambda_1 / lambda_2 with noise 1 / lambda_2, so v = (K + 1 /
        r^2)^-1 (lambda_1 / r^2 - f0 - h / r) = r B^-1 (lambda_1 / r - r f0 - h), h standard normal.
        Otherwise as ``Posterior.path_weights``.
        """
        roots = self._roots[..., None]
        v = self._first[..., None] / roots - roots * values - normal(*values.shape)
        for p, C in enumerate(self._Cs):
            half = kernels.solve_triangular(C, v[p])
            v[p] = kernels.solve_triangular(C, half, transpose=True, overwrite_b=True)
        return (roots * v).astype(values.dtype, copy=False)

    def layer(self, rows=slice(None)):
        """Return a layer pass for ``sweep`` at some rows."""
        return _AtRows(self, rows)

    def update(self, rows, sites):
        """Return the same with other sites; ``rows`` is not used."""
        return DataSites(replace(self.model, sites=sites), self._X, K=self.K)

    def log_det(self):
        """Return log |I + K Lambda|, summed over outputs."""
        factors = [*self._Cs, *(down.C for down in self._downdates if down is not None)]
        return sum(2 * np.log(C.diagonal(), dtype=float).sum() for C in factors)

    def trace(self):
        """Return sum_i lambda_2i S_ii, summed over outputs."""
        return np.sum(self._second * self.vars, dtype=float)

    def kl(self):
        return 0.5 * (self.log_det() - self.trace() + np.sum(self.ws * self.means, dtype=float))

    def covariance_bar(self, K_bar, need):
        """Pull K_bar back to the covariance function."""
        bar, _, _ = self._covariance.Kff_vjp(
            K_bar, self.K, self._X.astype(self._dtype, copy=False), None, need
        )
        return _cast(bar, self._X.dtype)

    def pull(self, f_bar, need_K, need_sites):
        """Return ``(K_bar, Sites of cotangents)``, KL included; None if not needed."""
        K_bar, N, firsts, seconds = None, len(self.K), [], []
        for p, (mean, w, second) in enumerate(zip(self.means, self.ws, self._second, strict=True)):
            a = f_bar.mean.reshape(-1, N)[p] - self._first[p] + second * mean
            b = f_bar.var.reshape(-1, N)[p] + 0.5 * second
            if need_sites:
                S = self.K - kernels.matmul(self._Us[p], self._Us[p], transpose_a=True)
                if self._downdates[p] is not None:
                    S += kernels.matmul(
                        self._downdates[p].U, self._downdates[p].U, transpose_a=True
                    )
                firsts.append(_product(S, a))
                seconds.append(-mean * firsts[-1] - _product(np.square(S), b))
            if need_K:
                bar = self._K_bar(p, a, b, w)
                K_bar = bar if p == 0 else np.add(K_bar, bar, out=K_bar)
        shape, dtype = self.model.sites.lambda1.shape, self._X.dtype
        stacks = (
            np.stack(bars).reshape(shape).astype(dtype, copy=False)
            for bars in (firsts, seconds)
            if need_sites
        )
        return K_bar, Sites(*stacks) if need_sites else None

    def _K_bar(self, p, a, b, w):
        r, C, down = self._roots[p], self._Cs[p], self._downdates[p]
        inverse = kernels.inverse_triangular(C)
        T = kernels.multiply_triangular(inverse, self._Us[p], transpose=True)  # r^-1 V' U
        T *= -r[:, None]
        add_to_diagonals(T, 1)
        D = kernels.cholesky_inverse(C)
        D *= r * r[:, None]
        if down is not None:
            columns = np.ascontiguousarray((T[:, down.rows] * down.s).T, like=T)
            E = kernels.solve_triangular(down.C, columns, overwrite_b=True)  # transposed
            T += kernels.matmul(E, down.U, transpose_a=True)
            D -= kernels.matmul(E, E, transpose_a=True)
        v = _product(T, a)
        bar = kernels.symmetrise(
            add_symmetric_outer(kernels.weighted_gram(T, b), (v + 0.5 * w)[None], w[None])
        )
        D *= 0.5
        bar -= D
        return bar


class _AtRows(LayerProtocol):
    """A layer pass that returns known marginals."""

    def __init__(self, work, rows):
        self._model, self.kl = work.model, work.kl
        self.num_inducing, self.clamped = len(work.K), work.clamped
        dtype = work.model.sites.lambda1.dtype
        self._means, self._vars = (
            np.ascontiguousarray(a[:, rows], dtype, like=a) for a in (work.means, work.vars)
        )

    def forward(self, X, rows=ALL):
        model = self._model
        mean, var = (
            a[:, rows].reshape(*model.sites.lambda1.shape[:-1], -1)
            for a in (self._means, self._vars)
        )
        return Marginals(mean if model.mean is None else mean + model.mean(X), var), None


def _cast(tree, dtype):
    return tree_map(lambda leaf: leaf.astype(dtype, copy=False), tree)


def _product(A, vector):
    return kernels.matmul(A, vector[:, None])[:, 0]


def _vector(product, L, vector, transpose=False):
    return product(L, vector[:, None], transpose=transpose)[:, 0]


models.register(
    VGP,
    instead=(
        "em trains it, sites.bound is its bound, and sites.tie_sites(model, X) makes an SVGP of it"
        " to predict with"
    ),
    tie_sites=tie_sites,
    predictor=predictor_of_sites,
    **{
        "sites.bound": bound,
        "sites.bound_and_grad": bound_and_grad,
        "sites.bound_terms": bound_terms,
    },
)
