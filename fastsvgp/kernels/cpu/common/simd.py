"""Explicit SIMD: four numbers, eight, or a cache line at a time, where LLVM does not vectorise.

LLVM vectorises a loop over a row if the row is long. Rows of ten columns stay scalar, and every
further right-hand side reads the row again. Here the lanes are explicit: a ``Lanes`` of four or
eight is one register (two, on machines with narrow ones). All functions take a ``pointer`` to the
first element of a contiguous array and an index relative to it, without bounds checks.

The reason for pointers is that Numba counts references to arrays: unless it can prove that this is
unnecessary, an inlined call increments and decrements a count, in instructions that stall all
others: rows of a hundred columns took 2.5 times as long. The caller keeps the array alive: as an
argument of its own, or by using it again after the last use of the pointer.
"""

import functools

from .compiled import intrinsic, ir, types


@functools.cache
def _lanes():
    """Return the type, which Numba must know before it compiles."""
    from numba.core import types
    from numba.extending import models, register_model

    class Lanes(types.Type):
        def __init__(self, dtype, count):
            self.dtype, self.count = dtype, count
            super().__init__(f"Lanes({dtype}, {count})")

    @register_model(Lanes)
    class _LanesModel(models.PrimitiveModel):
        def __init__(self, manager, kind):
            element = manager.lookup(kind.dtype).get_value_type()
            super().__init__(manager, kind, ir.VectorType(element, kind.count))

    return Lanes


def Lanes(dtype, count):
    return _lanes()(dtype, count)


def _pick(builder, a, b, *lanes):
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
    )


def _place(context, builder, lanes, at, i):
    return builder.bitcast(builder.gep(at, [i]), context.get_value_type(lanes).as_pointer())


@intrinsic
def pointer(typingctx, array):
    """Return the address of the elements of a contiguous 1-D array."""
    make = lambda context, builder, signature, args: (  # noqa: E731
        context.make_array(array)(context, builder, args[0]).data
    )
    return types.CPointer(array.dtype)(array), make


@intrinsic
def shifted(typingctx, at, i):
    """Return the pointer to element i."""
    return at(at, types.intp), lambda context, builder, signature, args: builder.gep(
        args[0], [args[1]]
    )


def _for_lanes(count):
    """Return ``zeros``, ``load`` and ``splat`` for ``count`` lanes.

    ``count`` is a number or a function of the dtype.
    """
    of = count if callable(count) else lambda dtype: count

    @intrinsic
    def zeros(typingctx, at):
        """Zeros of the dtype that ``at`` points to."""
        lanes = Lanes(at.dtype, of(at.dtype))
        return lanes(at), lambda context, builder, signature, args: ir.Constant(
            context.get_value_type(lanes), None
        )

    @intrinsic
    def load(typingctx, at, i):
        """Elements i, i + 1, ..."""
        lanes = Lanes(at.dtype, of(at.dtype))

        def codegen(context, builder, signature, args):
            return builder.load(
                _place(context, builder, lanes, *args), align=at.dtype.bitwidth // 8
            )

        return lanes(at, types.intp), codegen

    @intrinsic
    def splat(typingctx, at, i):
        """Element i in all lanes."""
        lanes = Lanes(at.dtype, of(at.dtype))

        def codegen(context, builder, signature, args):
            x, nothing = (
                builder.load(builder.gep(args[0], [args[1]])),
                ir.Constant(context.get_value_type(lanes), ir.Undefined),
            )
            return _pick(
                builder,
                builder.insert_element(nothing, x, ir.IntType(32)(0)),
                nothing,
                *[0] * lanes.count,
            )

        return lanes(at, types.intp), codegen

    return zeros, load, splat


zeros, load, splat = _for_lanes(4)
eight_zeros, load_eight, splat_eight = _for_lanes(8)
line_zeros, load_line, splat_line = _for_lanes(lambda dtype: 512 // dtype.bitwidth)
zero, load_one, _ = _for_lanes(1)  # for the remainder of a row


@intrinsic
def gather(typingctx, at, a, b, c, d):
    """Elements a, b, c, d."""
    lanes = Lanes(at.dtype, 4)

    def codegen(context, builder, signature, args):
        four = ir.Constant(context.get_value_type(lanes), ir.Undefined)
        for lane, i in enumerate(args[1:]):
            four = builder.insert_element(
                four, builder.load(builder.gep(args[0], [i])), ir.IntType(32)(lane)
            )
        return four

    return lanes(at, *[types.intp] * 4), codegen


@intrinsic
def store(typingctx, at, i, lanes):
    """Set elements i, i + 1, ... to ``lanes``."""

    def codegen(context, builder, signature, args):
        builder.store(
            args[2], _place(context, builder, lanes, *args[:2]), align=at.dtype.bitwidth // 8
        )
        return context.get_dummy_value()

    return types.void(at, types.intp, lanes), codegen


@intrinsic
def scatter(typingctx, at, a, b, c, d, four):
    """Set elements a, b, c, d to ``four``."""

    def codegen(context, builder, signature, args):
        for lane, i in enumerate(args[1:5]):
            builder.store(
                builder.extract_element(args[5], ir.IntType(32)(lane)), builder.gep(args[0], [i])
            )
        return context.get_dummy_value()

    return types.void(at, *[types.intp] * 4, four), codegen


@intrinsic
def add(typingctx, a, b):
    """a + b"""
    return a(a, a), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def subtract(typingctx, a, b):
    """a - b"""
    return a(a, a), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def multiply(typingctx, a, b):
    """a b"""
    return a(a, a), lambda context, builder, signature, args: builder.fmul(
        *args, flags=("contract",)
    )


@intrinsic
def multiply_add(typingctx, a, b, c):
    """a b + c, rounded once if the machine supports it"""

    def codegen(context, builder, signature, args):
        product = builder.fmul(*args[:2], flags=("contract",))
        return builder.fadd(product, args[2], flags=("contract",))

    return a(a, a, a), codegen


@intrinsic
def halves(typingctx, eight):
    """The first four lanes plus the last four."""

    def codegen(context, builder, signature, args):
        return builder.fadd(
            _pick(builder, *args, *args, 0, 1, 2, 3), _pick(builder, *args, *args, 4, 5, 6, 7)
        )

    return Lanes(eight.dtype, 4)(eight), codegen


@intrinsic
def total(typingctx, a):
    """The sum of all lanes; their number is a power of two."""

    def codegen(context, builder, signature, args):
        sums, count = args[0], a.count
        while count > 1:
            count //= 2
            low, high = (
                _pick(builder, sums, sums, *range(count)),
                _pick(builder, sums, sums, *range(count, 2 * count)),
            )
            sums = builder.fadd(low, high)
        return builder.extract_element(sums, ir.IntType(32)(0))

    return a.dtype(a), codegen


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
def prefetch(typingctx, at, i, ahead):
    """Prefetch the cache line ``ahead`` bytes beyond element i, which need not exist."""

    def codegen(context, builder, signature, args):
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.gep(builder.bitcast(builder.gep(args[0], [args[1]]), byte), [args[2]])
        builder.call(fetch, [place, word(0), word(3), word(1)])  # read, keep in cache, data
        return context.get_dummy_value()

    return types.void(at, types.intp, types.intp), codegen
