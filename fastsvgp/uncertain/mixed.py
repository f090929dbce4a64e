r"""Moments of mixed functions f = W g + mean at uncertain inputs.

Given x, the outputs g_l are independent with means k_l'a_l and variances v_l. Over x the means
depend on each other, because all of them read the same x. With h_l = k_l'a_l and slopes s_j, those
of W (the layers' mean functions) + mean,

    Cov(f_j, f_j') = sum_l W_jl W_j'l E v_l + sum_lm W_jl W_j'm Cov(h_l, h_m)
                     + s_j' B_j' + B_j's_j' + s_j'S s_j',    B_j = sum_l W_jl Cov(x, h_l),

where E v_l is the bracket of ``closed_form`` and Q : Cov(k_i, k_j). Rows are independent, so of two
rows Cov(f_j, f_j) = sum_l W_jl^2 Cov(g_l, g_l).
"""

import numpy as np

from .. import kernels
from ..bounds.protocol import ALL, LayerProtocol
from ..posteriors.base import Joint
from ..records import Marginals
from .closed_form import EACH, ClosedFormPass, slopes_of
from .nodes import refuse_samples


class MixedPass(LayerProtocol):
    """Predictions of several layers and their mixing; arguments as in ``ClosedFormPass``."""

    def __init__(self, functions, X, dtype, need=()):
        if "inputs" in need:
            raise TypeError(
                "predict_f_and_vjp: no pullback to uncertain inputs for a MultiGP; use differences"
                " of predict_f"
            )
        self.functions, self._dtype = functions, dtype
        self.passes = [
            ClosedFormPass(layer, X, np.dtype(np.float64), alone=False)
            for layer in functions.layers
        ]
        counts = [len(work.alpha) for work in self.passes]
        ends = np.cumsum([0, *counts]).tolist()
        self._spans = [slice(*pair) for pair in zip(ends, ends[1:], strict=False)]
        self._W = np.eye(ends[-1]) if functions.mixing is None else functions.mixing
        D = X.mean.shape[1]
        below = [
            _rows(slopes_of(layer.mean, (count,)), count, D)
            for layer, count in zip(functions.layers, counts, strict=True)
        ]
        above = _rows(slopes_of(functions.mean, (len(self._W),)), len(self._W), D)
        self._slopes = kernels.matmul(self._W, np.concatenate(below)) + above
        self.num_inducing = max(work.num_inducing for work in self.passes)

    @property
    def clamped(self):
        return sum(work.clamped for work in self.passes)

    @property
    def sizes(self):
        widest = max(M for work in self.passes for M, _ in work.sizes)
        return [(widest, EACH * widest)]

    def forward(self, X, rows=ALL):
        """Return ``(Marginals, None)`` at a chunk of rows."""
        mean, cov = self._outputs(X, self.functions.mixing is not None)
        return Marginals(mean, self._shaped(np.diagonal(cov, axis1=1, axis2=2).T)), None

    def means(self, X, rows=ALL):
        """Return the means alone."""
        return self._mean([work.means(X) for work in self.passes], X)

    def joint_outputs(self, X):
        """Return means (J, n), and covariances (n, J, J) over the functions at each row."""
        mean, cov = self._outputs(X, True)
        return mean.reshape(len(self._W), len(X)), cov.astype(self._dtype)

    def joint(self, X):
        """Return the ``Joint`` moments of each function at all rows, which are independent."""
        N, J = len(X), len(self._W)
        cov = np.concatenate([work.joint(X).cov.reshape(-1, N, N) for work in self.passes])
        cov = kernels.matmul(self._W**2, cov.reshape(-1, N * N)).reshape(J, N, N)
        f, rows = self.forward(X)[0], np.arange(N)
        cov[:, rows, rows] = f.var.reshape(J, N)
        shape = *self.functions.axes, N, N
        return Joint(f.mean, cov.reshape(shape).astype(self._dtype))

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Refuse: f at an uncertain input is not normal."""
        refuse_samples()

    def _shaped(self, values):
        shape = *self.functions.axes, values.shape[-1]
        return np.ascontiguousarray(values).reshape(shape).astype(self._dtype)

    def _mean(self, means, X):
        values = kernels.matmul(self._W, np.concatenate([m.reshape(-1, len(X)) for m in means]))
        if self.functions.mean is not None:
            values = values + self.functions.mean(X.mean)
        return self._shaped(values)

    def _outputs(self, X, across):
        """Return means, and covariances (n, J, J), right off the diagonal only with ``across``."""
        found = [work.forward(X)[0] for work in self.passes]
        var = np.concatenate([f.var.reshape(-1, len(X)) for f in found])
        cov = self._of_means(X, across)
        places = np.arange(len(var))
        cov[:, places, places] += var.T
        cov = self._mixed(self._mixed(cov))
        if self._slopes.any():
            B = self._with_inputs(X)
            cross = kernels.matmul(B.reshape(-1, B.shape[2]), self._slopes, transpose_b=True)
            cross = cross.reshape(len(X), *cov.shape[1:])
            moved = np.moveaxis(X.times(self._slopes), 1, 0)  # (n, J, D)
            lines = kernels.matmul(
                moved.reshape(-1, moved.shape[2]), self._slopes, transpose_b=True
            )
            cov = cov + cross + np.swapaxes(cross, 1, 2) + lines.reshape(cov.shape)
        return self._mean([f.mean for f in found], X), cov

    def with_functions(self, X):
        """Return Cov(x, f), (J, n, D)."""
        return np.moveaxis(self._with_inputs(X), 1, 0) + X.times(self._slopes)

    def _with_inputs(self, X):
        """Return Cov(x, sum_l W_jl h_l), (n, J, D)."""
        shared = [work.with_inputs(X, a) for work in self.passes for a in work.alpha]
        return self._mixed(np.stack(shared, axis=2))

    def _mixed(self, values):
        """Return (n, J, K) for values (n, K, L): W times each transposed."""
        n, K, L = values.shape
        flat = np.ascontiguousarray(values).reshape(n * K, L)
        mixed = kernels.matmul(flat, self._W, transpose_b=True)
        return np.swapaxes(mixed.reshape(n, K, -1), 1, 2)

    def _of_means(self, X, across):
        """Return Cov(h_l, h_m), (n, L, L); of different layers only with ``across``."""
        L = self._spans[-1].stop
        found = np.zeros((len(X), L, L))
        for i, a in enumerate(self.passes):
            for j, b in enumerate(self.passes[: i + 1]):
                if across or i == j:
                    block = self._between(a, b, X)
                    found[:, self._spans[i], self._spans[j]] = block
                    found[:, self._spans[j], self._spans[i]] = np.swapaxes(block, 1, 2)
        return found

    def _between(self, a, b, X):
        """Return the covariances (n, P, P') of the means of the outputs of two layers."""
        total = np.zeros((len(X), len(a.alpha), len(b.alpha)))
        for one in a.terms:
            for other in b.terms:
                C = one.covariance(other, X.mean, X.var, a.Z, b.Z)
                if C is not None:
                    right = kernels.matmul(
                        C.reshape(-1, C.shape[2]), b.alpha, transpose_b=True
                    ).reshape(len(X), -1, len(b.alpha))
                    right = np.ascontiguousarray(np.swapaxes(right, 1, 2))
                    left = kernels.matmul(
                        right.reshape(-1, right.shape[2]), a.alpha, transpose_b=True
                    )
                    total += np.swapaxes(left.reshape(len(X), len(b.alpha), -1), 1, 2)
        return total


def _rows(slopes, count, D):
    """Return slopes (count, D), of zeros for None."""
    return np.zeros((count, D)) if slopes is None else np.broadcast_to(slopes, (count, D))
