"""Forms of kernels: what the text means, and which calls one serves."""

from typing import Any, NamedTuple

import pytest
from numba.core import types

from fastsvgp.kernels.cpu.common import ahead, compiled, forms


class Pair(NamedTuple):
    form = "R1 i"
    row: Any
    count: Any


def test_text_and_classes_are_kinds():
    assert forms.parsed("i i", Pair, "M (R2 (x b)) U1") == [
        "i", "i", (Pair, ["R1", "i"]), "M", (None, ["R2", (None, ["x", "b"])]), "U1",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["q", "R", "M2", "Rx"])
def test_an_unknown_kind_is_named(text):
    with pytest.raises(ValueError, match=f"'{text}' is no kind of argument of a kernel, in 'i "):
        forms.parsed(f"i {text}")


def test_the_dtype_is_that_of_the_first_array():
    for form, place in (
        (("i r R2",), (2,)),
        (("i", Pair, "R2"), (1, 0)),
        (("M i",), (0,)),
        (("i r",), (1,)),
        (("X2 I1",), ()),
    ):
        assert forms.place_of_dtype(forms.parsed(*form)) == place


def test_signatures_in_both_dtypes():
    kinds = forms.parsed("M R1 X2 r x b", Pair)
    for real in ("float64", "float32"):
        R = getattr(types, real)
        row = types.Array(R, 1, "C")
        assert forms.signature(kinds, real) == (
            types.Array(R, 2, "A"),
            row,
            types.Array(types.float64, 2, "C"),
            R,
            types.float64,
            types.boolean,
            types.NamedTuple([row, types.int64], Pair),
        )


def test_which_calls_a_form_serves():
    f8 = types.float64
    form = forms.signature(forms.parsed("M R1 i", Pair), "float64")
    C, F, row = types.Array(f8, 2, "C"), types.Array(f8, 2, "F"), types.Array(f8, 1, "C")
    pair = types.NamedTuple([row, types.int64], Pair)

    def serves(*given):
        return forms.fits(form, given)

    assert serves(C, row, types.int64, pair) and serves(F, row, types.intc, pair)
    assert serves(C, row, types.literal(3), pair) and serves(C, row, f8, pair)
    assert not serves(C, row, types.int64)
    assert not serves(types.Array(types.float32, 2, "C"), row, types.int64, pair)
    assert not serves(C, types.Array(f8, 1, "A"), types.int64, pair)
    assert not serves(C, types.Array(f8, 1, "C", readonly=True), types.int64, pair)
    assert not serves(C, types.Array(f8, 1, "C", aligned=False), types.int64, pair)
    assert not serves(C, row, types.none, pair)
    (read,) = forms.signature(forms.parsed("R1-"), "float64")
    assert forms.fits([read], [row]) and forms.fits(
        [read], [types.Array(f8, 1, "C", readonly=True)]
    )
    assert not serves(C, row, types.int64, types.Tuple([row, types.int64]))
    assert not serves(C, row, types.int64, types.NamedTuple([row, types.int32], Pair))


def test_every_kernel_that_python_calls_declares_as_many_arguments_as_it_has():
    ahead.import_every_kernel()
    found = compiled.KERNELS
    wrong = [
        kernel.key
        for kernel in found.values()
        if kernel.kinds is not None and len(kernel.kinds) != kernel.py_func.__code__.co_argcount
    ]
    assert not wrong and sum(kernel.entry for kernel in found.values()) > 50
    assert all(kernel.kinds is not None for kernel in found.values() if kernel.entry)
