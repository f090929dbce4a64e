"""Compare gradients with derivatives of definitions by a complex step.

f(x + i h d) = f(x) + i h f'(x) d + O(h^2): at h = 1e-30 the imaginary part is the derivative within
the rounding of the definition, in extended precision if the platform has it, else in float64. It
takes no difference, so nothing cancels and there is no step size to choose: for large values or
almost singular covariances a derivative is as accurate as one evaluation. The definitions are
analytic, without absolute values and conjugates; see ``oracles/linear_algebra.py``.
"""

import numpy as np

from fastsvgp.records import leaves, replace_at, tree_map

STEP = 1e-30
CONDITION = 1e6  # amplification of rounding in a definition


def extended(a, dtype=np.longdouble):
    return np.asarray(a, dtype)[()]


def along(f, x, d):
    """Return the value of a real function ``f`` at ``x``, and its derivative along ``d``."""
    h = x.dtype.type(STEP)
    moved = f(x + 1j * h * d)
    return moved.real, moved.imag / h


def assert_derivative(f, x, bar, d, rtol=1e-10, name=""):
    """Assert that <bar, d> is the derivative of ``f`` along d.

    The tolerance is ``rtol`` times |bar| |d|, and the rounding of ``f``. It has no absolute
    minimum, and does not depend on other arguments.
    """
    value, truth = along(f, x, d)
    found = np.vdot(bar, d)
    allowed = rtol * np.linalg.norm(bar) * np.linalg.norm(d) + CONDITION * np.finfo(
        x.dtype
    ).eps * abs(value)
    assert abs(found - truth) <= allowed, (name, found, truth)


def assert_gradient(definition, record, grad, rng, rtol=1e-10):
    """Assert that ``grad`` has the derivatives of ``definition(record)``, leaf by leaf.

    Each leaf is tested separately, along a random direction. Large records use float64: extended
    precision has no BLAS, and takes a hundred times as long.
    """
    large = sum(np.size(leaf) for _, _, leaf in leaves(record)) > 1000
    exact = tree_map(lambda a: extended(a, np.float64 if large else np.longdouble), record)
    bars = {path: bar for path, _, bar in leaves(grad)}
    for path, kind, leaf in leaves(exact):
        if leaf is None:
            continue
        assert np.shape(bars[path]) == leaf.shape, path
        d = rng.standard_normal(leaf.shape)
        if kind == "tril":
            d = np.tril(d)
        elif kind == "symmetric":
            d = np.tril(d) + np.tril(d, -1).swapaxes(-1, -2)
        elif path == "Kuu":
            d = d + d.T
        assert_derivative(
            lambda x, path=path: definition(replace_at(exact, path, x)),
            leaf,
            bars[path],
            d,
            rtol,
            path,
        )


def assert_restricted(some, whole, names, rtol=1e-12, atol=0.0):
    """Assert that ``some`` equals ``whole`` in the fields ``names``, and is None elsewhere."""
    every, found = (
        {path: bar for path, _, bar in leaves(grad) if bar is not None} for grad in (whole, some)
    )
    names = (names,) if isinstance(names, str) else names
    assert set(found) == {
        path for path in every if any(f"{path}.".startswith(f"{name}.") for name in names)
    }
    for path, bar in found.items():
        np.testing.assert_allclose(bar, every[path], rtol=rtol, atol=atol, err_msg=path)
