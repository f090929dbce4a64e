"""Gradients against derivatives of definitions, these by a complex step: no difference is taken, so nothing cancels.

f(x + i h d) = f(x) + i h f'(x) d + O(h^2): at h = 1e-30 the imaginary part is the derivative to the
rounding of the definition, in extended precision where the platform has it, in float64 else. No
step size is to be chosen, and however large a value is, or however near to singular a covariance, a
derivative is as good as one evaluation. The definitions are analytic, without absolute values and
conjugates; see ``oracles/linear_algebra.py``.
"""

import numpy as np

from fastsvgp.records import leaves, replace_at, tree_map

STEP = 1e-30
CONDITION = 1e6  # by which a definition may round


def extended(a, dtype=np.longdouble):
    return np.asarray(a, dtype)[()]


def along(f, x, d):
    """Value of a real function ``f`` at ``x``, and its derivative along ``d``."""
    h = x.dtype.type(STEP)
    moved = f(x + 1j * h * d)
    return moved.real, moved.imag / h


def assert_derivative(f, x, bar, d, rtol=1e-10, name=""):
    """<bar, d> is the derivative, within ``rtol`` of |bar| |d| and the rounding of ``f``: no least size, no other argument's."""
    value, truth = along(f, x, d)
    found = np.vdot(bar, d)
    allowed = rtol * np.linalg.norm(bar) * np.linalg.norm(d) + CONDITION * np.finfo(
        x.dtype
    ).eps * abs(value)
    assert abs(found - truth) <= allowed, (name, found, truth)


def assert_gradient(definition, record, grad, rng, rtol=1e-10):
    """``grad`` holds the derivatives of ``definition(record)`` in every leaf, each judged alone along a random direction.

    Large records are moved in float64: extended precision has no BLAS, and takes a hundred times as
    long.
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
    """``some`` is the gradient ``whole`` in the fields of these dotted names, and nothing elsewhere."""
    every, found = (
        {path: bar for path, _, bar in leaves(grad) if bar is not None} for grad in (whole, some)
    )
    names = (names,) if isinstance(names, str) else names
    assert set(found) == {
        path for path in every if any(f"{path}.".startswith(f"{name}.") for name in names)
    }
    for path, bar in found.items():
        np.testing.assert_allclose(bar, every[path], rtol=rtol, atol=atol, err_msg=path)
