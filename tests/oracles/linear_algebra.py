"""Textbook linear algebra for small symmetric positive definite matrices of any dtype.

This includes dtypes that LAPACK does not have: extended precision, and complex numbers without
conjugation. Analytic functions of the arguments stay analytic, so complex steps differentiate them.
"""

import numpy as np


def cholesky(A):
    """Lower L with L L' = A, column by column."""
    L = np.zeros_like(A)
    for j in range(len(A)):
        column = A[j:, j] - L[j:, :j] @ L[j, :j]
        L[j:, j] = column / np.sqrt(column[0])
    return L


def solve_lower(L, B):
    """L^-1 B for lower triangular L, by forward substitution."""
    X = np.zeros(B.shape, np.result_type(L, B))
    for i in range(len(L)):
        X[i] = (B[i] - L[i, :i] @ X[:i]) / L[i, i]
    return X


def solve(A, B):
    """A^-1 B by both substitutions; an upper triangular matrix read backwards is a lower one."""
    L = cholesky(A)
    return solve_lower(L.T[::-1, ::-1], solve_lower(L, B)[::-1])[::-1]


def inverse(A):
    return solve(A, np.eye(len(A), dtype=A.dtype))


def log_det(A):
    return 2 * np.log(cholesky(A).diagonal()).sum()
