"""Nonuniform Fourier sums: values at angles go to a periodic grid, or come from one.

Grids are (R, n0, n1, n2), float64; D < 3 angles use the last D of these axes, and the others have
one point. Point l of an axis is at the angle 2 pi l / n. ``common.window`` has the window, of 13
points an axis; the two operations are each other's adjoint.
"""

from ..runtime.dispatch import operation


@operation("angles", "values", "grids")
def spread_to_grid(angles, values, grids):
    """Add each value times the window around its angles to ``grids``, in place.

    Parameters
    ----------
    angles : (D, N) float64
    values : (R, N) float64
    grids : (R, n0, n1, n2) float64, C-contiguous

    Notes
    -----
    2 R 13^D flops and 13 D exponentials per row. The result does not depend on the number of
    threads. A device adds whole numbers, of some 2^-60 of N times the largest value, so its result
    does not depend on their order either.
    """


@operation("angles", "grids")
def interpolate_grid(angles, grids):
    """Return sums (R, N) of the points of each grid times the window around the angles (D, N).

    2 R 13^D flops and 13 D exponentials per row.
    """
