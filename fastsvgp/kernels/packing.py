"""Lower triangles as flat rows, and back."""

from ..runtime.dispatch import family

twin = family("packing")


def pack_tril(A, out):
    """Write the lower triangles of ``A`` (..., M, M), row by row, to ``out`` (..., M (M + 1) / 2).

    The strict upper triangle is never read. ``out`` is C-contiguous and may have another dtype than
    ``A``. Its reverse rule is ``unpack_tril``. No flops; one pass.
    """
    return twin(A=A, out=out).pack_tril(A, out)


def unpack_tril(packed, size, dtype):
    """New lower-triangular matrices (..., size, size) of ``dtype`` from ``packed`` (..., size (size + 1) / 2), row by row.

    ``packed`` is C-contiguous. The strict upper triangle is zero. The reverse rule is
    ``pack_tril``. No flops; one pass.
    """
    return twin(packed=packed).unpack_tril(packed, size, dtype)
