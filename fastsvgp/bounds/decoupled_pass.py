"""The pass of ``DecoupledWeights``: ``Whitened`` on Z, and a mean with one weight per row of O.

No M2 x M2 matrix is formed. With w the weights, r = K_uv w, h = Kuu^-1 r (jitter in Kuu and K_vv),
and ' the transpose, C_fv w = K_fv w - K_fu h, so

    f   = that of ``Whitened`` on Z  +  K_fv w - K_fu h
    KL  = that of ``Whitened`` on Z  +  (w' K_vv w - r' h) / 2    (w' C_vv w = w' K_vv w - r' h)

With sampled rows J of O the form w' C_vv w is estimated from these rows of C_vv = K_vv - K_vu
Kuu^-1 K_uv,

    sum over j of rho_j w_j (C_vv w)_j = y' K_vv w - s' h,    y = rho * w,    s = K_uv y

where rho_j is M2 / S times the multiplicity of j in J. rho has expectation 1, so that the estimate
and its gradients are unbiased. Rows of K_vv alone, with r' h subtracted exactly, are unbiased too,
but vary far more, because C_vv is what Z leaves of K_vv: with 64 + 506 inputs of kin40k, S = 64 and
trained hyperparameters, the standard deviation of the value is 227 with rows of C_vv and 8,710 with
rows of K_vv, and that of w_bar (rms) is 3.2 and 76; sampling the batch adds 7.9. In the exact form
y = w and s = r.

This is a ``ShiftedPass`` on Z with x = -r and y = s, plus terms of O. Reverse, with a the
cotangents of the mean, kappa that of the KL, and x_bar = -r_bar, y_bar = s_bar of that pass

    w_bar    = K_vf a + K_vu r_bar + rho * (K_vu s_bar) + that of kappa y' K_vv w / 2
    K_vf_bar = w a',    K_uv_bar = r_bar w' + s_bar y'

each summed over the outputs that share the array. The form y' K_vv w is computed in pieces (rows R,
columns C of K_vv, weights rho of the rows and d of the columns):

    y' K_vv w = sum over pieces of (rho w_R)' K_RC (d w_C)

Exact form: R is a run of rows, C all rows from its beginning, rho = 1, d = 1 within the run and 2
beyond. Estimate: one piece with R the distinct rows of J, all columns, d = 1. Its gradients

    K_RC_bar = kappa / 2 (rho w_R) (d w_C)'
    w_R_bar  = kappa / 2 rho K_RC (d w_C),    w_C_bar = kappa / 2 d K_RC' (rho w_R)

are those of the estimate. Source: Salimbeni et al. 2018; Shi et al. 2020, sections 3.1, 5.2.
"""

from typing import Any

import numpy as np

from .. import kernels
from ..likelihoods.base import total
from ..posteriors import Whitened
from ..posteriors.base import cached_attribute, solve_vectors
from ..posteriors.decoupled import ShiftedPass
from ..records import Marginals, leaf, plus, private_record, replace
from ..records.inducing_sets import InducingSets, sets_of
from ..runtime import tuning
from .layer_pass import KL, LayerBars, LayerParts, LayerPass
from .protocol import ALL


