"""Forms of kernels: the argument types that one is compiled for, written as text.

A form names the arguments in order, separated by spaces. R is the dtype of a call, float64 or
float32: a kernel has one compiled form for each.

========  =======================================================================================
``R2``    C-ordered array of R, here with two axes; ``X2`` of float64, ``I2`` of int64, ``U2`` of
          uint64, ``B2`` of bytes, ``T2`` of truth values; ``R2-`` is only read, and may be
          read-only
``M``     matrix of R of any strides; for BLAS its columns are contiguous
``r``     scalar of R; ``x`` float64, ``i`` int64, ``u`` uint64, ``b`` a truth value
``(...)`` tuple of these
========  =======================================================================================

A NamedTuple stands for itself; its class has a ``form``.
"""

ARRAYS = {"R": None, "X": "float64", "I": "int64", "U": "uint64", "B": "uint8", "T": "boolean"}
SCALARS = {"r": None, "x": "float64", "i": "int64", "u": "uint64", "b": "boolean"}


def parsed(*parts):
    """Return a form as a list of kinds: strings, and (class or None, list) for tuples."""
    kinds = []
    for part in parts:
        kinds += _words(part) if isinstance(part, str) else [(part, parsed(part.form))]
    return kinds


def _words(text):
    kinds, outer = [], []
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            outer.append(kinds)
            kinds = []
        elif word == ")":
            inner, kinds = kinds, outer.pop()
            kinds.append((None, inner))
        elif word in SCALARS or word == "M" or _is_array(word):
            kinds.append(word)
        else:
            raise ValueError(f"{word!r} is no kind of argument of a kernel, in {text!r}")
    return kinds


def _is_array(word):
    return word[0] in ARRAYS and word[1:].removesuffix("-").isdigit()


def place_of_dtype(kinds):
    """Return where the first array or scalar of R is, as indices; () if the form has none."""
    for letter in ("RM", "r"):
        for i, kind in enumerate(kinds):
            if isinstance(kind, tuple):
                inner = place_of_dtype(kind[1])
                if inner:
                    return (i, *inner)
            elif kind[0] in letter:
                return (i,)
    return ()


def signature(kinds, real):
    """Return Numba's types of a form for the dtype ``real``."""
    from numba.core import types

    def of(kind):
        if isinstance(kind, tuple):
            named, inner = kind
            members = [of(k) for k in inner]
            return types.NamedTuple(members, named) if named else types.Tuple(members)
        if kind in SCALARS:
            return getattr(types, SCALARS[kind] or real)
        if kind == "M":
            return types.Array(getattr(types, real), 2, "A")
        dtype, count = getattr(types, ARRAYS[kind[0]] or real), int(kind[1:].removesuffix("-"))
        return types.Array(dtype, count, "C", readonly=kind.endswith("-"))

    return tuple(of(kind) for kind in kinds)


def fits(declared, given):
    """Whether a call with arguments of types ``given`` may use the form of types ``declared``."""
    return len(declared) == len(given) and all(
        _fits(d, g, scalars=True) for d, g in zip(declared, given, strict=True)
    )


def _fits(declared, given, scalars):
    from numba.core import types

    if declared == given:
        return True
    if isinstance(declared, types.Array):
        return (
            isinstance(given, types.Array)
            and (given.dtype, given.ndim) == (declared.dtype, declared.ndim)
            and declared.layout in ("A", given.layout)
            and given.aligned
            and (given.mutable or not declared.mutable)
        )
    if isinstance(declared, types.BaseTuple):
        return (
            isinstance(given, types.BaseTuple)
            and getattr(given, "instance_class", None) == getattr(declared, "instance_class", None)
            and len(given) == len(declared)
            and all(_fits(d, g, False) for d, g in zip(declared, given, strict=True))
        )
    given = types.unliteral(given)
    return given == declared or (scalars and isinstance(given, (types.Number, types.Boolean)))
