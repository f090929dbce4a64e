"""The dtypes of computation, and the default jitter of each."""

import functools

import numpy as np

DEFAULT_JITTER = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-4}


def common_dtype(*values, names=()):
    """Promote the dtypes of arrays as NumPy does: float64 or float32.

    Python numbers are weak; integers become float64. ``names``: names of the values in messages.
    """
    dtypes = {v.dtype for v in values if type(v) is not float and hasattr(v, "dtype")}
    result = _promote(frozenset(dtypes))
    if result not in DEFAULT_JITTER:
        culprits = [
            name
            for name, v in zip(names, values, strict=False)
            if getattr(v, "dtype", None) == result
        ]
        named = f"`{culprits[0]}`" if culprits else "arrays"
        raise TypeError(
            f"{named} must be float64 or float32 (integers become float64), got {result}; convert"
            " with astype"
        )
    return result


@functools.lru_cache(256)
def _promote(dtypes):
    floats = {np.dtype(np.float64) if d.kind in "iub" else d for d in dtypes}
    return np.result_type(*floats) if floats else np.dtype(np.float64)
