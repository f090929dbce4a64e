"""Step size for the mean of the weights: its curvature, and the noise of sampled gradients.

*Curvature.* With Gaussian noise s^2 and S = I minus the Hessian of the bound is phi' phi / s^2 + I.
Its largest eigenvalue is that of phi phi' / s^2 + I, and phi phi' is about K. That of K over N data
is about N / n times that over n of them, because both estimate the same eigenvalue of the
covariance as an operator (Williams and Seeger 2000). K has no negative entries here, so its first
eigenvector has none, and powers of K find it from a vector of ones.

*Noise.* A sample of one of w functions, each with the weight w, sees f(x) with the variance (w - 1)
sum_i phi_i^2 mu_i^2, about (w - 1) (v / m) |mu|^2 with the prior variance v = k(x, x), of which a
kriged control leaves a part rho. In the gradient w phi_i' r N / (n s^2) of the other sample, of m /
w functions at n data, this is noise of the squared size

    (m / w) w^2 (N / (n s^2))^2 n (v / m) rho (w - 1) (v / m) |mu|^2
        = rho (w - 1) (N v / s^2)^2 / (n m / w) |mu|^2.

So it grows with the mean that it disturbs. Steps of size h with the momentum beta add it to |mu|^2
times h^2 / (1 - beta)^2, and a growth of more than a small part in each step would not end.
"""

from typing import NamedTuple

import numpy as np

from .. import kernels

POWERS = 30
GROWTH = 0.003  # of |mu|^2 in a step, at most, from the noise of samples


class SampleSizes(NamedTuple):
    """Numbers of a training: all data, those of a step, functions of a side, of all functions."""

    num_data: int
    batch: int
    functions: int
    all_functions: int


def largest_step_size(covariance, X, noise, sizes, momentum, control=None):
    """Return the step size of ascent with momentum for the mean of random features.

    Parameters
    ----------
    X : (r, D)
        Some of the data.
    sizes : ``SampleSizes``
    control : KrigedControl or PairedControl, optional

    Notes
    -----
    r^2 covariances and 60 r^2 flops; with a kriged control p r covariances and p^2 r flops.
    """
    largest = largest_curvature(covariance, X, noise, sizes.num_data)
    prior = covariance.kff(X)
    scale = float(prior.mean()) * sizes.num_data / noise
    share = 1.0 if control is None else _unexplained(control, X, prior)
    weight = sizes.all_functions / sizes.functions
    rate = share * (weight - 1) * scale**2 / (sizes.batch * sizes.functions)
    by_noise = (1 - momentum) * np.sqrt(GROWTH / rate) if rate > 0 else np.inf
    return float(min(1 / largest, by_noise))


def largest_curvature(covariance, X, noise, num_data):
    """Estimate the largest eigenvalue of minus the Hessian from rows X (r, D)."""
    K = covariance.Kff(X)
    v = np.zeros((1, len(X)), K.dtype, like=K) + 1
    for _ in range(POWERS):
        v = v / np.sqrt((v * v).sum())
        power = kernels.matmul(v, K)
        v, largest = power, (power * v).sum()
    return float(largest) * num_data / len(X) / noise + 1.0


def _unexplained(control, X, prior):
    """Return the part of the variance at X that the points of a control leave."""
    cross = control.cross_covariance(X)
    if cross is None:
        return 1.0
    half = kernels.solve_triangular(control.factor, cross, overwrite_b=True)
    left = 1 - float((np.square(half).sum(axis=0) / prior).mean())
    return min(max(left, 0.0), 1.0)
