"""Fused Adam update of flat parameter vectors."""

from ..runtime.dispatch import operation


@operation("vector", "vector_bar", "first", "second", "*out")
def adam(vector, vector_bar, first, second, out, *, step_size, beta1, beta2, epsilon, count):
    """Take one ascent step of Adam (Kingma & Ba 2015, algorithm 1, sign reversed) in one pass.

    ``first <- beta1 first + (1 - beta1) g``, ``second <- beta2 second + (1 - beta2) g^2`` and
    ``vector <- vector + step_size m / (sqrt(v) + epsilon)`` with ``m = first / (1 - beta1^count)``,
    ``v = second / (1 - beta2^count)``.

    Parameters
    ----------
    vector, vector_bar, first, second : (n,) float64
        Parameters, gradient g of the objective to maximise, and the two moments. Modified only if
        ``out`` holds them.
    out : tuple of three (n,) float64
        Receives the new ``vector``, ``first`` and ``second``.
    count : int
        Number of this step, from 1. On a GPU, ``count`` and ``step_size`` may also be 0-d arrays
        there.

    Cost: 13 flops, one square root and one division per entry.
    """
