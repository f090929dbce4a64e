"""Cosine and sine sums of rows, and series of cosines and sines at rows, by nonuniform FFTs.

With angles a_d of a row, 0 <= a_d <= pi, sines j = 1 ... m_d and the product formula

    sin(i a) sin(j a) = (cos((i - j) a) - cos((i + j) a)) / 2,

Phi' W Phi of products of sines gathers T[k] = sum_n w_n prod_d cos(k_d a_nd), k_d = 0 ... 2 m_d,
one axis after the other. The adjoint of that gather turns a matrix S into coefficients C,

    phi(x)' S phi(x) = sum_k C[k] prod_d cos(k_d a_d).

A grid with point l of an axis at 2 pi l / n has sums of cosines and of sines as the real and the
negated imaginary part of its transform, axis by axis; dividing by the transform of the window gives
the sums of the rows that were spread to it. The adjoint goes back: with c_k over that transform,

    g_l = sum_k c_k cos(k theta_l),   g_l = sum_k s_k sin(k theta_l).
"""

import numpy as np

from .. import kernels
from ..kernels.common.window import WIDTH, window_transform


def grid_sizes(num_functions):
    """Return the sizes (n0, n1, n2) of grids that have sums up to 2 m_d, twice as fine as these."""
    from scipy.fft import next_fast_len

    sizes = [max(next_fast_len(8 * int(m) + 2, real=True), 2 * WIDTH) for m in num_functions]
    return (*(1,) * (3 - len(sizes)), *sizes)


def sums_of_grids(grids, num_functions, sine):
    """Return sums (R, ...) of the rows that were spread to grids (R, n0, n1, n2).

    Of cosines k = 0 ... 2 m_d, or of sines j = 1 ... m_d.
    """
    from scipy.fft import rfft

    D = len(num_functions)
    out = grids.reshape(len(grids), *grids.shape[4 - D :])
    for d, m in enumerate(num_functions):
        n, most = out.shape[d + 1], m if sine else 2 * m
        found = np.moveaxis(rfft(out, axis=d + 1), d + 1, -1)
        found = -found.imag[..., 1 : most + 1] if sine else found.real[..., : most + 1]
        found = found / window_transform(n, most)[1 if sine else 0 :]
        out = np.moveaxis(found, -1, d + 1)
    return np.ascontiguousarray(out)


def grids_of_series(series, num_functions, sizes, sine):
    """Return grids (R, n0, n1, n2) whose interpolation at rows is a series (R, ...)."""
    from scipy.fft import irfft

    out = series
    for d, m in enumerate(num_functions):
        n, most = sizes[3 - len(num_functions) + d], m if sine else 2 * m
        scale = n / 2 / window_transform(n, most)
        if sine:
            waves = -1j * np.moveaxis(out, d + 1, -1) * scale[1:]
            waves = np.concatenate([np.zeros((*waves.shape[:-1], 1)), waves], axis=-1)
        else:
            scale = scale * np.where(np.arange(most + 1) == 0, 2, 1)
            waves = np.moveaxis(out, d + 1, -1) * scale
        out = np.moveaxis(irfft(waves, n, axis=-1), -1, d + 1)
    return np.ascontiguousarray(out).reshape(len(out), *sizes)


def gather(T, num_functions):
    """Return the matrix (m, m) of products of sines from sums T (2 m_0 + 1, ...) of cosines."""
    D, m = len(num_functions), int(np.prod(num_functions))
    for count in num_functions:
        i = np.arange(1, count + 1)
        T = np.moveaxis(T, 0, -1)
        T = (T[..., abs(i[:, None] - i)] - T[..., i[:, None] + i]) / 2
    order = [2 * d + side for side in (0, 1) for d in range(D)]
    return np.ascontiguousarray(T.transpose(order).reshape(m, m))


def gather_adjoint(S, num_functions):
    """Return the coefficients C (2 m_0 + 1, ...) of phi' S phi in products of cosines."""
    D = len(num_functions)
    order = [d + side for d in range(D) for side in (0, D)]
    C = S.reshape(*num_functions, *num_functions).transpose(order)
    for k in num_functions:
        left = C.reshape(k, k, -1)
        out = np.zeros((2 * k + 1, left.shape[2]))
        for i in range(k):
            out[: i + 1] += left[i, i::-1]
            out[1 : k - i] += left[i, i + 1 :]
            out[i + 2 : i + 2 + k] -= left[i]
        C = np.moveaxis(out.reshape(2 * k + 1, *C.shape[2:]) / 2, 0, -1)
    return np.ascontiguousarray(C)


class FourierSums:
    """Accumulated sums of rows: products Phi' W Phi as cosine sums, and cross products with Phi.

    Parameters
    ----------
    num_functions : tuple of int
    weights, values : int
        Numbers of rows of weights and of values.
    """

    def __init__(self, num_functions, weights, values):
        self.num_functions, self._weights = num_functions, weights
        self._grids = np.zeros((weights + values, *grid_sizes(num_functions)))

    def add(self, angles, weights, values):
        """Add rows: angles (D, n), weights (A, n) and values (P, n)."""
        both = np.ascontiguousarray(np.concatenate([weights, values]))
        kernels.spread_to_grid(angles, both, self._grids)

    def products(self):
        """Return the cosine sums (A, 2 m_0 + 1, ...) of the weights."""
        return sums_of_grids(self._grids[: self._weights], self.num_functions, sine=False)

    def crossed(self):
        """Return sums (P, m) of the values times the products of sines."""
        found = sums_of_grids(self._grids[self._weights :], self.num_functions, sine=True)
        return found.reshape(len(found), -1)


class FourierRows:
    """Values W phi(x) (P, n) and phi(x)' S phi(x) (A, n) at rows, 2 R 13^D flops each.

    Parameters
    ----------
    num_functions : tuple of int
    weights : (P, m)
    covariances : (A, m, m)
    """

    def __init__(self, num_functions, weights, covariances):
        sizes, shape = grid_sizes(num_functions), (len(weights), *num_functions)
        means = grids_of_series(weights.reshape(shape), num_functions, sizes, sine=True)
        self._means, self._grids = len(weights), means
        if len(covariances):
            series = np.stack([gather_adjoint(S, num_functions) for S in covariances])
            more = grids_of_series(series, num_functions, sizes, sine=False)
            self._grids = np.concatenate([means, more])

    def __call__(self, angles):
        found = kernels.interpolate_grid(angles, self._grids)
        return found[: self._means], found[self._means :]
