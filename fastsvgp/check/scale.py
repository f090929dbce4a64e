"""Scale of a bound: one object, made from ``num_data`` here, and by a rank for its own rows.

The bound of a process, or of one rank, is the data term of its rows times a factor, minus its part
of the KL term. The sum over the ranks is the bound of all rows.
"""

from .scalars import data_scale


class DataScale:
    """The scale of a process that has all rows of the call.

    kl : fraction of the KL term that is subtracted here
    partition : the rows of this rank among those of all ranks, or None
    rank, size : number of this rank from 0, and number of ranks
    alone : whether there are no other ranks, which must make the same all-reduces and reach the
        same posterior, bit for bit
    """

    kl, partition, alone = 1.0, None, True
    rank, size = 0, 1

    def __init__(self, num_data=None):
        self._num_data = num_data

    def factor(self, batch):
        """Return the factor of the data term for a batch of this number of rows."""
        return data_scale(self._num_data, batch)

    def all_reduce(self, *values, lower=()):
        """Return the sums of these values over the ranks, as a list.

        lower : places of the matrices of which only the lower triangles count
        """
        return list(values)

    def gather_rows(self, X, V):
        """Return X (N, D) and V (P, N) of the rows of all ranks."""
        return X, V

    def all_reduce_gradient(self, value, grad):
        """Return value and gradient, summed over the ranks."""
        return value, grad

    def all_reduce_natural(self, layer, value, negative):
        """Return the bound and a count, summed over the ranks; sum the pass's sums in place."""
        return value, negative


ALL_ROWS = DataScale()
