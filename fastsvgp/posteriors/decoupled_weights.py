"""Decoupled inducing inputs by the weights of the mean: ODVGP at a cost linear in the size of O.

This is ``Decoupled`` with m_v = C_vv w: its mean contains C_vv^-1 m_v = w, which becomes a
parameter, so that C_vv is not factorised. ``bounds.decoupled_pass`` computes bounds without any
matrix of M2 x M2. At the level of blocks, where K_vv is given, the algebra is that of
``orthogonal`` with m_v' = L_vv' w, W_v' = I; L_vv moves by L_vv Phi(E), E = L^-1 dK L^-T, hence

    dm_v' = Phi(E)_vv' m_v',    so    C_vv -= m_v' m_v'_bar',    w_bar = L_vv m_v'_bar.
"""

from .. import check, kernels
from ..records import leaf, record
from ..records.typed import Array
from ..runtime import deferred_checks
from .base import identities
from .orthogonal import OrthogonalSets


@record
class DecoupledWeights(OrthogonalSets):
    """q(u') N(v | C_vv weights_v, C_vv), for ``inducing=InducingPair(Z, O)``.

    Here u = chol(Kuu) u' and v = f(O) - E[f(O) | u].

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    weights_v : (..., M2)

    Notes
    -----
    Value and all gradients cost those of ``Whitened`` on Z, and about 6 D + 20 flops per covariance
    of O: M2 (M + B) of O with Z and with the batch, and M2^2 of O with itself. With ``sampled=S``
    the last number is S M2: the quadratic form w' C_vv w of the KL term is then estimated, without
    bias, from S columns of C_vv (``bounds.decoupled_pass`` says how well). At most two (M2, B),
    (M2, M) and (M2, S) arrays exist at a time.

    The optimal weights are large. Where the gradient is zero, C_vv w = C_vf a with a = (y - f) /
    (noise variance), so the weight of a row of O stands for the sum of a over the data near it,
    about N / M2 of them. Weights go up to about

        residual / noise variance * N / M2

    for a residual that these data share. On kin40k (N = 25,600, M + M2 = 128 + 1012, residual 0.29,
    noise variance 0.17) that is 43; the rms of the optimal weights is 12, and the largest is 50.
    They start at 0, and Adam moves each of them by about its step size. So give them a larger,
    falling step size, and let natural steps move q(u), as the recipes do: ``natural_step_size=0.1``
    and ``adam(0.01, step_sizes={"posterior.weights_v": schedules.cosine(0.3, 0.03, "all")})``.

    Source: Salimbeni et al. 2018; Shi et al. 2020, sections 3.1 and 5.2.

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 9)[:, None])
    >>> q = fs.posteriors.DecoupledWeights(mean_u=np.zeros(6), scale_tril_u=np.eye(6),
    ...     weights_v=np.zeros(9))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -279.18
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    weights_v: Array = leaf()

    natural_fields = ("mean_u", "scale_tril_u")
    random_quantities = ("sampled",)
    sums_variances = False

    def fields_of(self, name):
        return super().fields_of(name) if name == "u" else ("weights_v",)

    def start_from(self, prior, columns=0, need=(), sampled=None):
        if sampled is not None:
            raise TypeError(
                "`sampled` avoids computing all columns of K_vv, but blocks already hold them;"
                " leave it out"
            )
        return super().start_from(prior, columns, need)

    def whitened(self, L, name):
        if name == "u":
            return super().whitened(L, name)
        mean = kernels.multiply_triangular(L, self.weights_v[..., None], transpose=True)[..., 0]
        return mean, identities(mean)

    def whitened_vjp(self, one, mean_bar, L, C):
        if one.name == "u":
            return super().whitened_vjp(one, mean_bar, L, C)
        if C is not None:
            C -= kernels.tril_product(one.means.T, mean_bar.T)
        return kernels.multiply_triangular(L, mean_bar[..., None])[..., 0], None

    def draw(self, name, value, M, dtype, rng):
        """``sampled``: indices (S,) of columns of K_vv, on the host.

        A number S is replaced by S indices drawn without replacement.
        """
        M2, given = self.weights_v.shape[-1], check.as_array(name, value)
        if given.ndim == 0:
            S = check.whole(name, value)
            if S > M2:
                raise ValueError(
                    f"`sampled` is {S}, but `inducing.O` has {M2} rows; give at most that, or None"
                    " for all of them"
                )
            return check.generator(rng).choice(M2, S, replace=False)
        given = given.get() if deferred_checks.on_device(given) else given
        if (
            given.ndim != 1
            or given.size == 0
            or given.dtype.kind not in "iu"
            or given.min() < 0
            or given.max() >= M2
        ):
            raise ValueError(
                "`sampled` must be a number S, or an array (S,) of row numbers of `inducing.O`, 0"
                f" to {M2 - 1}, got an array of shape {given.shape} and dtype {given.dtype}"
                + (f" from {given.min()} to {given.max()}" if given.size else "")
            )
        return given
