"""CPU twins: Numba and SciPy's BLAS/LAPACK. Reached through the front door, ``fastsvgp.kernels``."""
