"""Products with a chevron factor: lower triangular, k dense columns, then only a diagonal.

C (m, m) has k dense columns, ``dense`` (m, k), and the diagonal of the rest, ``diagonal`` (m - k,):
C[i, j] = dense[i, j] for j <= min(i, k - 1), C[i, i] = diagonal[i - k] for i >= k, and 0 elsewhere.
Entries of ``dense`` above the diagonal of its first k rows are never read, and their cotangents are
0. Right-hand sides are leading axes.

The rows of ``dense`` are contiguous, with any distance between them. If that distance is a multiple
of 16 bytes (k a multiple of 4 in float32, of 2 in float64, or rows padded to it) the CUDA
kernels load 128 bits at a time. Indices have 64 bits: m may be 1e7 and more.

float32 sums over rows are kept in float64. Every sum has a fixed order (on the CPU for a given
number of threads), so results repeat to the bit.

``rows`` (n,) names rows of C; repeats are allowed. An index out of range raises ``IndexError`` on
the CPU; on a device only with FASTSVGP_CUDA_CHECK=1 in the environment, because the check has to
wait for the device.
"""

from ..runtime.dispatch import family

twin = family("chevron")


def chevron_multiply(dense, diagonal, z, transpose=False):
    """Compute ``C z``, or ``C' z`` with ``transpose``, for z (..., m).

    Bound by one read of ``dense``; 2 m k flops per right-hand side.
    """
    return twin(dense=dense, diagonal=diagonal, z=z).multiply(dense, diagonal, z, transpose)


def chevron_multiply_vjp(y_bar, dense, diagonal, z, transpose=False):
    """Cotangents ``(dense_bar, diagonal_bar, z_bar)`` of ``chevron_multiply``.

    The first two are the places of C in ``y_bar z'`` (with ``transpose`` ``z y_bar'``), summed over
    the right-hand sides; z_bar is ``C' y_bar`` (``C y_bar``). One read of ``dense`` and one write
    of its cotangent.
    """
    module = twin(y_bar=y_bar, dense=dense, diagonal=diagonal, z=z)
    u, v = (z, y_bar) if transpose else (y_bar, z)
    return *module.outer(dense.shape[1], u, v), module.multiply(
        dense, diagonal, y_bar, not transpose
    )


def chevron_gram(dense, diagonal, x):
    """Compute ``C (C' x)`` for x (..., m).

    Two reads of ``dense``, 4 m k flops per right-hand side.
    """
    module = twin(dense=dense, diagonal=diagonal, x=x)
    return module.multiply(dense, diagonal, module.multiply(dense, diagonal, x, True), False)


def chevron_gram_vjp(y_bar, dense, diagonal, x):
    """Cotangents ``(dense_bar, diagonal_bar, x_bar)`` of ``chevron_gram``.

    The first two are the places of C in ``y_bar (C' x)' + x (C' y_bar)'``; x_bar is
    ``C (C' y_bar)``. Two reads of ``dense`` and one write of its cotangent.
    """
    return twin(y_bar=y_bar, dense=dense, diagonal=diagonal, x=x).gram_vjp(
        y_bar, dense, diagonal, x
    )


def chevron_multiply_rows(dense, diagonal, rows, head, rest):
    """Compute the rows of ``C z`` named by ``rows``, (..., n), from the parts of z they multiply.

    Parameters
    ----------
    rows : (n,) integers
    head : (..., k)
        The first k entries of z.
    rest : (..., n)
        ``z[rows]``; entries whose row is below k are not used.
    """
    module = twin(dense=dense, diagonal=diagonal, rows=rows, head=head, rest=rest)
    return module.multiply_rows(dense, diagonal, rows, head, rest)


def chevron_multiply_rows_vjp(y_bar, dense, diagonal, rows, head, rest):
    """Cotangents ``(dense_bar, diagonal_bar, head_bar, rest_bar)`` of ``chevron_multiply_rows``.

    The first two, (n, k) and (n,), are what each named row adds to the cotangents of
    ``dense[rows]`` and ``diagonal[rows - k]`` (0 for rows below k). Repeated rows are not added up.
    """
    module = twin(y_bar=y_bar, dense=dense, diagonal=diagonal, rows=rows, head=head, rest=rest)
    head_bar, rest_bar = module.multiply_rows_transposed(dense, diagonal, rows, y_bar)
    return *module.outer_rows(rows, y_bar, head, rest), head_bar, rest_bar


def chevron_multiply_rows_transposed(dense, diagonal, rows, x):
    """Compute ``C[rows]' x`` for x (..., n), in two parts ``(head, rest)``.

    ``head`` (..., k) has its first k entries, ``rest`` (..., n) what each row adds at its own place
    ``rows[i]`` (0 for rows below k).
    """
    return twin(dense=dense, diagonal=diagonal, rows=rows, x=x).multiply_rows_transposed(
        dense, diagonal, rows, x
    )


def chevron_multiply_rows_transposed_vjp(head_bar, rest_bar, dense, diagonal, rows, x):
    """Cotangents ``(dense_bar, diagonal_bar, x_bar)`` of ``chevron_multiply_rows_transposed``.

    The first two, (n, k) and (n,), are row by row as in ``chevron_multiply_rows_vjp``.
    """
    module = twin(
        head_bar=head_bar,
        rest_bar=rest_bar,
        dense=dense,
        diagonal=diagonal,
        rows=rows,
        x=x,
    )
    x_bar = module.multiply_rows(dense, diagonal, rows, head_bar, rest_bar)
    return *module.outer_rows(rows, x, head_bar, rest_bar), x_bar


def chevron_log_det(dense, diagonal, rows=None):
    """Compute ``sum_i log C_ii`` over all rows, or over ``rows``; 0-d, in float64.

    A negative entry makes it NaN, a zero -infinity.
    """
    return twin(dense=dense, diagonal=diagonal, rows=rows).log_det(dense, diagonal, rows)


def chevron_log_det_vjp(log_det_bar, dense, diagonal, rows=None):
    """Cotangents of the diagonal entries C_ii, (m,) or (n,): ``log_det_bar / C_ii``.

    They belong to ``dense[i, i]`` for i below k, else to ``diagonal[i - k]``.
    """
    module = twin(log_det_bar=log_det_bar, dense=dense, diagonal=diagonal, rows=rows)
    return module.log_det_vjp(log_det_bar, dense, diagonal, rows)
