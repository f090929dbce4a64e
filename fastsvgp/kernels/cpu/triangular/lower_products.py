"""Lower triangles of products with lower factors, by panels: all needed flops are in large gemms.

An operand called lower is read only up to its diagonal. Above the diagonal, results hold scratch in
blocks of a panel. In-place operations process the panels in an order that never overwrites input
that is still needed.

Measured against recursions with small leaves on two cores, in float64: L' A L and L S L' are 1.2 to
1.3 times as fast at n = 1000, about equal at n = 2000.
"""

from ..common import blas
from ..common.blas import N, T
from ..common.blocked import edge, panels
from ..common.compiled import kernel

# the second if a panel consists of rows of both the left operand and the result
PANEL, ROWS = 128, 192
NARROW = 64  # columns of a panel of a product of two lower factors
# size from which two halves with large products between them multiply two lower factors faster
SPLIT = 1024


@kernel("M M M")
def symmetric_times_lower(A, L, C):
    """C := tril(A L) for a symmetric A, lower triangle read; 2/3 n^3 flops.

    L is lower, with zeros above its diagonal.
    """
    n = A.shape[0]
    count = panels(n, PANEL)
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.symm(A[i:, i:], L[i:, i:j], C[i:, i:j], 1.0, 0.0)


@kernel("M M")
def lower_times(L, B):
    """B := tril(L B) in place, for a lower L; 2/3 n^3 flops."""
    n = L.shape[0]
    count = panels(n, ROWS)
    for p in range(count - 1, -1, -1):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.trmm(L[i:j, i:j], B[i:j, :j], True, N, 1.0)
        blas.gemm(L[i:j, :i], B[:i, :j], B[i:j, :j], N, N, 1.0, 1.0)


@kernel("M M")
def transposed_times(L, B):
    """B := tril(L' B) in place, for a lower L; n^3/3 flops.

    It reads the lower triangle of B; above it B holds finite scratch.
    """
    n = L.shape[0]
    count = panels(n, PANEL)
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.trmm(L[i:j, i:j], B[i:j, :j], True, T, 1.0)
        blas.gemm(L[j:, i:j], B[j:, :j], B[i:j, :j], T, N, 1.0, 1.0)


@kernel("M M")
def times_transposed(B, L):
    """B := tril(B L') in place, for a lower L; n^3/3 flops.

    It reads the lower triangle of B; above it B holds finite scratch.
    """
    n = L.shape[0]
    count = panels(n, PANEL)
    for p in range(count - 1, -1, -1):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.trmm(L[i:j, i:j], B[i:, i:j], False, T, 1.0)
        blas.gemm(B[i:, :i], L[i:j, :i], B[i:, i:j], N, T, 1.0, 1.0)


@kernel("M M")
def lower_times_lower(P, Q):
    """Q := P Q in place, both lower; n^3/3 flops.

    Q has zeros above its diagonal, and keeps them.
    """
    n = P.shape[0]
    if n > SPLIT:
        h = n // 2 // 8 * 8
        # [P11 0; P21 P22] [Q11 0; Q21 Q22] = [P11 Q11, 0; P22 Q21 + P21 Q11, P22 Q22]
        blas.trmm(P[h:, h:], Q[h:, :h], True, N, 1.0)
        for i in range(0, h, 2 * PANEL):
            j = min(i + 2 * PANEL, h)
            blas.gemm(P[h:, i:h], Q[i:h, i:j], Q[h:, i:j], N, N, 1.0, 1.0)
        lower_times_lower(P[:h, :h], Q[:h, :h])
        lower_times_lower(P[h:, h:], Q[h:, h:])
        return
    count, blocks = panels(n, ROWS), panels(n, PANEL)
    for b in range(blocks):
        left, right = edge(n, blocks, b), edge(n, blocks, b + 1)
        for p in range(count - 1, -1, -1):
            i, j = max(edge(n, count, p), left), edge(n, count, p + 1)
            if j <= left:
                break
            here = Q[i:j, left : min(right, j)]
            blas.trmm(P[i:j, i:j], here, True, N, 1.0)
            blas.gemm(P[i:j, left:i], Q[left:i, left : min(right, j)], here, N, N, 1.0, 1.0)


@kernel("M M M x")
def add_product(A, B, C, alpha):
    """C := C + alpha tril(A B); n^3 flops."""
    n = C.shape[0]
    count = panels(n, PANEL)
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.gemm(A[i:], B[:, i:j], C[i:, i:j], N, N, alpha, 1.0)


@kernel("M M M x")
def lower_product(A, B, C, beta):
    """Lower triangle of C := A B' + beta C for lower A and B with zeros above; n^3/3 flops.

    Above the diagonal C holds scratch within panels.
    """
    n = C.shape[0]
    count = panels(n, NARROW)
    for p in range(count):
        i, j = edge(n, count, p), edge(n, count, p + 1)
        blas.gemm(A[i:, :j], B[i:j, :j], C[i:, i:j], N, T, 1.0, beta)
