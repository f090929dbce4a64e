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

Reverse, with a the cotangents of the mean, kappa that of the KL, c = K_uf a: the new terms are
a' K_fv w - c' Kuu^-1 r + kappa (y' K_vv w - s' Kuu^-1 r) / 2, and with q = Kuu^-1 s

    g        = r_bar = -(Kuu^-1 c + kappa q / 2)      s_bar    = -kappa h / 2
    w_bar    = K_vf a + K_vu g + rho * (K_vu s_bar) + that of kappa y' K_vv w / 2
    Kuf_bar  = that of ``Whitened`` - h a'            K_uv_bar = g w' + s_bar y'
    Kuu_bar  = that of ``Whitened`` + sym(Kuu^-1 c h') + kappa sym(q h') / 2
             = that of ``Whitened`` - sym(g h')       K_vf_bar = w a'

each summed over the outputs that share the array. The form y' K_vv w is computed in pieces (rows R,
columns C of K_vv, weights rho of the rows and d of the columns):

    y' K_vv w = sum over pieces of (rho w_R)' K_RC (d w_C)

Exact form: R is a run of rows, C all rows from its beginning, rho = 1, d = 1 within the run and 2
beyond. Estimate: one piece with R the distinct rows of J, all columns, d = 1. Its gradients

    K_RC_bar = kappa / 2 (rho w_R) (d w_C)'
    w_R_bar  = kappa / 2 rho K_RC (d w_C),    w_C_bar = kappa / 2 d K_RC' (rho w_R)

are those of the estimate. Source: Salimbeni et al. 2018; Shi et al. 2020, sections 3.1, 5.2.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..likelihoods.base import total
from ..posteriors import Whitened
from ..posteriors.base import Bars, solve_vectors
from ..posteriors.decoupled import ShiftedPass
from ..records import Marginals, leaf, plus, private_record, replace
from ..records.inducing_sets import InducingSets, sets_of
from ..runtime import tuning
from .layer_pass import LayerBars, LayerParts, LayerPass
from .protocol import ALL, LayerProtocol


class DecoupledLayerPass(LayerProtocol):
    """A ``LayerPass`` of a layer with ``DecoupledWeights``: the same arguments and methods.

    sampled : (S,) row numbers of O on the host to estimate w' C_vv w from; None: exact
    """

    def __init__(self, layer, jitter, columns=0, need=(), sampled=None):
        q, self.layer, roots = layer.posterior, layer, {name.partition(".")[0] for name in need}
        (Z, O), covariance = sets_of(layer.inducing), layer.covariance  # noqa: E741
        self.num_inducing, self.O, self.weights = (
            len(Z) + len(O),
            O,
            q.weights_v.reshape(-1, len(O)),
        )
        self._of_inducing, self._of_weights = (
            "inducing" in roots,
            "posterior" in need or "posterior.weights_v" in need,
        )
        fields = tuple(name for name in need if name.startswith("covariance"))
        self._of_K = fields + (("inducing", "other") if self._of_inducing else ())
        self._of_Kvf = (
            fields
            + (("inducing",) if self._of_inducing else ())
            + (("X",) if "inputs" in need else ())
        )
        self._form = _QuadraticForm(covariance, O, self.weights, jitter, sampled)
        self._Kvu = _ResidualBilinear(covariance, O, Z, self.weights, self._form.rho)
        shifted = _Shifted(Whitened(q.mean_u, q.scale_tril_u), self._Kvu.r, self._Kvu.s)
        self._on_Z = LayerPass(
            LayerParts(covariance, shifted, _OnlyZ(Z), layer.mean), jitter, columns, _of_Z(need)
        )
        self._weights_bar, self._covariance_bar, self._O_bar = (
            np.zeros_like(self.weights),
            None,
            None,
        )

    @property
    def clamped(self):
        return self._on_Z.clamped

    def _Kvf(self, X):
        return _Bilinear(
            self.layer.covariance.Kuf, self.layer.covariance.Kuf_vjp, self.O, X, self.weights
        )

    def forward(self, X, rows=ALL):
        f, of_Z = self._on_Z.forward(X)
        Kvf = self._Kvf(X)
        return Marginals(f.mean + Kvf.products.reshape(f.mean.shape), f.var), (of_Z, Kvf)

    def means(self, X, rows=ALL):
        f = self._on_Z.means(X)
        return f + self._Kvf(X).products.reshape(f.shape)

    sample = LayerPass.sample

    def floor(self, X):
        return self._on_Z.floor(X)

    def joint(self, X):
        f = self._on_Z.joint(X)
        return f._replace(mean=f.mean + self._Kvf(X).products.reshape(f.mean.shape))

    def pull(self, rows, f_bar):
        rows, Kvf = rows
        X_bar = self._take(
            Kvf.pull(f_bar.mean.reshape(Kvf.products.shape), self._of_Kvf, self._of_weights)
        )
        return plus(X_bar, self._on_Z.pull(rows, f_bar))

    def kl(self):
        return self._on_Z.kl() + 0.5 * self._form.value()

    def finish(self, kl_bar):
        shifted = self._on_Z.work
        of_Z = self._on_Z.finish(kl_bar)
        self._covariance_bar = plus(of_Z.covariance, self._covariance_bar)
        bars = shifted.r_bar, shifted.s_bar
        Z_bar = self._take(self._Kvu.pull(*bars, self._of_K, self._of_weights))
        if kl_bar and (self._of_K or self._of_weights):
            self._take(self._form.pull(kl_bar, self._of_K))
        q, of_u = self.layer.posterior, of_Z.posterior
        weights_bar = self._weights_bar.reshape(q.weights_v.shape) if self._of_weights else None
        return LayerBars(
            self._covariance_bar,
            (
                type(self.layer.inducing)(Z_bar + sets_of(of_Z.inducing)[0], self._O_bar)
                if self._of_inducing
                else None
            ),
            type(q)(of_u.mean, of_u.scale_tril, weights_bar),
            of_Z.mean,
        )

    def natural_sums(self):
        return self._on_Z.natural_sums()

    def natural_step(self, step_size):
        """Take a natural step of q(u), of which the weights are no parameters."""
        stepped = self._on_Z.natural_step(step_size)
        return replace(self.layer.posterior, mean_u=stepped.mean, scale_tril_u=stepped.scale_tril)

    def _take(self, bars):
        """Add the cotangents to the sums, except ``other_bar``, which is returned."""
        weights_bar, covariance_bar, O_bar, other_bar = bars
        if weights_bar is not None:
            self._weights_bar += weights_bar
        self._covariance_bar, self._O_bar = (
            plus(covariance_bar, self._covariance_bar),
            plus(O_bar, self._O_bar),
        )
        return other_bar


