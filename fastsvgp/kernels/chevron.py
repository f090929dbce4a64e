"""Products with a chevron factor: lower triangular, k dense columns, then only a diagonal.

C (m, m) has k dense columns, ``dense`` (m, k), and the diagonal of the rest, ``diagonal`` (m - k,):
C[i, j] = dense[i, j] for j <= min(i, k - 1), C[i, i] = diagonal[i - k] for i >= k, and 0 elsewhere.
Entries of ``dense`` above the diagonal of its first k rows are never read. Indices have 64 bits: m
may be 1e7 and more.
"""

from ..runtime.dispatch import operation


@operation("dense", "diagonal", "z")
def chevron_multiply(dense, diagonal, z):
    """Compute ``C z`` for z (..., m), whose leading axes are right-hand sides.

    Bound by one read of ``dense``; 2 m k flops per right-hand side.
    """


@operation("dense", "diagonal")
def chevron_log_det(dense, diagonal):
    """Compute ``sum_i log C_ii``; 0-d, in float64.

    A negative entry makes it NaN, a zero -infinity. Results repeat to the bit (on the CPU for a
    given number of threads).
    """
