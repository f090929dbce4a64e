"""The bound as a JAX function, for ``jit``, ``grad`` (once), ``jvp``, ``vmap`` and ``scan``.

JAX sees a callback to the host and its derivative rule. One call of ``fastsvgp.elbo_and_grad``
computes value and gradients together. The callback first converts its arguments to NumPy arrays,
because a JAX call inside it can deadlock: it waits for the thread that runs the callback
(https://github.com/jax-ml/jax/issues/24255).

A process that can use only one processor has only that thread, and JAX also copies large arguments
of a callback on it. The process then deadlocks in any callback. This module therefore gives JAX a
second thread if JAX has not started yet. If it has, the callback detects that its arguments do not
arrive, and raises with advice.
"""

import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..bounds.objectives import elbo, elbo_and_grad
from ..optim.flat import Unravel
from ..runtime.deferred_checks import on_device
from .options import refuse_following

PATIENCE = 60.0  # seconds to wait for arguments; copying them takes less than one

if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    # the number of threads of JAX's CPU client, read when the first array is made
    os.environ.setdefault("NPROC", "2")


def bound(unravel, num_data=None, **options):
    """Return the evidence lower bound as a JAX function of the vector of ``fastsvgp.ravel``, X, Y.

    Parameters
    ----------
    unravel : callable
        From ``vector, unravel = fastsvgp.ravel(model)``, for a model on the host: an SVGP, or
        another kind that has ``elbo_and_grad`` with ``inputs``, such as a MultiGP.
    num_data : float, optional
        Size of the whole data set, as in ``fastsvgp.elbo_and_grad``.
    **options
        ``jitter``, ``weights``, ``rng`` (an integer, because JAX can call any number of times) and
        other options of ``elbo``. Arrays among them are constants: ``bound`` can be called inside a
        function that JAX transforms, but options cannot be traced arrays.

    Returns
    -------
    callable
        ``f(vector, X, Y)`` for arrays (n,), (B, D), and (B,) or (B, P). It returns the bound, a
        scalar to maximise. It is differentiable in the vector and in X, in reverse (``grad``) and
        forward mode (``jvp``, at the cost of the whole gradient). Only requested gradients are
        computed.

    Raises
    ------
    TypeError
        The model of ``unravel`` is on a device, the options contain ``wrt`` or ``inputs``, or JAX
        traces an option.
    TypeError, ValueError
        Raised by ``f`` while it is traced: half precision, wrong shapes, or a derivative in ``Y``.
        Errors of ``elbo_and_grad`` become JAX's runtime error for callbacks, which contains our
        message.
    NotImplementedError
        Raised by ``f`` if a second derivative is requested.

    Notes
    -----
    JAX narrows float64 to float32 unless you first call ``jax.config.update("jax_enable_x64",
    True)``. The computation uses the wider dtype of model and X; the result has the dtype of the
    arguments. Under ``vmap`` the calls are sequential. GPU arrays are copied to the host and back.
    In a process that can use only one processor, import this module before JAX makes its first
    array.

    Examples
    --------
    >>> vector, unravel = fastsvgp.ravel(model)
    >>> f = fastsvgp.interop.jax.bound(unravel, num_data=40_000)
    >>> loss = lambda weights, vector: -f(vector, network(weights, X), Y)
    >>> bars = jax.jit(jax.grad(loss, argnums=(0, 1)))(weights, vector)
    """
    if not isinstance(unravel, Unravel):
        came = type(unravel).__name__
        raise TypeError(
            f"interop.jax: `unravel` must be the second result of fastsvgp.ravel, got {came}"
        )
    if on_device(unravel.device_like):
        raise TypeError(
            "interop.jax: the model of `unravel` is on a device; call"
            " fastsvgp.ravel(fastsvgp.to_host(model))"
        )
    refuse_following("interop.jax", options)
    options = {
        name: _constant(name, value) for name, value in {"num_data": num_data, **options}.items()
    }

    differentiable = _differentiable(_Host(unravel, options))

    def f(vector, X, Y):
        vector, X, Y = map(jnp.asarray, (vector, X, Y))
        _check(unravel, vector=vector, X=X, Y=Y)
        return differentiable(vector, X, Y)

    return f


