"""The algebra of u = L v, L = chol(Kuu), q(v) = N(m, W W'): forward and backward, by chunks.

With Lam = L^-1 Kuf and V = W' Lam (handbook, "Whitened parameterization" and appendix I):

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V^2)
    KL   = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii.

Reverse. Let a, b be the cotangents of mean and var, kappa that of the KL (-1 in an ELBO), X diag(b)
written X * b. From d var = -2 colsum(Lam dLam) + 2 colsum(V (W' dLam + dW' Lam)):

    Lam_bar = m a' + 2 (W V - Lam) * b
    m_bar   = Lam a + kappa m
    W_bar   = tril(2 (Lam * b) V') + kappa (W - diag(1 / W_ii))
    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    Kuu_bar = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,  C = Lam_bar Lam'

The last line is the whitening lemma: Kuu enters through Lam only. Every M x M quantity is a sum
over the columns of the batch. A batch that is long compared with M is therefore processed in chunks
that stay in cache, and memory does not grow with the batch.

*Batch form*, the formulas above: trsm, trmm, trmm, two half products, trsm = 6 M^2 B, and 4/3 M^3
(potrf, congruence). Only lower triangles of the two products are formed.

*Gram form*, for many data per inducing input: with G = (Lam * 2b) Lam' (symmetric) the two products
with the batch become M x M products,

    2 (Lam * b) V' = G W,    C = m (Lam a)' + W (G W)' - G.

It takes trsm, trmm, syrk, trmm, trsm = 5 M^2 B, and 10/3 M^3. By flops it is cheaper if B > 2 P M
(P outputs). A syrk runs nearer to the gemm rate than a half product, so the Gram form is used from
3/2 P M on.

*Long form*, the Gram form for still longer batches: with H = W W' - I, Q = L^-T H, alpha = L^-T m
and E = Q Lam,

    V' V - Lam' Lam = Lam' H Lam = (L^-1 Kuf)' H Lam = Kuf' E
        so   mean = Kuf' alpha,   var = kff + colsum(Kuf * E),
    Lam_bar = m a' + H Lam * 2b
        so   Kuf_bar = L^-T Lam_bar = alpha a' + E * 2b.

It takes trsm, gemm, syrk = 4 M^2 B, and 14/3 M^3, and is used from 4 P M on, from 2 P M on if M^2 B
is large, if the gradient of Kuf is needed. Its measured errors equal those of the other forms, in
both dtypes and for cond(Kuu) up to 5e9: the error of L dominates.

Outputs whose cotangents are multiples of one row share products: ``common_cotangents``.

*Sums of variances*: natural steps, and gradients of several outputs, need Lam a and sums as G, but
of the variances only what the data term takes. If that is linear in them with slopes b, as with
Gaussian noise,

    sum_n b_n var_n = sum_n b_n (kff_n - |lam_n|^2) + tr(W W' G) / 2,

so W W' (M^3 / 3) takes the place of V (M^2 B): ``summed_variances``. The pass decides this once,
for all rows.

*Several sets* of inducing variables, as in SOLVE-GP (``orthogonal``): Kuu is that of their stack, L
its factor, and W is block-diagonal, since the sets are independent under q. All of the above holds;
products with W, H and W W' take the diagonal blocks only. Unwhitened parameters of a set s depend
on Kuu through L_ss^-1 as well. A change dK moves L by L Phi(E), E = L^-1 dK L^-T, and, because
Phi(E) is lower triangular, its block L_ss by L_ss Phi(E)_ss. So x = L_ss^-1 y moves by
-Phi(E)_ss x, and the lemma holds with

    C_ss += m_s_bar m_s' + W_s_bar W_s'

``natural`` has the natural step.

If ``kernels.prefers_inverse``, products with an explicit L^-1 (M^3 / 3) replace the solves with L.
"""

from .base import BatchWhitenedPass, WhitenedPass
from .gram import GramWhitenedPass, LongWhitenedPass, SmallWhitenedPass
from .summed_variances import sums_pay

__all__ = [
    "BatchWhitenedPass",
    "GramWhitenedPass",
    "LongWhitenedPass",
    "SmallWhitenedPass",
    "WhitenedPass",
    "sums_pay",
]
