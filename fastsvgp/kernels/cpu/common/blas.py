"""SciPy's BLAS for row-major sub-blocks, callable from compiled code.

f2py copies every argument that is not a whole Fortran-ordered array; blocked algorithms need
sub-blocks in place. These wrappers call the same library (one BLAS, one thread pool) through
``scipy.linalg.cython_blas`` pointers, which compiled code finds by name.

Every array is 2-D with unit column stride and any row stride. A row-major matrix is the
column-major matrix of its transpose. Therefore each wrapper states the row-major operation and
calls the library for the transposed one: lower becomes upper, left becomes right, C = A B becomes
C' = B' A'.
"""

from .ahead import BLAS
from .compiled import blas_symbols, intrinsic, ir, kernel, njit

blas_symbols([prefix + name for prefix in "ds" for name in BLAS])
N, T, U, L, R = (ord(c) for c in "NTULR")


@intrinsic
def _call(typingctx, name, pattern, letters, numbers, alpha, beta, x, y, z):
    """Call a function of BLAS, all of whose arguments are addresses, in the order of ``pattern``.

    "c" stands for the next of ``letters``, "i" for the next of ``numbers``, "j" for the last one
    again, "a" and "b" for alpha and beta, "x", "y" and "z" for the elements of the arrays. All but
    these are on the stack.
    """
    from numba.core import cgutils, types

    if not all(hasattr(text, "literal_value") for text in (name, pattern)):
        return None  # Numba asks again with the constants

    def codegen(context, builder, signature, args):
        word, real = ir.IntType(64), context.get_value_type(z.dtype)

        def unpacked(i, kind):
            values = cgutils.unpack_tuple(builder, args[i], signature.args[i].count)
            return [put(builder.trunc(v, kind), kind) for v in values]

        def put(value, kind):
            place = cgutils.alloca_once(builder, kind)
            builder.store(value, place)
            return builder.ptrtoint(place, word)

        def number(value):
            return put(value if real == value.type else builder.fptrunc(value, real), real)

        def elements(array, value):
            return builder.ptrtoint(context.make_array(array)(context, builder, value).data, word)

        counts = unpacked(3, ir.IntType(32))
        known = {"c": unpacked(2, ir.IntType(8)), "i": list(counts), "j": counts[-1:]}
        known |= {"a": [number(args[4])], "b": [number(args[5])]}
        for letter, array, value in zip("xyz", (x, y, z), args[6:], strict=True):
            known[letter] = [elements(array, value)]
        addresses = [known[letter].pop(0) for letter in pattern.literal_value]
        kind = ir.FunctionType(ir.VoidType(), [word] * len(addresses))
        symbol = f"fastsvgp_{'d' if z.dtype == types.float64 else 's'}{name.literal_value}"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, symbol), addresses)
        return context.get_dummy_value()

    real = types.float64
    return types.void(name, pattern, letters, numbers, real, real, x, y, z), codegen


@njit
def _ld(A):
    return max(A.strides[0] // A.itemsize, A.shape[1], 1)


@kernel("M M M i i x x")
def gemm(A, B, C, trans_a, trans_b, alpha, beta):
    """C := alpha op(A) op(B) + beta C; 2 m n k flops."""
    m, n = C.shape
    k = A.shape[0] if trans_a == T else A.shape[1]
    if m > 0 and n > 0:
        sizes = n, m, k, _ld(B), _ld(A), _ld(C)
        _call("gemm", "cciiiaxiyibzi", (trans_b, trans_a), sizes, alpha, beta, B, A, C)


@kernel("M R1 R1 i")
def gemv(A, x, y, trans):
    """y := op(A) x; 2 m n flops."""
    m, n = A.shape
    if m > 0 and n > 0:
        letter = N if trans == T else T
        _call("gemv", "ciiaxiyibzj", (letter,), (n, m, _ld(A), 1), 1.0, 0.0, A, x, y)


@kernel("M M i x x")
def syrk(A, C, trans, alpha, beta):
    """Lower triangle of C := alpha A A' + beta C (``trans`` = T: A' A); n n k flops."""
    n = C.shape[0]
    k = A.shape[0] if trans == T else A.shape[1]
    if n > 0:
        letters = U, N if trans == T else T
        _call("syrk", "cciiaxibzi", letters, (n, k, _ld(A), _ld(C)), alpha, beta, A, A, C)


@njit("M M M x x")
def syr2k(A, B, C, alpha, beta):
    """Lower triangle of C := alpha (A' B + B' A) + beta C; 2 n n k flops."""
    n, k = C.shape[0], A.shape[0]
    if n > 0:
        sizes = n, k, _ld(A), _ld(B), _ld(C)
        _call("syr2k", "cciiaxiyibzi", (U, N), sizes, alpha, beta, A, B, C)


@njit("M M M x x")
def symm(S, B, C, alpha, beta):
    """C := alpha S B + beta C with S symmetric, lower triangle read; 2 m m n flops."""
    m, n = C.shape
    if m > 0 and n > 0:
        sizes = n, m, _ld(S), _ld(B), _ld(C)
        _call("symm", "cciiaxiyibzi", (R, U), sizes, alpha, beta, S, B, C)


@kernel("M M i i x")
def trmm(L_, B, left, trans, alpha):
    """B := alpha op(L) B (``left``) or alpha B op(L), L lower; m m n (n n m) flops."""
    m, n = B.shape
    if m > 0 and n > 0:
        letters, sizes = (R if left else L, U, trans, N), (n, m, _ld(L_), _ld(B))
        _call("trmm", "cccciiaxizi", letters, sizes, alpha, 0.0, L_, B, B)


@njit("M M i i x")
def trsm(L_, B, left, trans, alpha):
    """B := alpha op(L)^-1 B (``left``) or alpha B op(L)^-1, L lower; m m n (n n m) flops."""
    m, n = B.shape
    if m > 0 and n > 0:
        letters, sizes = (R if left else L, U, trans, N), (n, m, _ld(L_), _ld(B))
        _call("trsm", "cccciiaxizi", letters, sizes, alpha, 0.0, L_, B, B)
