"""Convolutional covariances by definition: loops over windows and pairs of patches; any dtype."""

import numpy as np
from oracles import covariances


def places(geometry):
    H, W, _, h, w, stride = geometry
    return [(i, j) for i in range(0, H - h + 1, stride) for j in range(0, W - w + 1, stride)]


def gather(X, geometry):
    """(N, P, d)."""
    H, W, C, h, w, _ = geometry
    images = X.reshape(len(X), H, W, C)
    return np.stack(
        [images[:, i : i + h, j : j + w].reshape(len(X), -1) for i, j in places(geometry)], 1
    )


def sums(k, Z, X, A, geometry):
    """out[m, n] = sum_p A[m, p] k(z_m, x_n[p]); A (M, P) or (P,)."""
    return np.stack([(A * k(Z, patches)).sum(1) for patches in gather(X, geometry)], 1)


def pair_sums(k, X, B, geometry):
    """out[n] = sum_pq B[p, q] k(x_n[p], x_n[q]); B (P, P), or (P,) for b b'."""
    B = B if B.ndim == 2 else np.outer(B, B)
    return np.stack([(B * k(patches, patches)).sum() for patches in gather(X, geometry)])


# --- blocks of a record ``Convolutional``, known by its fields ----------------------------------


def parts(covariance, like):
    """``(geometry, weights (P,), places (P, 2), k of patches, l of places)``."""
    (H, W, *C), (h, w) = covariance.image_shape, covariance.patch_shape
    geometry = H, W, *(C or (1,)), h, w, covariance.stride
    where = np.array(places(geometry), like.real.dtype)
    weights = covariance.weights * np.ones(len(where), like.real.dtype)

    def of(part):
        return lambda a, b: 1 if part is None else covariances.matrix(part, a, b)

    return (
        geometry,
        weights,
        where,
        of(covariance.patch_covariance),
        of(covariance.location_covariance),
    )


def split(Z, geometry):
    _, _, C, h, w, _ = geometry
    return Z[:, : h * w * C], Z[:, h * w * C :]


def Kuu(covariance, U, V):
    geometry, _, _, k, of_place = parts(covariance, U)
    (Z, c), (Z2, c2) = split(U, geometry), split(V, geometry)
    return k(Z, Z2) * of_place(c, c2)


def Kuf(covariance, U, X):
    geometry, w, where, k, of_place = parts(covariance, X)
    Z, c = split(U, geometry)
    return sums(k, Z, X, w * of_place(c, where), geometry)


def Kff(covariance, X, Y):
    geometry, w, where, k, of_place = parts(covariance, X)
    B = np.outer(w, w) * of_place(where, where)
    return np.array(
        [[(B * k(x, y)).sum() for y in gather(Y, geometry)] for x in gather(X, geometry)]
    ).reshape(len(X), len(Y))
