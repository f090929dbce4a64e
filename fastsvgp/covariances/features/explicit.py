"""Features whose matrix is formed, for runs of points: covariances of finite rank are exact."""

import numpy as np

from ... import kernels
from .base import Features
from .points import points_at, runs


class Explicit(Features):
    """Features with a matrix Phi (n, size) of points (n, D), and its reverse rule.

    ``matrix(X)`` returns Phi, ``matrix_vjp(Phi_bar, X)`` the cotangent of X. With own points of
    each function

        f[s, p, i] = sum_j w[s, p, j] Phi[s, i, j]
        Phi_bar[s, i, j] = sum_p f_bar[s, p, i] w[s, p, j],

    and with shared ones the last sum is over s too.
    """

    def __init__(self, size, matrix, matrix_vjp):
        self.size, self.matrix, self.matrix_vjp = size, matrix, matrix_vjp

    def multiply(self, X, w):
        values = np.empty((*w.shape[:2], X.shape[-2]), X.dtype, like=X)
        for functions, points in runs(X, self.size):
            Phi, part = self.matrix(points_at(X, functions, points)), w[functions]
            if X.ndim == 2:
                found = kernels.matmul(_rows(part), Phi, transpose_b=True)
            else:
                Phi = Phi.reshape(len(part), -1, self.size)
                found = kernels.matmul(part, Phi, transpose_b=True)
            values[functions, :, points] = found.reshape(*part.shape[:2], -1)
        return values

    def multiply_vjp(self, out_bar, X, w):
        X_bar = np.empty_like(X)
        for functions, points in runs(X, self.size):
            part = w[functions]
            bar = np.ascontiguousarray(out_bar[functions, :, points], like=X)
            if X.ndim == 2:
                bar, part = _rows(bar), _rows(part)
            Phi_bar = kernels.matmul(bar, part, transpose_a=True).reshape(-1, self.size)
            found = self.matrix_vjp(Phi_bar, points_at(X, functions, points))
            where = points if X.ndim == 2 else (functions, points)
            X_bar[where] = found.reshape(X_bar[where].shape)
        return X_bar


def _rows(array):
    return array.reshape(-1, array.shape[-1])