class _Bilinear:
    """sum_p w_p' K b_p with K = K(O, x), in runs of rows of O; ``products`` are w K (P, n).

    block, rule : ``Kuf`` or ``Kuu`` of a covariance, and its reverse rule; x : (n, D); w : (P, M2)
    """

    def __init__(self, block, rule, O, x, w):  # noqa: E741
        self._rule, self._O, self._x, self._w, M2 = rule, O, x, w, len(O)
        # on a device one long run is fastest
        numbers = tuning.current.decoupled_run_numbers
        size = max(1, numbers // max(1, len(x))) if type(w) is np.ndarray else M2
        self._runs, self.products = [], np.zeros((len(w), len(x)), w.dtype, like=w)
        for start in range(0, M2, size):
            run = slice(start, min(start + size, M2))
            K = block(O[run], x)
            self.products += kernels.matmul(w[:, run], K)
            self._runs.append((run, K))

    def pull(self, b, need, need_w):
        """Return ``(w_bar, covariance_bar, O_bar, x_bar)`` for b (P, n). Consumes K.

        need : names as ``rule`` takes them
        """
        w_bar, covariance_bar, O_bar, x_bar = (
            np.zeros_like(self._w) if need_w else None,
            None,
            [],
            None,
        )
        runs, self._runs = self._runs, None
        for run, K in runs:
            if need_w:
                w_bar[:, run] = kernels.matmul(b, K, transpose_b=True)
            if need:
                K_bar = kernels.matmul(self._w[:, run], b, transpose_a=True)
                bars = self._rule(K_bar, K, self._O[run], self._x, need)
                covariance_bar, x_bar = plus(bars[0], covariance_bar), plus(bars[2], x_bar)
                O_bar.append(bars[1])
        return w_bar, covariance_bar, np.concatenate(O_bar) if "inducing" in need else None, x_bar


class _ResidualBilinear:
    """r = K_uv w and s = K_uv (rho * w), (P, M) each, and their cotangents.

    rho : (M2,), or None for ones; s is then r
    """

    def __init__(self, covariance, O, Z, w, rho):  # noqa: E741
        self._rho, P = rho, len(w)
        stack = w if rho is None else np.concatenate([w, rho * w])
        self._both = _Bilinear(covariance.Kuu, covariance.Kuu_vjp, O, Z, stack)
        self.r = self._both.products[:P]
        self.s = self.r if rho is None else self._both.products[P:]

    def pull(self, r_bar, s_bar, need, need_w):
        """Return ``(w_bar, covariance_bar, O_bar, Z_bar)``."""
        if self._rho is None:
            return self._both.pull(r_bar + s_bar, need, need_w)
        w_bar, *others = self._both.pull(np.concatenate([r_bar, s_bar]), need, need_w)
        if need_w:
            P = len(r_bar)
            w_bar = w_bar[:P] + self._rho * w_bar[P:]
        return w_bar, *others


class _QuadraticForm:
    """y' (K_vv + jitter I) w, summed over the outputs of w (P, M2), and its cotangents.

    rho : (M2,) with y = rho * w, or None for ones
    """

    def __init__(self, covariance, O, w, jitter, sampled):  # noqa: E741
        self._covariance, self._O, self._w, self._jitter = covariance, O, w, jitter
        self._kept = self.rho = None
        if sampled is None:
            self._pieces = _runs(w)
        else:
            R, C, rho, d = _sample(w, sampled)
            self._pieces, self.rho = [(R, C, rho, d)], kernels.full(len(O), 0.0, w)
            self.rho[R] = rho

    def _bilinear(self, R, C, d):
        return _Bilinear(
            self._covariance.Kuu,
            self._covariance.Kuu_vjp,
            self._O[C],
            self._O[R],
            d * self._w[:, C],
        )

    def value(self):
        value = 0.0
        for R, C, rho, d in self._pieces:
            w_R, K = self._w[:, R], self._bilinear(R, C, d)
            value += total(rho * w_R * (K.products + self._jitter * w_R))
            self._kept = K if len(self._pieces) == 1 else None
        return value

    def pull(self, kl_bar, need):
        """Return ``(w_bar, covariance_bar, O_bar, None)`` for the cotangent kl_bar / 2.

        need : names, as in ``Kuu_vjp``
        """
        w_bar, covariance_bar, O_bar = (
            np.zeros_like(self._w),
            None,
            np.zeros_like(self._O) if "inducing" in need else None,
        )
        for R, C, rho, d in self._pieces:
            w_R, K = self._w[:, R], self._bilinear(R, C, d) if self._kept is None else self._kept
            of_w, of_K, C_bar, R_bar = K.pull(0.5 * kl_bar * rho * w_R, need, True)
            w_bar[:, R] += kl_bar * rho * (0.5 * K.products + self._jitter * w_R)
            w_bar[:, C] += d * of_w
            covariance_bar = plus(of_K, covariance_bar)
            if O_bar is not None:
                O_bar[R] += R_bar
                O_bar[C] += C_bar
        self._kept = None
        return w_bar, covariance_bar, O_bar, None


def _runs(w):
    """Return the pieces of the exact form: runs of rows, each with all columns from its start."""
    M2, size, pieces = w.shape[1], tuning.current.decoupled_form_rows, []
    for start in range(0, M2, size):
        d = kernels.full(M2 - start, 2.0, w)
        d[:size] = 1
        pieces.append((slice(start, min(start + size, M2)), slice(start, M2), w.dtype.type(1), d))
    return pieces


def _sample(w, rows):
    """Return the piece of an estimate: the distinct sampled rows, with all columns."""
    distinct, counts = np.unique(rows, return_counts=True)
    rho = np.asarray((counts * (w.shape[1] / len(rows))).astype(w.dtype), like=w)
    return np.asarray(distinct, like=w), slice(None), rho, w.dtype.type(1)


@private_record
class _OnlyZ(InducingSets):
    """One set of inducing inputs, with the name that messages give it."""

    Z: Any = leaf()


def _of_Z(need):
    """Translate the names of ``need`` to fields of the layer on Z."""
    fields_on_Z = {
        "posterior.mean_u": "posterior.mean",
        "posterior.scale_tril_u": "posterior.scale_tril",
    }
    names = (
        "inducing" if name.startswith("inducing.") else fields_on_Z.get(name, name) for name in need
    )
    return tuple(dict.fromkeys(name for name in names if name != "posterior.weights_v"))


class _Shifted(NamedTuple):
    """``Whitened`` with the mean function -K_fu Kuu^-1 r, and -s' Kuu^-1 r / 2 in the KL term.

    r, s : (P, M)
    """

    posterior: Any
    r: Any
    s: Any

    def start_from(self, prior, columns=0, need=()):
        return _ShiftedPass(self.posterior.start_from(prior, columns, need), self.r, self.s)

    def check_size(self, M):
        return self.posterior.check_size(M)

    def set_sizes(self, M):
        return (M,)

    def path_weights(self, prior, values, normal):
        return (
            self.posterior.path_weights(prior, values, normal) - _solved(prior.L, self.r)[..., None]
        )


def _solved(L, x):
    """Kuu^-1 x."""
    return solve_vectors(L, solve_vectors(L, x), transpose=True)


class _ShiftedPass(ShiftedPass):
    """Its pass; after ``finish``, ``r_bar`` and ``s_bar`` are the cotangents of r and s."""

    def __init__(self, work, r, s):
        self._s, self._h = s, _solved(work.L, r)
        super().__init__(work, -self._h)

    def kl(self):
        return self.work.kl() - 0.5 * total(self._s * self._h)

    def finish(self, kl_bar):
        posterior_bar, Kuu_bar = self.work.finish(kl_bar)
        h = self._h
        g = self.r_bar = -_solved(self.work.L, self.Kuf_a + 0.5 * kl_bar * self._s)
        self.s_bar = -0.5 * kl_bar * h
        if Kuu_bar is not None:
            low_rank = kernels.matmul(
                np.concatenate([g, h]), np.concatenate([h, g]), transpose_a=True
            )
            Kuu_bar -= 0.5 * kernels.symmetrise(low_rank)
        return Bars(posterior_bar, Kuu_bar)

    def natural_sums(self):
        return self.work.natural_sums()

    def natural_step(self, step_size):
        return self.work.natural_step(step_size)