class _Host:
    """The functions of the callbacks to the host.

    They are cached, because JAX compiles each function that is new to it.
    """

    def __init__(self, unravel, options):
        self._unravel, self._options = unravel, options
        self.value = functools.cache(self._value)
        self.value_and_bars = functools.cache(self._value_and_bars)

    def _value(self, dtype):
        def host(vector, X, Y):
            vector, X, Y = _numpy(vector, X, Y)
            return np.asarray(elbo(self._unravel(vector), X, Y, **self._options), dtype)

        return host

    def _value_and_bars(self, dtype, of_vector, of_X):
        unravel = self._unravel

        def host(vector, X, Y):
            vector, X, Y = _numpy(vector, X, Y)
            wrt = unravel.paths if of_vector else ()
            value, grad, *X_bar = elbo_and_grad(
                unravel(vector), X, Y, wrt=wrt, inputs=of_X, **self._options
            )
            vector_bar = [unravel.pullback(vector, grad).astype(vector.dtype)] if of_vector else []
            return np.asarray(value, dtype), *vector_bar, *(bar.astype(X.dtype) for bar in X_bar)

        return host


def _differentiable(host):
    """Return the bound as a JAX function of (vector, X, Y), with its derivative rule."""

    @jax.custom_jvp
    def value_of(vector, X, Y):
        dtype = jnp.result_type(vector, X)
        return _call_host(host.value(dtype), jax.ShapeDtypeStruct((), dtype), vector, X, Y)

    @functools.partial(value_of.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        """d value = vector_bar . d vector + X_bar . d X: linear, so that JAX can transpose it."""
        vector, X, _ = primals
        of_vector, of_X, of_Y = (not isinstance(tangent, SymbolicZero) for tangent in tangents)
        if of_Y:
            raise TypeError(
                "interop.jax: a derivative in `Y` was requested, but the bound has none; give"
                " jax.lax.stop_gradient(Y)"
            )
        dtype = jnp.result_type(vector, X)
        moved = [
            (a, tangent)
            for a, tangent, need in zip(primals, tangents, (of_vector, of_X, False), strict=True)
            if need
        ]
        value, *bars = _call_host(
            host.value_and_bars(dtype, of_vector, of_X),
            [jax.ShapeDtypeStruct((), dtype)]
            + [jax.ShapeDtypeStruct(a.shape, a.dtype) for a, _ in moved],
            *primals,
        )
        along = (
            (bar * tangent).sum().astype(dtype)
            for bar, (_, tangent) in zip(bars, moved, strict=True)
        )
        return value, sum(along, start=jnp.zeros((), dtype))

    return value_of


def _constant(name, value):
    """Convert a JAX array among the options to NumPy, because a callback must not wait for it."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"interop.jax: the option `{name}` is traced, but options are constants; give an array"
            " from outside the functions that JAX transforms"
        )
    return np.asarray(value) if isinstance(value, jax.Array) else value


def _numpy(*arguments):
    """Convert the arguments of a callback to NumPy arrays; raise if they do not arrive in time."""
    end = time.monotonic() + PATIENCE
    while not all(argument.is_ready() for argument in arguments if isinstance(argument, jax.Array)):
        if time.monotonic() > end:
            raise RuntimeError(
                f"interop.jax: the arguments of a callback did not arrive within {PATIENCE:g} s,"
                " because the only thread that can copy them waits for the callback; import"
                " fastsvgp.interop.jax, or set the environment variable NPROC=2, before JAX makes"
                " its first array"
            )
        time.sleep(1e-5)
    return map(np.asarray, arguments)


def _call_host(host, likes, *arguments):
    """Call ``host`` with these arguments; a derivative of the result is refused."""
    call = jax.custom_jvp(
        functools.partial(jax.pure_callback, host, likes, vmap_method="sequential")
    )
    call.defjvp(_second)
    return call(*arguments)


def _second(primals, tangents):
    raise NotImplementedError(
        "interop.jax: a second derivative was requested, but fastsvgp has only first derivatives;"
        " apply jax.lax.stop_gradient to the arguments of the inner gradient"
    )


def _check(unravel, **arrays):
    for name, array in arrays.items():
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype not in (
            jnp.float32,
            jnp.float64,
        ):
            raise TypeError(
                f"interop.jax: `{name}` is {array.dtype}, but fastsvgp computes in float32 and"
                " float64; convert it"
            )
        if name != "Y" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"interop.jax: `{name}` must be float32 or float64, got {array.dtype}; convert it"
            )
    vector, X, Y = arrays["vector"], arrays["X"], arrays["Y"]
    if vector.shape != (unravel.size,):
        raise ValueError(
            f"interop.jax: `vector` must have shape ({unravel.size},) for this model, got"
            f" {vector.shape}"
        )
    if X.ndim != 2 or Y.shape[:1] != X.shape[:1]:
        raise ValueError(
            f"interop.jax: `X` must have shape (B, D) and `Y` (B,) or (B, P), got {X.shape} and"
            f" {Y.shape}"
        )