class DecoupledLayerPass(LayerPass):
    """A ``LayerPass`` of a layer with ``DecoupledWeights``: that of ``Whitened`` on Z, shifted.

    sampled : (S,) row numbers of O on the host to estimate w' C_vv w from; None: exact
    """

    def __init__(self, layer, jitter, columns=0, need=(), sampled=None):
        q, covariance, pair = layer.posterior, layer.covariance, layer.inducing
        (Z, O), roots = sets_of(pair), {name.partition(".")[0] for name in need}  # noqa: E741
        on_Z = LayerParts(covariance, Whitened(q.mean_u, q.scale_tril_u), _OnlyZ(Z), layer.mean)
        super().__init__(on_Z, jitter, columns, _need_on_Z(need))
        self._q, self._pair, self._O, self._jitter = q, pair, O, jitter
        self.num_inducing, self._w = len(Z) + len(O), q.weights_v.reshape(-1, len(O))
        fields = tuple(name for name in need if name.startswith("covariance"))
        of_inducing = ("inducing",) * ("inducing" in roots)
        self._of_K = fields + of_inducing + ("other",) * len(of_inducing)
        self._of_Kvf = fields + of_inducing + ("X",) * ("inputs" in need)
        self._of_w = "posterior" in need or "posterior.weights_v" in need
        self._w_bar, self._K_bar, self._O_bar = np.zeros_like(self._w), None, None
        self._pieces, rho = _runs(self._w) if sampled is None else _sample(self._w, sampled)
        # r = K_uv w and s = K_uv y
        self._rho, self._kept = rho, None
        stack = self._w if rho is None else np.concatenate([self._w, rho * self._w])
        r, self._Kvu_back = _bilinear(covariance.Kuu, covariance.Kuu_vjp, O, Z, stack)
        P, L = len(self._w), self.work.L
        half = solve_vectors(L, r)
        self.work = ShiftedPass(self.work, L, -half[:P], half[-P:])

    def _Kvf(self, X):
        covariance = self.layer.covariance
        return _bilinear(covariance.Kuf, covariance.Kuf_vjp, self._O, X, self._w)

    def forward(self, X, rows=ALL):
        f, of_Z = super().forward(X)
        of_O, back = self._Kvf(X)
        return Marginals(f.mean + of_O.reshape(f.mean.shape), f.var), (of_Z, back)

    def means(self, X, rows=ALL):
        f = super().means(X)
        return f + self._Kvf(X)[0].reshape(f.shape)

    @cached_attribute
    def _mean_weights(self):
        v = super()._mean_weights
        return v + self.work.e.reshape(v.shape)

    def joint(self, X):
        f = super().joint(X)
        return f._replace(mean=f.mean + self._Kvf(X)[0].reshape(f.mean.shape))

    def pull(self, rows, f_bar):
        of_Z, back = rows
        bars = back(f_bar.mean.reshape(len(self._w), -1), self._of_Kvf, self._of_w)
        return plus(self._add_bars(*bars), super().pull(of_Z, f_bar))

    def kl(self):
        value = 0.0
        for R, C, rho, d in self._pieces:
            w_R, K = self._w[:, R], self._Kvv(R, C, d)
            value += total(rho * w_R * (K[0] + self._jitter * w_R))
            self._kept = K if len(self._pieces) == 1 else None
        return super().kl() + 0.5 * value

    def _Kvv(self, R, C, d):
        """K_CR, for the form y' K_vv w."""
        covariance = self.layer.covariance
        x, w = self._O[R], d * self._w[:, C]
        return _bilinear(covariance.Kuu, covariance.Kuu_vjp, self._O[C], x, w)

    def finish(self, kl_bar):
        shifted, of_Z = self.work, super().finish(kl_bar)
        self._K_bar = plus(of_Z.covariance, self._K_bar)
        r_bar, s_bar, rho = -shifted.x_bar, shifted.y_bar, self._rho
        both = r_bar + s_bar if rho is None else np.concatenate([r_bar, s_bar])
        w_bar, *bars = self._Kvu_back(both, self._of_K, self._of_w)
        if rho is not None and self._of_w:
            w_bar = w_bar[: len(r_bar)] + rho * w_bar[len(r_bar) :]
        Z_bar = self._add_bars(w_bar, *bars)
        if kl_bar and (self._of_K or self._of_w):
            self._pull_form(kl_bar)
        q, of_u, inducing_bar = self._q, of_Z.posterior, None
        if self._O_bar is not None:
            Z_bar = Z_bar + sets_of(of_Z.inducing)[0]
            inducing_bar = type(self._pair)(Z_bar, self._O_bar)
        w_bar = self._w_bar.reshape(q.weights_v.shape) if self._of_w else None
        q_bar = type(q)(of_u.mean, of_u.scale_tril, w_bar)
        return LayerBars(self._K_bar, inducing_bar, q_bar, of_Z.mean)

    def _pull_form(self, kl_bar):
        """Add the cotangents of y' K_vv w for kl_bar / 2."""
        for R, C, rho, d in self._pieces:
            w_R, (products, back) = self._w[:, R], self._kept or self._Kvv(R, C, d)
            of_w, of_K, C_bar, R_bar = back(0.5 * kl_bar * rho * w_R, self._of_K, True)
            self._w_bar[:, R] += kl_bar * rho * (0.5 * products + self._jitter * w_R)
            self._w_bar[:, C] += d * of_w
            self._K_bar = plus(of_K, self._K_bar)
            if self._O_bar is not None:
                self._O_bar[R] += R_bar
                self._O_bar[C] += C_bar
        self._kept = None

    def natural_step(self, step_size):
        """Take a natural step of q(u), of which the weights are no parameters."""
        stepped = super().natural_step(step_size)
        return replace(self._q, mean_u=stepped.mean, scale_tril_u=stepped.scale_tril)

    def _add_bars(self, w_bar, K_bar, O_bar, other_bar):
        """Add cotangents to the sums; return the last."""
        if w_bar is not None:
            self._w_bar += w_bar
        self._K_bar, self._O_bar = plus(K_bar, self._K_bar), plus(O_bar, self._O_bar)
        return other_bar


