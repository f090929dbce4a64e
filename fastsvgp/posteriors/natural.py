"""The natural-gradient step of Gaussians over inducing variables.

In whitened coordinates a set s of inducing variables has q(v_s) = N(m_s, S_s), the sets are
independent, and the prior is N(0, I). q has the natural parameters (S^-1 m, -S^-1 / 2), and the
natural gradient in them is the gradient in the expectation parameters (m, S + m m'): d_S for the
second, d_m - 2 d_S m for the first (Hensman et al. 2013; Salimbeni et al. 2018). With
G = (Lam * 2b) Lam', d_S = G_ss / 2 - (I - S^-1) / 2 and d_m = Lam a - m. So a step of size g moves
the covariances set by set, and the mean as that of one Gaussian on the stack of the sets:

    R = (1 - g) diag(S_s^-1) + g (I - G),    S_s,new^-1 = R_ss,    R (m_new - m) = g (Lam a - m).

The old posterior enters the precision with weight 1 - g only, and no gradient of a factor is
formed. A unit step on all data with Gaussian noise is the optimum; separate steps of the means of
the sets do not give it. ``latents.joint_step`` has the same step with latent functions in the place
of sets, and ``dual_sites_pass`` has it in the parameters of sites.
"""

import numpy as np

from .base import add_to_diagonals


def natural_precision(G, step_size, old):
    """R = (1 - g) diag(S_s^-1) + g (I - G), (..., M, M), for symmetric G.

    old : iterable of the slice of a set and S_s^-1, not read if g = 1
    """
    R = add_to_diagonals(np.multiply(G, -step_size), step_size)
    if step_size != 1:
        for at, precision in old:
            R[..., at, at] += (1 - step_size) * precision
    return R
