"""Compute kernels: arrays in, arrays out, and no word about Gaussian processes.

This is the front door. Each operation is documented here once, with its reverse rule ``op_vjp(output_bar, ...)`` beside it;
the arrays decide whether the CPU twin (Numba, LAPACK) or the CUDA twin runs. Arguments are trusted: the checks for users sit
in ``fastsvgp.check``. Matrices may have any strides; results are C-contiguous and of the dtype of the arrays.
"""

from .dispatch import twin
