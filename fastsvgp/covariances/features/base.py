"""Contract of the features of a covariance."""

import numpy as np

from ...errors import not_written

WORD = 2**64 - 1


class Features:
    """Base of features Phi of a covariance: Phi(x) w, w ~ N(0, I), is a function of the prior.

    ``size`` is the number of weights of a function. Points X are (N, D), the same for all S
    functions, or (S, n, D), own ones of each. Random features belong to one seed for all functions,
    or to one per function, and are the same for the same seed.

    Features of a covariance whose inducing variables are not values of the function also provide
    ``multiply_inducing(inducing, w)``, the inducing variables (S, P, M) of the functions.
    """

    size: int

    def multiply(self, X, w):
        """Return the values (S, P, n) of functions with the weights w (S, P, size)."""
        raise not_written(self, "multiply", "covariance")

    def multiply_vjp(self, out_bar, X, w):
        """Return the cotangent of X, in its shape, for that of the values (S, P, n)."""
        raise not_written(self, "multiply_vjp", "covariance")


def part_seeds(seeds, number):
    """Return seeds of the features of part ``number``, which are independent of other parts'.

    The finaliser of SplitMix64 (Steele, Lea & Flood 2014) mixes the bits of seed and number.
    """
    if np.ndim(seeds):
        return np.array([part_seeds(seed, number) for seed in seeds.tolist()], np.uint64)
    z = (int(seeds) + (number + 1) * 0x9E3779B97F4A7C15) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)
