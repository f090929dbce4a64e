"""Four numbers in one register, where LLVM does not vectorise: see ``sides``.

Arrays are contiguous and 1-D; indices are not checked.
"""

import functools

from ..common.compiled import intrinsic, ir, types


@functools.cache
def _kind():
    """Return the class of four lanes; Numba must know it before it compiles."""
    from numba.core import types
    from numba.extending import models, register_model

    class Four(types.Type):
        def __init__(self, dtype):
            self.dtype = dtype
            super().__init__(f"Four({dtype})")

    @register_model(Four)
    class _FourModel(models.PrimitiveModel):
        def __init__(self, manager, kind):
            real = manager.lookup(kind.dtype).get_value_type()
            super().__init__(manager, kind, ir.VectorType(real, 4))

    return Four


def Four(dtype):
    return _kind()(dtype)


def _place(context, builder, array, args):
    """Return the address of element ``args[1]`` of the array ``args[0]``."""
    return builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]])


def _four(context, builder, array, args):
    """Return the same as the address of a ``Four``."""
    kind = context.get_value_type(Four(array.dtype)).as_pointer()
    return builder.bitcast(_place(context, builder, array, args), kind)


def _pick(builder, a, b, *lanes):
    chosen = ir.Constant(ir.VectorType(ir.IntType(32), 4), list(lanes))
    return builder.shuffle_vector(a, b, chosen)


@intrinsic
def splat(typingctx, array, i):
    """Element i in all lanes."""

    def codegen(context, builder, signature, args):
        nothing = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        x = builder.load(_place(context, builder, array, args))
        return _pick(
            builder, builder.insert_element(nothing, x, ir.IntType(32)(0)), nothing, 0, 0, 0, 0
        )

    return Four(array.dtype)(array, types.intp), codegen


@intrinsic
def load(typingctx, array, i):
    """Elements i to i + 3."""

    def codegen(context, builder, signature, args):
        at = _four(context, builder, array, args)
        return builder.load(at, align=array.dtype.bitwidth // 8)

    return Four(array.dtype)(array, types.intp), codegen


@intrinsic
def store(typingctx, array, i, four):
    """Set elements i to i + 3."""

    def codegen(context, builder, signature, args):
        at = _four(context, builder, array, args)
        builder.store(args[2], at, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, four), codegen


@intrinsic
def multiply(typingctx, a, b):
    """a b"""
    return a(a, a), lambda context, builder, signature, args: builder.fmul(
        *args, flags=("contract",)
    )


@intrinsic
def add(typingctx, a, b):
    """a + b; of a product in one rounding, if the machine supports it"""
    return a(a, a), lambda context, builder, signature, args: builder.fadd(
        *args, flags=("contract",)
    )


@intrinsic
def transposed(typingctx, a, b, c, d):
    """The first lanes of all, the second ones, ..."""

    def codegen(context, builder, signature, args):
        # a0 b0 a1 b1, c0 d0 c1 d1
        low = [_pick(builder, u, v, 0, 4, 1, 5) for u, v in (args[:2], args[2:])]
        high = [_pick(builder, u, v, 2, 6, 3, 7) for u, v in (args[:2], args[2:])]
        fours = [
            _pick(builder, *half, *lanes)
            for half in (low, high)
            for lanes in ((0, 1, 4, 5), (2, 3, 6, 7))
        ]
        return context.make_tuple(builder, signature.return_type, fours)

    return types.UniTuple(a, 4)(a, a, a, a), codegen


@intrinsic
def prefetch(typingctx, array, i, ahead):
    """Prefetch the cache line ``ahead`` bytes beyond element i, which need not exist."""

    def codegen(context, builder, signature, args):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        at = builder.bitcast(_place(context, builder, array, args), byte)
        builder.call(fetch, [builder.gep(at, [args[2]]), word(0), word(3), word(1)])  # read, keep
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp), codegen
