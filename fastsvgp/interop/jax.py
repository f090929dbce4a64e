"""The bound as a function of JAX: differentiable once, under ``jit``, ``grad``, ``vmap`` and ``scan``.

JAX sees a callback to the host and the rule of its derivative; value and gradients are computed there together, by one call of
``fastsvgp.elbo_and_grad``. What the callback is given becomes NumPy's before anything else happens: a call of JAX inside of it
can wait for ever for the thread that runs it (https://github.com/jax-ml/jax/issues/24255).

That thread is the only one where a process may use one processor, and JAX copies large arguments of a callback on it too: such
a process hung, whatever the callback did. So there JAX is given a second one, as long as it has not begun; where it has, the
callback sees that its arguments never come, and says what to do.
"""

import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from ..bounds.elbo import elbo, elbo_and_grad
from ..kernels.verdicts import on_device
from ..optim.flat import Unravel

PATIENCE = 60.0  # seconds for arguments to come; copies of them take less than one

if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")  # how many threads JAX's CPU client has, read when the first array is made


def bound(unravel, num_data=None, **options):
    """The evidence lower bound as a function of JAX, of the flat vector of ``fastsvgp.ravel`` and of the data.

    Parameters
    ----------
    unravel : callable
        Of ``vector, unravel = fastsvgp.ravel(model)``, of a model on the host.
    num_data : float, optional
        Size of the whole data set, as of ``fastsvgp.elbo_and_grad``.
    **options
        ``jitter``, ``rng`` (a whole number: JAX may call as often as it likes) and all else that ``elbo_and_grad`` takes.

    Returns
    -------
    callable
        ``f(vector, X, Y)`` for arrays (n,), (B, D), and (B,) or (B, P): the bound, a scalar to be maximised, differentiable in
        the vector and in X. What is not differentiated is not computed.

    Raises
    ------
    TypeError, ValueError
        Of ``f``, while it is traced: half precision, wrong shapes, a derivative in ``Y``. What ``elbo_and_grad`` raises comes as
        the runtime error of JAX for callbacks, with our message in it.
    NotImplementedError
        Of ``f``: a second derivative was asked for.

    Notes
    -----
    JAX narrows float64 to float32 unless ``jax.config.update("jax_enable_x64", True)`` came first. The computation is in the
    wider one of the dtypes of the model and of X, and the result has the dtype of what came. Under ``vmap`` calls go one after
    another. Arrays of a GPU are copied to the host and back. In a process that may use one processor alone, import this module
    before JAX makes its first array.

    Examples
    --------
    >>> vector, unravel = fastsvgp.ravel(model)
    >>> f = fastsvgp.interop.jax.bound(unravel, num_data=40_000)
    >>> loss = lambda weights, vector: -f(vector, network(weights, X), Y)
    >>> bars = jax.jit(jax.grad(loss, argnums=(0, 1)))(weights, vector)
    """
    if not isinstance(unravel, Unravel):
        came = type(unravel).__name__
        raise TypeError(f"interop.jax: `unravel` must be what fastsvgp.ravel gives beside the vector, got {came}")
    if on_device(unravel.home):
        raise TypeError("interop.jax: the model of `unravel` lives on a device; take fastsvgp.ravel(fastsvgp.to_host(model))")
    options = {"num_data": num_data, **options}

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
            value, grad, *X_bar = elbo_and_grad(unravel(vector), X, Y, wrt=wrt, inputs=of_X, **options)
            vector_bar = [unravel.pullback(vector, grad).astype(vector.dtype)] if of_vector else []
            return np.asarray(value, dtype), *vector_bar, *(bar.astype(X.dtype) for bar in X_bar)

        return host

    def value_of(vector, X, Y):
        dtype = jnp.result_type(vector, X)
        return _called(host_value(dtype), jax.ShapeDtypeStruct((), dtype), vector, X, Y)

    def forward(vector, X, Y):
        """With ``symbolic_zeros``: each argument comes with whether it is differentiated."""
        if Y.perturbed:
            said = "a derivative in `Y` was asked for, and the bound has none in the targets"
            raise TypeError(f"interop.jax: {said}; give jax.lax.stop_gradient(Y)")
        dtype, of = jnp.result_type(vector.value, X.value), (vector.perturbed, X.perturbed)
        likes = [jax.ShapeDtypeStruct((), dtype)]
        likes += [jax.ShapeDtypeStruct(a.value.shape, a.value.dtype) for a in (vector, X) if a.perturbed]
        value, *bars = _called(host_value_and_bars(dtype, *of), likes, vector.value, X.value, Y.value)
        bars = iter(bars)
        return value, tuple(next(bars) if need else None for need in of)

    def backward(bars, value_bar):
        zero = isinstance(value_bar, SymbolicZero)
        return *(None if zero or bar is None else (value_bar * bar).astype(bar.dtype) for bar in bars), None

    differentiable = jax.custom_vjp(value_of)
    differentiable.defvjp(forward, backward, symbolic_zeros=True)

    def f(vector, X, Y):
        vector, X, Y = map(jnp.asarray, (vector, X, Y))
        _check(unravel, vector=vector, X=X, Y=Y)
        return differentiable(vector, X, Y)

    return f


def _numpy(*arguments):
    """What a callback is given, as arrays of NumPy, which begins with waiting for it: the way back from there may be cut off."""
    end = time.monotonic() + PATIENCE
    while not all(argument.is_ready() for argument in arguments if isinstance(argument, jax.Array)):
        if time.monotonic() > end:
            raise RuntimeError(
                f"interop.jax: the arguments of a callback did not come within {PATIENCE:g} s, since the one thread that would "
                "copy them waits for the callback; import fastsvgp.interop.jax, or set the environment variable NPROC=2, before "
                "JAX makes its first array"
            )
        time.sleep(1e-5)
    return map(np.asarray, arguments)


def _called(host, likes, *arguments):
    """What ``host`` gives for these arguments; it has no derivative."""
    call = jax.custom_jvp(functools.partial(jax.pure_callback, host, likes, vmap_method="sequential"))
    call.defjvp(_second)
    return call(*arguments)


def _second(primals, tangents):
    raise NotImplementedError(
        "interop.jax: a second derivative was asked for, and fastsvgp has first derivatives alone; take the gradient that is "
        "differentiated again at jax.lax.stop_gradient of its arguments"
    )


def _check(unravel, **arrays):
    for name, array in arrays.items():
        if jnp.issubdtype(array.dtype, jnp.floating) and array.dtype not in (jnp.float32, jnp.float64):
            raise TypeError(f"interop.jax: `{name}` is {array.dtype}, and fastsvgp computes in float32 and float64; convert it")
        if name != "Y" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"interop.jax: `{name}` must be float32 or float64, got {array.dtype}; convert it")
    vector, X, Y = arrays["vector"], arrays["X"], arrays["Y"]
    if vector.shape != (unravel.size,):
        raise ValueError(f"interop.jax: `vector` must have shape ({unravel.size},) for this model, got {vector.shape}")
    if X.ndim != 2 or Y.shape[:1] != X.shape[:1]:
        raise ValueError(f"interop.jax: `X` must have shape (B, D) and `Y` (B,) or (B, P), got {X.shape} and {Y.shape}")
