"""The bound as a function of JAX: differentiable once, under ``jit``, ``grad``, ``jvp``, ``vmap`` and ``scan``.

JAX sees a callback to the host and the rule of its derivative; value and gradients are computed
there together, by one call of ``fastsvgp.elbo_and_grad``. What the callback is given becomes
NumPy's before anything else happens: a call of JAX inside of it can wait for ever for the thread
that runs it (https://github.com/jax-ml/jax/issues/24255).

That thread is the only one where a process may use one processor, and JAX copies large arguments of
a callback on it too: such a process hung, whatever the callback did. So there JAX is given a second
one, as long as it has not begun; where it has, the callback sees that its arguments never come, and
says what to do.
"""

import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..bounds.elbo import elbo, elbo_and_grad
from ..optim.flat import Unravel
from ..runtime.deferred_checks import on_device
from .options import refuse_following

PATIENCE = 60.0  # seconds for arguments to come; copies of them take less than one

if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    # how many threads JAX's CPU client has, read when the first array is made
    os.environ.setdefault("NPROC", "2")


def bound(unravel, num_data=None, **options):
    """The evidence lower bound as a function of JAX, of the flat vector of ``fastsvgp.ravel`` and of the data.

    Parameters
    ----------
    unravel : callable
        Of ``vector, unravel = fastsvgp.ravel(model)``, of a model on the host.
    num_data : float, optional
        Size of the whole data set, as of ``fastsvgp.elbo_and_grad``.
    **options
        ``jitter``, ``weights``, ``rng`` (a whole number: JAX may call as often as it likes) and all
        else that ``elbo`` takes. Arrays among them are constants: ``bound`` may be called inside of
        a function that JAX transforms, but not with what it transforms there.

    Returns
    -------
    callable
        ``f(vector, X, Y)`` for arrays (n,), (B, D), and (B,) or (B, P): the bound, a scalar to be
        maximised, differentiable in the vector and in X, in reverse (``grad``) and forward
        (``jvp``, at the cost of the whole gradient). What is not differentiated is not computed.

    Raises
    ------
    TypeError
        ``unravel`` of a model on a device, ``wrt`` or ``inputs`` among the options, an option that
        JAX traces.
    TypeError, ValueError
        Of ``f``, while it is traced: half precision, wrong shapes, a derivative in ``Y``. What
        ``elbo_and_grad`` raises comes as the runtime error of JAX for callbacks, with our message
        in it.
    NotImplementedError
        Of ``f``: a second derivative was asked for.

    Notes
    -----
    JAX narrows float64 to float32 unless ``jax.config.update("jax_enable_x64", True)`` came first.
    The computation is in the wider one of the dtypes of the model and of X, and the result has the
    dtype of what came. Under ``vmap`` calls go one after another. Arrays of a GPU are copied to the
    host and back. In a process that may use one processor alone, import this module before JAX
    makes its first array.

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
            "interop.jax: `unravel` must be what fastsvgp.ravel gives beside the vector, got"
            f" {came}"
        )
    if on_device(unravel.home):
        raise TypeError(
            "interop.jax: the model of `unravel` lives on a device; take"
            " fastsvgp.ravel(fastsvgp.to_host(model))"
        )
    refuse_following("interop.jax", options)
    options = {
        name: _constant(name, value) for name, value in {"num_data": num_data, **options}.items()
    }

    @functools.cache  # one function for all calls: JAX compiles each that it has not seen
    def host_value(dtype):
        def host(vector, X, Y):
            vector, X, Y = _numpy(vector, X, Y)
            return np.asarray(elbo(unravel(vector), X, Y, **options), dtype)

        return host

    @functools.cache
    def host_value_and_bars(dtype, of_vector, of_X):
        def host(vector, X, Y):
            vector, X, Y = _numpy(vector, X, Y)
            wrt = unravel.paths if of_vector else ()
            value, grad, *X_bar = elbo_and_grad(
                unravel(vector), X, Y, wrt=wrt, inputs=of_X, **options
            )
            vector_bar = [unravel.pullback(vector, grad).astype(vector.dtype)] if of_vector else []
            return np.asarray(value, dtype), *vector_bar, *(bar.astype(X.dtype) for bar in X_bar)

        return host

    def value_of(vector, X, Y):
        dtype = jnp.result_type(vector, X)
        return _called(host_value(dtype), jax.ShapeDtypeStruct((), dtype), vector, X, Y)

    differentiable = jax.custom_jvp(value_of)

    @functools.partial(differentiable.defjvp, symbolic_zeros=True)
    def _(primals, tangents):
        """d value = vector_bar . d vector + X_bar . d X, which is linear, so that JAX finds the way back from it too."""
        vector, X, Y = primals
        of_vector, of_X, of_Y = (not isinstance(tangent, SymbolicZero) for tangent in tangents)
        if of_Y:
            said = "a derivative in `Y` was asked for, and the bound has none in the targets"
            raise TypeError(f"interop.jax: {said}; give jax.lax.stop_gradient(Y)")
        dtype = jnp.result_type(vector, X)
        moved = [
            (a, tangent)
            for a, tangent, need in zip(primals, tangents, (of_vector, of_X, False), strict=True)
            if need
        ]
        likes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a, _ in moved]
        value, *bars = _called(
            host_value_and_bars(dtype, of_vector, of_X),
            [jax.ShapeDtypeStruct((), dtype), *likes],
            *primals,
        )
        along = (
            (bar * tangent).sum().astype(dtype)
            for bar, (_, tangent) in zip(bars, moved, strict=True)
        )
        return value, sum(along, start=jnp.zeros((), dtype))

    def f(vector, X, Y):
        vector, X, Y = map(jnp.asarray, (vector, X, Y))
        _check(unravel, vector=vector, X=X, Y=Y)
        return differentiable(vector, X, Y)

    return f


def _constant(name, value):
    """An option, an array of JAX as one of NumPy: what a callback is not given it must not wait for."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(
            f"interop.jax: the option `{name}` is traced, and options are constants of the bound;"
            " give an array from outside of the functions that JAX transforms"
        )
    return np.asarray(value) if isinstance(value, jax.Array) else value


def _numpy(*arguments):
    """What a callback is given, as arrays of NumPy, which begins with waiting for it: the way back from there may be cut off."""
    end = time.monotonic() + PATIENCE
    while not all(argument.is_ready() for argument in arguments if isinstance(argument, jax.Array)):
        if time.monotonic() > end:
            raise RuntimeError(
                f"interop.jax: the arguments of a callback did not come within {PATIENCE:g} s,"
                " since the one thread that would copy them waits for the callback; import"
                " fastsvgp.interop.jax, or set the environment variable NPROC=2, before JAX makes"
                " its first array"
            )
        time.sleep(1e-5)
    return map(np.asarray, arguments)


def _called(host, likes, *arguments):
    """What ``host`` gives for these arguments; it has no derivative."""
    call = jax.custom_jvp(
        functools.partial(jax.pure_callback, host, likes, vmap_method="sequential")
    )
    call.defjvp(_second)
    return call(*arguments)


def _second(primals, tangents):
    raise NotImplementedError(
        "interop.jax: a second derivative was asked for, and fastsvgp has first derivatives alone;"
        " take the gradient that is differentiated again at jax.lax.stop_gradient of its arguments"
    )


def _check(unravel, **arrays):
    for name, array in arrays.items():
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype not in (
            jnp.float32,
            jnp.float64,
        ):
            raise TypeError(
                f"interop.jax: `{name}` is {array.dtype}, and fastsvgp computes in float32 and"
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
