"""Some rows of arrays of millions: draw them, gather them, add them up, update them."""

from ..runtime.dispatch import operation


@operation("A", "rows", "out")
def gather_rows(A, rows, out):
    """Write ``A[rows]'`` to ``out`` (k, r), C-contiguous: rows of A (m, k), of any strides.

    Indices are not checked.
    """


@operation("*rows", "*values")
def sum_rows(rows, values):
    """Add up values by row: ``(distinct (u,), sums (u, ...))``, the rows increasing.

    Parameters
    ----------
    rows : tuple of (r,) integers
    values : tuple of (r, ...), one per entry of ``rows``
        Of one dtype and width, and of any strides.

    Notes
    -----
    Rows in order are merged in O(r). A device does not wait for the number of distinct rows: there
    u is the sum of all r, and the last row is repeated with zeros.
    """


@operation("array", "sums", "rows", "bar")
def adagrad_rows(array, sums, rows, bar, *, step_size, epsilon, positive=False, period=0):
    """Take a step of AdaGrad uphill for some rows of an array, in place, in one pass.

    Duchi, Hazan and Singer 2011: ``sums <- sums + g^2``, ``x <- x + step_size g / (sqrt(sums) +
    epsilon)``. Positive numbers move in the coordinate log x, where x g takes the place of g, and x
    is multiplied by the exponential.

    Parameters
    ----------
    array, sums : (m, k), C-contiguous
    rows : (r,) integers, none twice
        Not checked. On a device a row can be repeated right after itself; it is then skipped.
    bar : (r, k) C-contiguous
    positive : bool
        Whether all numbers are positive.
    period : int
        Entry ``i % period`` of row i, if it exists, is positive: M for the diagonals of factors
        (M, M). 0: none.

    Notes
    -----
    6 flops, one square root and one division per entry; an exponential for positive ones.
    """


@operation("like")
def stratified_units(num, size, seed, step, stream, like):
    """Draw one unit per block: ``(units (size,), widths (size,))``, the latter sizes of blocks.

    Block b is [b num // size, (b + 1) num // size) of ``num`` units; int64 and float64. A pure
    function of seed and step, of 64 bits, and of ``stream``, of 32: the same on a device. ``like``:
    an array on the device of the results.
    """
