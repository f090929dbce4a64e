"""Four numbers at a time, where LLVM does not see by itself that it could.

It turns a loop over a row into vector code where the row is long. Rows of ten columns stay scalar, and every further right-hand
side reads the row again. Here the lanes are spelled out: a ``Four`` is one register (two, on machines with narrow ones), and
``load``, ``splat``, ``gather`` and ``store`` take elements of a contiguous 1-D array with no check and no counting from the end.
"""

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model


class Four(types.Type):
    def __init__(self, dtype):
        self.dtype = dtype
        super().__init__(f"Four({dtype})")


@register_model(Four)
class _FourModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(manager.lookup(kind.dtype).get_value_type(), 4))


def _element(context, builder, kind, array, i):
    return builder.gep(context.make_array(kind)(context, builder, array).data, [i])


def _vector(context, array):
    return ir.VectorType(context.get_value_type(array.dtype), 4)


def _four_elements(context, builder, kind, array, i):
    return builder.bitcast(_element(context, builder, kind, array, i), _vector(context, kind).as_pointer())


def _pick(builder, a, b, *lanes):
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 4), list(lanes)))


@intrinsic
def zeros(typingctx, array):
    """Four zeros of the dtype of ``array``."""
    return Four(array.dtype)(array), lambda context, builder, signature, args: ir.Constant(_vector(context, array), None)


@intrinsic
def load(typingctx, array, i):
    """array[i : i + 4]"""

    def codegen(context, builder, signature, args):
        return builder.load(_four_elements(context, builder, array, *args), align=array.dtype.bitwidth // 8)

    return Four(array.dtype)(array, types.intp), codegen


@intrinsic
def splat(typingctx, array, i):
    """array[i], four times"""

    def codegen(context, builder, signature, args):
        x, nothing = builder.load(_element(context, builder, array, *args)), ir.Constant(_vector(context, array), ir.Undefined)
        return _pick(builder, builder.insert_element(nothing, x, ir.IntType(32)(0)), nothing, 0, 0, 0, 0)

    return Four(array.dtype)(array, types.intp), codegen


@intrinsic
def gather(typingctx, array, a, b, c, d):
    """array[a], array[b], array[c], array[d]"""

    def codegen(context, builder, signature, args):
        four = ir.Constant(_vector(context, array), ir.Undefined)
        for lane, i in enumerate(args[1:]):
            x = builder.load(_element(context, builder, array, args[0], i))
            four = builder.insert_element(four, x, ir.IntType(32)(lane))
        return four

    return Four(array.dtype)(array, *[types.intp] * 4), codegen


@intrinsic
def store(typingctx, array, i, four):
    """array[i : i + 4] = four"""

    def codegen(context, builder, signature, args):
        builder.store(args[2], _four_elements(context, builder, array, *args[:2]), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, four), codegen


@intrinsic
def add(typingctx, a, b):
    """a + b"""
    return a(a, a), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def multiply(typingctx, a, b):
    """a b"""
    return a(a, a), lambda context, builder, signature, args: builder.fmul(*args, flags=("contract",))


@intrinsic
def multiply_add(typingctx, a, b, c):
    """a b + c, rounded once where the machine can"""

    def codegen(context, builder, signature, args):
        product = builder.fmul(*args[:2], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return a(a, a, a), codegen


@intrinsic
def transposed(typingctx, a, b, c, d):
    """The first lanes of all, the second ones, ..."""

    def codegen(context, builder, signature, args):
        low = [_pick(builder, u, v, 0, 4, 1, 5) for u, v in (args[:2], args[2:])]  # a0 b0 a1 b1, c0 d0 c1 d1
        high = [_pick(builder, u, v, 2, 6, 3, 7) for u, v in (args[:2], args[2:])]
        fours = [_pick(builder, *half, *lanes) for half in (low, high) for lanes in ((0, 1, 4, 5), (2, 3, 6, 7))]
        return context.make_tuple(builder, signature.return_type, fours)

    return types.UniTuple(a, 4)(a, a, a, a), codegen


@intrinsic
def prefetch(typingctx, array, i):
    """Ask for the cache line of array[i], which need not exist."""

    def codegen(context, builder, signature, args):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        pointer = builder.bitcast(_element(context, builder, array, *args), byte)
        builder.call(fetch, [pointer, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen
