"""Conversion between lower triangles and packed rows."""

from ..runtime.dispatch import family

twin = family("packing")


def pack_tril(A, out):
    """Write the lower triangles of ``A`` (..., M, M), row by row, to ``out`` (..., M (M + 1) / 2).

    The strict upper triangle is never read. ``out`` is C-contiguous; its dtype may differ from that
    of ``A``. The reverse rule is ``unpack_tril``. No flops; one pass.
    """
    return twin(A=A, out=out).pack_tril(A, out)


def unpack_tril(packed, size, dtype):
    """Unpack ``packed`` (..., size (size + 1) / 2) into new lower-triangular matrices of ``dtype``.

    The result is (..., size, size) with a zero strict upper triangle, filled row by row. ``packed``
    is C-contiguous. The reverse rule is ``pack_tril``. No flops; one pass.
    """
    return twin(packed=packed).unpack_tril(packed, size, dtype)
