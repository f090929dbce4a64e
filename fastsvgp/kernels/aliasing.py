"""Whether an array that came in can receive a result."""


def check_out(out, **read):
    """Refuse an ``out`` that is not C-contiguous, or whose memory is that of an argument which is read while it is written."""
    if out is None:
        return
    if not out.flags.c_contiguous:
        raise ValueError(
            f"`out` must be C-contiguous, got shape {out.shape} with strides {out.strides}"
        )
    for name, a in read.items():
        if out.size and a.size and _overlap(_extent(out), _extent(a)):
            raise ValueError(
                f"`out` shares memory with `{name}`, which is read meanwhile; give it memory of"
                " its own"
            )


def _extent(a):
    """The first byte of an array and the one behind its last."""
    interface = (
        a.__cuda_array_interface__
        if hasattr(a, "__cuda_array_interface__")
        else a.__array_interface__
    )
    start, steps = (
        interface["data"][0],
        [(n - 1) * stride for n, stride in zip(a.shape, a.strides, strict=True)],
    )
    return (
        start + sum(min(step, 0) for step in steps),
        start + sum(max(step, 0) for step in steps) + a.itemsize,
    )


def _overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]