def _bilinear(block, rule, O, x, w):  # noqa: E741
    """Return w K (P, n) with K = K(O, x), in runs of rows of O, and the pullback.

    block, rule : ``Kuf`` or ``Kuu`` of a covariance, and its reverse rule; x : (n, D); w : (P, M2).
    ``back(b, need, need_w)`` returns ``(w_bar, covariance_bar, O_bar, x_bar)`` of sum_p w_p' K b_p
    for b (P, n), with ``need`` as ``rule`` takes it, and consumes K.
    """
    # on a device one long run is fastest
    numbers, M2 = tuning.current.decoupled_run_numbers, len(O)
    size = max(1, numbers // max(1, len(x))) if type(w) is np.ndarray else M2
    runs, products = [], np.zeros((len(w), len(x)), w.dtype, like=w)
    for start in range(0, M2, size):
        run = slice(start, min(start + size, M2))
        K = block(O[run], x)
        products += kernels.matmul(w[:, run], K)
        runs.append((run, K))

    def back(b, need, need_w):
        w_bar, covariance_bar, O_bar, x_bar = np.zeros_like(w), None, [], None
        while runs:
            run, K = runs.pop(0)
            if need_w:
                w_bar[:, run] = kernels.matmul(b, K, transpose_b=True)
            if need:
                K_bar = kernels.matmul(w[:, run], b, transpose_a=True)
                bars = rule(K_bar, K, O[run], x, need)
                covariance_bar, x_bar = plus(bars[0], covariance_bar), plus(bars[2], x_bar)
                O_bar.append(bars[1])
        O_bar = np.concatenate(O_bar) if "inducing" in need else None
        return w_bar if need_w else None, covariance_bar, O_bar, x_bar

    return products, back


def _runs(w):
    """Return the pieces of the exact form, runs of rows with all columns from their start."""
    M2, size, pieces = w.shape[1], tuning.current.decoupled_form_rows, []
    for start in range(0, M2, size):
        d = kernels.full(M2 - start, 2.0, w)
        d[:size] = 1
        pieces.append((slice(start, min(start + size, M2)), slice(start, M2), w.dtype.type(1), d))
    return pieces, None


def _sample(w, rows):
    """Return the piece of an estimate, distinct sampled rows with all columns, and rho (M2,)."""
    distinct, counts = np.unique(rows, return_counts=True)
    R, rho = np.asarray(distinct, like=w), kernels.full(w.shape[1], 0.0, w)
    of_R = np.asarray((counts * (w.shape[1] / len(rows))).astype(w.dtype), like=w)
    rho[R] = of_R
    return [(R, slice(None), of_R, w.dtype.type(1))], rho


@private_record
class _OnlyZ(InducingSets):
    """One set of inducing inputs, with the name that messages give it."""

    Z: Any = leaf()


def _need_on_Z(need):
    """Translate the names of ``need`` to fields of the layer on Z."""
    fields_on_Z = {
        "posterior.mean_u": "posterior.mean",
        "posterior.scale_tril_u": "posterior.scale_tril",
    }
    names = (
        "inducing" if name.startswith("inducing.") else fields_on_Z.get(name, name) for name in need
    )
    # the KL term depends on Kuu, unlike that of ``Whitened``
    return tuple(dict.fromkeys(name for name in names if name not in ("posterior.weights_v", KL)))
