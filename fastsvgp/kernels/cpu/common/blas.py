"""SciPy's BLAS for row-major sub-blocks, callable from Numba code.

f2py copies every argument that is not a whole Fortran-ordered array; blocked algorithms need
sub-blocks in place. These wrappers call the same library (one BLAS, one thread pool) through
``scipy.linalg.cython_blas`` pointers. The pointers are registered by name, so Numba's on-disk cache
stays valid.

Every array is 2-D with unit column stride and any row stride. A row-major matrix is the
column-major matrix of its transpose. Therefore each wrapper states the row-major operation and
calls the library for the transposed one: lower becomes upper, left becomes right, C = A B becomes
C' = B' A'.
"""

import numpy as np
from llvmlite import binding
from numba import njit, types
from numba.extending import get_cython_function_address


def _external(name, arguments):
    symbols = []
    for prefix in "ds":
        symbol = f"fastsvgp_{prefix}{name}"
        binding.add_symbol(
            symbol, get_cython_function_address("scipy.linalg.cython_blas", prefix + name)
        )
        # every argument is an address; all supported platforms pass an address like an unsigned
        # integer
        symbols.append(types.ExternalFunction(symbol, types.void(*[types.uintp] * arguments)))
    return symbols


_dgemm, _sgemm = _external("gemm", 13)
_dgemv, _sgemv = _external("gemv", 11)
_dsyrk, _ssyrk = _external("syrk", 10)
_dsyr2k, _ssyr2k = _external("syr2k", 12)
_dsymm, _ssymm = _external("symm", 12)
_dtrmm, _strmm = _external("trmm", 11)
_dtrsm, _strsm = _external("trsm", 11)

N, T, U, L, R = (ord(c) for c in "NTULR")


def jit(*kinds, returns=types.void):
    """``njit`` for matrices of any row stride ("M"), flags ("i") and scalars ("x"), in both dtypes.

    Explicit signatures keep one compiled form per dtype, for whole arrays and sub-blocks alike.
    With the cache only the first import pays for compilation.
    """
    forms = []
    for real in (types.float64, types.float32):
        known = {
            "M": types.Array(real, 2, "A"),
            "v": types.Array(real, 1, "C"),
            "i": types.int64,
            "x": types.float64,
        }
        forms.append(returns(*(known[k] for k in kinds)))
    return njit(forms, nogil=True, cache=True)


@njit(nogil=True, cache=True)
def _pack(letters, numbers, alpha, beta, A):
    """Pack characters, integers and scalars into one small buffer each.

    The caller keeps them alive across the call.
    """
    chars = np.empty(4, np.uint8)
    for i in range(len(letters)):
        chars[i] = letters[i]
    ints = np.empty(8, np.int32)
    for i in range(len(numbers)):
        ints[i] = numbers[i]
    scalars = np.empty(2, A.dtype)
    scalars[0] = alpha
    scalars[1] = beta
    return chars, ints, scalars


