"""The streaming bound of a q(u) that is trained: any likelihood, and several functions.

With the old q(v) as in ``streaming``, its prior times exp(t'v - v'A v / 2 - n(t, I + A)), and the
q(u) of the new model, which is not integrated out,

    bound = sum weights E log p(y | f) - KL[q(u) || p(u)]
            + E[t'v - v'A v / 2] - n(t, I + A),    v = L0^-1 (f(Z0) - mean0(Z0))

A = E diag(e) E' turns the last expectation into one of M independent rows: g = E'v, with the means
m and variances s that q(u) gives to linear functionals of f, as to rows of data:

    W = E'L0^-1    Kuf = K(Z, Z0) W'    kff = diag(W K(Z0, Z0) W')    m += W (mean - mean0)(Z0)
    E[t'v - v'A v / 2] = sum (E't) m - e (m^2 + s) / 2
    m_bar = E't - e m,    s_bar = -e / 2

The posterior's pass has the reverse rule of these rows. Then

    K(Z, Z0)_bar = Kuf_bar W,    K(Z0, Z0)_bar = W' diag(kff_bar) W,    mean(Z0)_bar = W'm_bar

Each output has t, A of its own, and so rows of its own; the cotangents of the others are zero
there. The latent functions of a ``MultiGP`` are independent, and each adds its term.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..bounds.from_blocks import GivenBlocks
from ..bounds.layer_pass import LayerBars, LayerParts, LayerPass
from ..bounds.objectives import elbo, elbo_and_grad
from ..bounds.protocol import kind_of
from ..latents.model import MultiGP, layers_of
from ..likelihoods.base import total
from ..posteriors.base import add_to_diagonals
from ..records import Blocks, Marginals, plus, replace, restricted
from ..records.inducing_sets import stack_sets
from .new_rows import refuse_posterior
from .reproject import check_inputs_as_inducing, functions_of, kept, log_constant, site_of

NAME = "streaming_bound_and_grad"


def bound_and_grad(old, new, X, Y, *, weights=None, jitter=None, wrt=None):
    """Return the bound and its gradient; ``old`` and ``new`` are SVGP, or MultiGP."""
    options = {"weights": weights, "jitter": jitter, "rng": 0}  # of likelihoods that sample
    pairs, jitter = _pairs(old, new, jitter)
    wrt = check.names(wrt, new)
    if not wrt:
        value = elbo(new, X, Y, **options)
        value += sum(OldRows(*pair, jitter).value for pair in pairs)
        return check.result(value, new), restricted(new, ())
    value, grad = elbo_and_grad(new, X, Y, **options)
    terms = [OldRows(*pair, jitter) for pair in pairs]
    value += sum(term.value for term in terms)
    bars = [term.gradient() for term in terms]
    if not isinstance(new, MultiGP):
        return check.result(value, new), restricted(_added(grad, bars[0]), wrt)
    shared, latents = grad.inducing, []
    for layer, of_bound, bar in zip(new.latents, grad.latents, bars, strict=True):
        if layer.inducing is None:
            shared, bar = plus(bar.inducing, shared), bar._replace(inducing=None)
        latents.append(_added(of_bound, bar))
    grad = replace(grad, latents=tuple(latents), inducing=shared)
    return check.result(value, new), restricted(grad, wrt)


def _added(grad, bars):
    """Add ``LayerBars`` to the gradient of a layer."""
    fields = bars._asdict().items()
    return replace(grad, **{name: plus(bar, getattr(grad, name)) for name, bar in fields})


def _pairs(old, new, jitter):
    """Check the models; return the old and the new layer of each latent function, and jitter."""
    if type(new) is not type(old):
        kinds = "a MultiGP" if isinstance(old, MultiGP) else "an SGPR or SVGP"
        raise TypeError(f"{NAME}: `new` must be {kinds}, as `old` is, got {type(new).__name__}")
    checked: list[Any] = [kind_of(model).checked(model) for model in (old, new)]
    (old, *_, before), (new, *_, dtype) = checked
    if before != dtype:
        raise TypeError(f"{NAME}: `old` is in {before}, the rest in {dtype}; give one dtype")
    layers = [layers_of(one) if isinstance(one, MultiGP) else (one,) for one in (old, new)]
    counts = [[layer.posterior.check_size(*_sizes(layer)) for layer in found] for found in layers]
    if counts[0] != counts[1]:
        raise ValueError(
            f"{NAME}: `new` has posteriors of other leading axes than `old`, {counts[1]} and"
            f" {counts[0]}; give it as many latent functions"
        )
    for pair in zip(*layers, strict=True):
        for layer in pair:
            refuse_posterior(NAME, layer.posterior)
            check_inputs_as_inducing(NAME, layer.covariance, layer.inducing)
    return list(zip(*layers, strict=True)), check.jitter_amount(jitter, dtype)


def _sizes(layer):
    return layer.covariance.num_inducing(layer.inducing)


class OldRows:
    """The term of the old q(u) of a layer; names as above."""

    def __init__(self, old, new, jitter):
        from scipy.linalg import eigh

        self.new, self.Z0 = new, stack_sets(old.inducing)
        t, A, prior = site_of(old, jitter)
        sites, M = functions_of(t, A), len(self.Z0)
        real = self.Z0.dtype.type
        e, E = zip(*(eigh(A) for _, A in sites), strict=True)
        W = [kernels.solve_triangular(prior.L, np.ascontiguousarray(V), transpose=True) for V in E]
        self.W = np.ascontiguousarray(np.concatenate(W, axis=1).T)
        self.blocks = new.covariance.blocks(new.inducing, self.Z0)
        Kuf = self.blocks.Kuf + kept(new.inducing, self.Z0) * real(jitter)
        K = add_to_diagonals(new.covariance.Kuu(self.Z0), real(jitter))
        kff = (kernels.matmul(self.W, K) * self.W).sum(axis=1)
        self.given = GivenBlocks(
            Blocks(self.blocks.Kuu, kernels.matmul(Kuf, self.W, transpose_b=True), kff)
        )
        parts = LayerParts(self.given, new.posterior)
        self.work = LayerPass(parts, jitter, len(self.W), ("covariance", "posterior"))
        f, self.rows = self.work.forward(None)
        self.axes = f.mean.shape[:-1]
        of_mean = np.zeros((*self.axes, M), self.Z0.dtype)
        for mean, sign in ((new.mean, 1), (old.mean, -1)):
            if mean is not None:
                of_mean = of_mean + sign * mean(self.Z0)
        m = f.mean.reshape(len(sites), -1) + kernels.matmul(
            of_mean.reshape(len(sites), M), self.W, transpose_b=True
        )
        s = f.var.reshape(len(sites), -1)
        self.m_bar, self.s_bar, self.value = np.zeros_like(m), np.zeros_like(s), 0.0
        for p, ((t, A), slopes, V) in enumerate(zip(sites, e, E, strict=True)):
            own = slice(p * M, (p + 1) * M)
            at, scale = m[p, own], kernels.matmul(V, t[:, None], transpose_a=True)[:, 0]
            self.value += total(scale * at - 0.5 * slopes * (np.square(at) + s[p, own]))
            self.value -= log_constant(t, add_to_diagonals(A.copy(), 1))[0]
            self.m_bar[p, own], self.s_bar[p, own] = scale - slopes * at, -0.5 * slopes

    def gradient(self):
        """Return the ``LayerBars`` of the term."""
        new, Z0, W, need = self.new, self.Z0, self.W, ("covariance", "inducing")
        shape, mean_bar = (*self.axes, -1), None
        f_bar = Marginals(self.m_bar.reshape(shape), self.s_bar.reshape(shape))
        self.work.pull(self.rows, f_bar)
        posterior_bar, bars = self.work.finish(0.0).posterior, self.given.bars
        Kuf_bar = kernels.matmul(bars["Kuf"], W)
        K_bar = kernels.matmul(W, bars["kff"][:, None] * W, transpose_a=True)
        found = Blocks(bars["Kuu"], Kuf_bar, np.zeros_like(self.blocks.kff))
        covariance_bar, inducing_bar, _ = new.covariance.blocks_vjp(
            found, self.blocks, new.inducing, Z0, need
        )
        at_Z0, _, _ = new.covariance.Kuu_vjp(K_bar, None, Z0, None, ("covariance",))
        if new.mean is not None:
            at_rows = kernels.matmul(self.m_bar, W).reshape(shape)
            mean_bar, _ = new.mean.vjp(at_rows, Z0, ("mean",))
        return LayerBars(plus(at_Z0, covariance_bar), inducing_bar, posterior_bar, mean_bar)
