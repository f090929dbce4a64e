"""Natural steps of several latent functions: the means of all that a mixing joins move together.

With f = W g, Lam_l = L_l^-1 Kuf_l, a and b the cotangents of the marginals of f, and q(v_l) =
N(m_l, S_l) in whitened coordinates, the expected log density has the second derivative

    G_kl = Lam_k diag(c_kl) Lam_l',    c_kl(n) = sum_j W_jk W_jl 2 b_j(n)

between the means m_k and m_l. A step of each latent by its own G_ll is block Jacobi: it diverges
where columns of W are nearly equal. As for the sets of SOLVE-GP (``posteriors.natural``),
the covariances move block by block and the means jointly: with step size g,

    R = g (I - G) + (1 - g) blockdiag(S_l^-1)
    R d = g (Lam_l (W' a)_l - m_l)_l,    m_l,new = m_l + d_l,    S_l,new^-1 = R_ll

so a step of 1 on all data with Gaussian noise reaches the optimum. With b <= 0 and g <= 1, R is
positive definite. Without a mixing, and between blocks of one, G_kl = 0.

Beyond the steps of the layers this takes 2 M^2 B flops for each pair k < l, and (L M)^3 / 3 flops
and (L M)^2 numbers for R.
"""

import numpy as np

from .. import kernels
from ..posteriors.gaussian_factor import GaussianFactor
from ..runtime import tuning
from .latent_pass import LatentPass
from .mixing import Mixing
from .model import counts_of, layers_of, naming_latent


def moves_jointly(model):
    """Whether a natural step moves the means of all latent functions at once."""
    layers = layers_of(model)
    if not any(Mixing(model.mixing).pairs()):
        return True
    if not all(isinstance(layer.posterior, GaussianFactor) for layer in layers):
        return False
    sizes = (layer.covariance.num_inducing(layer.inducing) for layer in layers)
    counts = counts_of(model)
    return (
        sum(n * sum(M) for n, M in zip(counts, sizes, strict=True))
        <= tuning.current.joint_step_rows
    )


class JointPass(LatentPass):
    """A ``LatentPass`` for one natural step: sums G_kl of all pairs beside those of the layers."""

    def __init__(self, model, jitter, columns=0, need=("natural_step",), **more):
        super().__init__(model, jitter, columns, need, **more)
        self._pairs = tuple(self.mixing.pairs())
        self._cross = [None] * len(self._pairs)
        # the layer of each latent function, and its number there
        self._places = [
            (number, p)
            for number, span in enumerate(self.spans)
            for p in range(span.stop - span.start)
        ]

    def pull(self, rows, f_bar):
        b2 = 2 * f_bar.var.reshape(-1, len(rows.X))
        for at, (k, other, products, out) in enumerate(self._pairs):
            c = kernels.matmul(products[None], b2[out])[0]
            self._cross[at] = self._add(self._cross[at], rows, k, other, c)
        return super().pull(rows, f_bar)

    def _add(self, total, rows, k, other, c):
        """Add Lam_k diag(c) Lam_other' of a chunk of rows; within one layer its lower triangle."""
        first, second = self._places[k][0], self._places[other][0]
        Lam = rows.layers[first].residuals.Lam
        if first == second:
            return kernels.weighted_gram(Lam, c, out=total, add=total is not None)
        part = kernels.matmul(Lam * c, rows.layers[second].residuals.Lam, transpose_b=True)
        return part if total is None else np.add(total, part, out=total)

    def natural_sums(self):
        """Return the sums of every layer, and then those of the pairs, in one list."""
        own = [part for work in self.passes for part in work.natural_sums()]
        places = [(self._places[k][0], self._places[other][0]) for k, other, *_ in self._pairs]
        return own + [
            cross[None] if first == second else cross
            for (first, second), cross in zip(places, self._cross, strict=True)
        ]

    def natural_step(self, step_size):
        """Return the posteriors of all layers after a step."""
        if not self._pairs:
            return tuple(self._own_step(number, step_size) for number in range(len(self.passes)))
        means = [np.empty_like(work.work.means) for work in self.passes]
        precisions = [kernels.empty(work.work.trils.shape, work.work.trils) for work in self.passes]
        for block in self.mixing.blocks:
            functions = range(block.into.start, block.into.stop)
            self._step_of(functions, step_size, means, precisions)
        return tuple(
            work.work.move_to(mean, [kernels.cholesky_of_inverse(precision)])
            for work, mean, precision in zip(self.passes, means, precisions, strict=True)
        )

    def _own_step(self, number, step_size):
        with naming_latent(number):
            return self.passes[number].natural_step(step_size)

    def _step_of(self, functions, step_size, means, precisions):
        """Solve R d = g (Lam a - m) for functions that a mixing joins; fill in their results."""
        spans, start = {}, 0
        for function in functions:
            number, p = self._places[function]
            M = self.passes[number].work.means.shape[1]
            spans[function] = slice(start, start + M)
            start += M
        like = self.passes[self._places[functions[0]][0]].work.means
        R, right = kernels.full((start, start), 0, like), kernels.empty((start, 1), like)
        for function, span in spans.items():
            number, p = self._places[function]
            work = self.passes[number].work
            Lam_a, _ = work.natural_sums()
            R[span, span] = precisions[number][p] = work.natural_precision(p, step_size)
            right[span, 0] = step_size * (Lam_a[p] - work.means[p])
        for (k, other, *_), cross in zip(self._pairs, self._cross, strict=True):
            if k in spans:
                same = self._places[k][0] == self._places[other][0]
                G = kernels.symmetrise(cross) if same else cross
                R[spans[other], spans[k]] = -step_size * G.T
        factor = kernels.cholesky(R)  # reads the lower triangle
        half = kernels.solve_triangular(factor, right)
        d = kernels.solve_triangular(factor, half, transpose=True)[:, 0]
        for function, span in spans.items():
            number, p = self._places[function]
            means[number][p] = self.passes[number].work.means[p] + d[span]
