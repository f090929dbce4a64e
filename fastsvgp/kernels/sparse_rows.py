"""Some rows of arrays that may have millions: gathered, added up, updated."""

from ..runtime.dispatch import family

twin = family("sparse_rows")


def gather_rows(A, rows, out):
    """``A[rows]'`` into ``out`` (k, r), C-contiguous: the rows of A (m, k), of any strides, as columns. Indices are trusted."""
    return twin(A=A, rows=rows, out=out).gather_rows(A, rows, out)


def sum_rows(rows, values):
    """``(distinct (u,), sums (u, ...))``: the rows that are named, increasing, and what the values of each add up to.

    rows : tuple of (r,) integers.  values : tuple of as many (r, ...), of one dtype and width, and of any strides. Rows in order
    are merged in O(r). On a device, where nobody waits to know how many are distinct, u is the sum of all r: the last row comes
    again, with zeros.
    """
    named = {f"rows[{i}]": part for i, part in enumerate(rows)} | {
        f"values[{i}]": part for i, part in enumerate(values)
    }
    return twin(**named).sum_rows(rows, values)


def adagrad_rows(array, sums, rows, bar, *, step_size, epsilon, positive=False, period=0):
    """A step of AdaGrad uphill (Duchi, Hazan and Singer 2011) for some rows of an array, in place, in one pass.

    ``sums <- sums + g^2``, ``x <- x + step_size g / (sqrt(sums) + epsilon)``. Positive numbers move
    in the coordinate log x, where x g takes the place of g, and x is multiplied by the exponential.

    Parameters
    ----------
    array, sums : (m, k), C-contiguous
    rows : (r,) integers, none twice
        Trusted. On a device one may come again right after itself, and is passed over.
    bar : (r, k) C-contiguous
    positive : bool
        Whether all numbers are.
    period : int
        The entry ``i % period`` of row i, if there is one, is positive: M for the diagonals of
        factors (M, M). 0: none.

    Cost: 6 flops, one square root and one division an entry; an exponential for positive ones.
    """
    module = twin(array=array, sums=sums, rows=rows, bar=bar)
    module.adagrad_rows(array, sums, rows, bar, step_size, epsilon, positive, period)