@njit(nogil=True, cache=True)
def _ld(A):
    return max(A.strides[0] // A.itemsize, A.shape[1], 1)


@jit(*"MMMiixx")
def gemm(A, B, C, trans_a, trans_b, alpha, beta):
    """C := alpha op(A) op(B) + beta C; 2 m n k flops."""
    m, n = C.shape
    k = A.shape[0] if trans_a == T else A.shape[1]
    if m == 0 or n == 0:
        return
    chars, ints, s = _pack((trans_b, trans_a), (n, m, k, _ld(B), _ld(A), _ld(C)), alpha, beta, C)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    b = a + s.itemsize
    x, y, z = B.ctypes.data, A.ctypes.data, C.ctypes.data
    if C.itemsize == 8:
        _dgemm(c, c + 1, i, i + 4, i + 8, a, x, i + 12, y, i + 16, b, z, i + 20)
    else:
        _sgemm(c, c + 1, i, i + 4, i + 8, a, x, i + 12, y, i + 16, b, z, i + 20)
    chars[3], ints[7], s[0] = 0, 0, 0  # last use, so nothing is freed before the call returns


@jit(*"Mvvi")
def gemv(A, x, y, trans):
    """y := op(A) x; 2 m n flops."""
    m, n = A.shape
    if m == 0 or n == 0:
        return
    chars, ints, s = _pack((N if trans == T else T,), (n, m, _ld(A), 1), 1.0, 0.0, A)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    b = a + s.itemsize
    u, v, z = A.ctypes.data, x.ctypes.data, y.ctypes.data
    if A.itemsize == 8:
        _dgemv(c, i, i + 4, a, u, i + 8, v, i + 12, b, z, i + 12)
    else:
        _sgemv(c, i, i + 4, a, u, i + 8, v, i + 12, b, z, i + 12)
    chars[3], ints[7], s[0] = 0, 0, 0


@jit(*"MMixx")
def syrk(A, C, trans, alpha, beta):
    """Lower triangle of C := alpha A A' + beta C (``trans`` = T: A' A); n n k flops."""
    n = C.shape[0]
    k = A.shape[0] if trans == T else A.shape[1]
    if n == 0:
        return
    chars, ints, s = _pack((U, N if trans == T else T), (n, k, _ld(A), _ld(C)), alpha, beta, C)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    b = a + s.itemsize
    x, z = A.ctypes.data, C.ctypes.data
    if C.itemsize == 8:
        _dsyrk(c, c + 1, i, i + 4, a, x, i + 8, b, z, i + 12)
    else:
        _ssyrk(c, c + 1, i, i + 4, a, x, i + 8, b, z, i + 12)
    chars[3], ints[7], s[0] = 0, 0, 0


@jit(*"MMMxx")
def syr2k(A, B, C, alpha, beta):
    """Lower triangle of C := alpha (A' B + B' A) + beta C; 2 n n k flops."""
    n, k = C.shape[0], A.shape[0]
    if n == 0:
        return
    chars, ints, s = _pack((U, N), (n, k, _ld(A), _ld(B), _ld(C)), alpha, beta, C)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    b = a + s.itemsize
    x, y, z = A.ctypes.data, B.ctypes.data, C.ctypes.data
    if C.itemsize == 8:
        _dsyr2k(c, c + 1, i, i + 4, a, x, i + 8, y, i + 12, b, z, i + 16)
    else:
        _ssyr2k(c, c + 1, i, i + 4, a, x, i + 8, y, i + 12, b, z, i + 16)
    chars[3], ints[7], s[0] = 0, 0, 0


@jit(*"MMMxx")
def symm(S, B, C, alpha, beta):
    """C := alpha S B + beta C with S symmetric, lower triangle read; 2 m m n flops."""
    m, n = C.shape
    if m == 0 or n == 0:
        return
    chars, ints, s = _pack((R, U), (n, m, _ld(S), _ld(B), _ld(C)), alpha, beta, C)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    b = a + s.itemsize
    x, y, z = S.ctypes.data, B.ctypes.data, C.ctypes.data
    if C.itemsize == 8:
        _dsymm(c, c + 1, i, i + 4, a, x, i + 8, y, i + 12, b, z, i + 16)
    else:
        _ssymm(c, c + 1, i, i + 4, a, x, i + 8, y, i + 12, b, z, i + 16)
    chars[3], ints[7], s[0] = 0, 0, 0


@njit(nogil=True, cache=True)
def _triangular(solve, L_, B, left, trans, alpha):
    m, n = B.shape
    if m == 0 or n == 0:
        return
    chars, ints, s = _pack((R if left else L, U, trans, N), (n, m, _ld(L_), _ld(B)), alpha, 0.0, B)
    c, i, a = chars.ctypes.data, ints.ctypes.data, s.ctypes.data
    x, z = L_.ctypes.data, B.ctypes.data
    if B.itemsize == 8:
        if solve:
            _dtrsm(c, c + 1, c + 2, c + 3, i, i + 4, a, x, i + 8, z, i + 12)
        else:
            _dtrmm(c, c + 1, c + 2, c + 3, i, i + 4, a, x, i + 8, z, i + 12)
    else:
        if solve:
            _strsm(c, c + 1, c + 2, c + 3, i, i + 4, a, x, i + 8, z, i + 12)
        else:
            _strmm(c, c + 1, c + 2, c + 3, i, i + 4, a, x, i + 8, z, i + 12)
    chars[3], ints[7], s[0] = 0, 0, 0


@jit(*"MMiix")
def trmm(L_, B, left, trans, alpha):
    """B := alpha op(L) B (``left``) or alpha B op(L), L lower; m m n (n n m) flops."""
    _triangular(False, L_, B, left, trans, alpha)


@jit(*"MMiix")
def trsm(L_, B, left, trans, alpha):
    """B := alpha op(L)^-1 B (``left``) or alpha B op(L)^-1, L lower; m m n (n n m) flops."""
    _triangular(True, L_, B, left, trans, alpha)
