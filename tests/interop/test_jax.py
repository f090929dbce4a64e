"""The bound as a JAX function: gradients, transformations, dtypes, and errors."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from support.posterior_problems import EVERY, in_model

import fastsvgp as fs

jax = pytest.importorskip("jax")
interop = pytest.importorskip("fastsvgp.interop.jax")
jnp = jax.numpy
JITTER, NUM_DATA = 1e-2, 50


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


def problem(rng, posterior="whitened", P=None, M=6, B=9, D=2, likelihood=None):
    """``(model, X, Y)``."""
    likelihood = likelihood or fs.Gaussian(0.3)
    P = likelihood.num_latent or P
    X, batch = rng.standard_normal((B, D)), () if P is None else (P,)
    Y = (
        np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal((*batch, B))
        if likelihood.num_latent is None
        else rng.integers(0, P, B)
    )
    model = fs.SVGP(
        fs.RBF(1.3, np.linspace(0.8, 1.6, D)), 1.5 * rng.standard_normal((M, D)), None, likelihood
    )
    return in_model(rng, posterior, model, batch, jitter=JITTER)[0], X, Y.T


def function_of(model, **options):
    vector, unravel = fs.ravel(model)
    return vector, unravel, interop.bound(unravel, NUM_DATA, jitter=JITTER, **options)


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit], ids=["as it is", "jit"])
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("posterior", EVERY)
def test_value_and_gradients_are_those_of_the_bound(rng, posterior, P, wrapped):
    model, X, Y = problem(rng, posterior, P)
    vector, unravel, f = function_of(model)
    value, grad, X_bar = fs.elbo_and_grad(
        unravel(vector), X, Y, num_data=NUM_DATA, jitter=JITTER, inputs=True
    )
    found, bars = wrapped(jax.value_and_grad(lambda v, X: -3 * f(v, X, Y), argnums=(0, 1)))(
        vector, X
    )
    assert found.dtype == jnp.float64 and float(found) == pytest.approx(-3 * value, rel=1e-12)
    np.testing.assert_allclose(bars[0], -3 * unravel.pullback(vector, grad), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(bars[1], -3 * X_bar, rtol=1e-11, atol=1e-11)
    assert float(wrapped(f)(vector, X, Y)) == pytest.approx(value, rel=1e-12)


def test_what_is_not_differentiated_is_not_computed(rng, monkeypatch):
    model, X, Y = problem(rng)
    calls, plain = [], interop.elbo_and_grad
    monkeypatch.setattr(
        interop, "elbo_and_grad", lambda *a, **k: calls.append(k["wrt"]) or plain(*a, **k)
    )
    vector, unravel, f = function_of(model)
    whole = jax.grad(f, argnums=(0, 1))(vector, X, Y)
    for argnums in (0, 1):
        np.testing.assert_allclose(
            jax.grad(f, argnums=argnums)(vector, X, Y), whole[argnums], rtol=1e-10, atol=1e-11
        )
    f(vector, X, Y)
    assert calls == [unravel.paths, unravel.paths, ()]


def test_calls_without_jit_compile_once(rng, monkeypatch):
    """JAX compiles and caches each new callback."""
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    seen, plain = [], jax.pure_callback
    monkeypatch.setattr(
        jax, "pure_callback", lambda host, *a, **k: seen.append(host) or plain(host, *a, **k)
    )
    for _ in range(2):
        f(vector, X, Y)
        jax.grad(f)(vector, X, Y)
    assert len(seen) == 4 and seen[:2] == seen[2:] and seen[0] is not seen[1]


def test_against_differences_of_jax(rng):
    from jax.test_util import check_grads

    model, X, Y = problem(rng, M=3, B=4)
    vector, _, f = function_of(model)
    check_grads(
        lambda v, X: f(v, X, Y), (vector, X), order=1, modes=["fwd", "rev"], atol=1e-6, rtol=1e-6
    )


@pytest.mark.parametrize("wrapped", [lambda f: f, jax.jit], ids=["as it is", "jit"])
def test_forward_mode_is_that_gradient_along_a_direction(rng, wrapped):
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    X = jnp.asarray(X)
    ways = rng.standard_normal(vector.shape), rng.standard_normal(X.shape)
    value, bars = jax.value_and_grad(f, argnums=(0, 1))(vector, X, Y)
    f = wrapped(f)
    found, along = jax.jvp(lambda v, X: f(v, X, Y), (vector, X), ways)
    expected = [float((bar * way).sum()) for bar, way in zip(bars, ways, strict=True)]
    assert float(found) == pytest.approx(float(value), rel=1e-12) and float(along) == pytest.approx(
        sum(expected), rel=1e-10
    )
    assert float(jax.linearize(lambda v: f(v, X, Y), vector)[1](ways[0])) == pytest.approx(
        expected[0], rel=1e-10
    )
    np.testing.assert_allclose(
        jax.jacfwd(f, argnums=1)(vector, X, Y), bars[1], rtol=1e-10, atol=1e-11
    )
    narrow = jnp.float32(ways[1])
    assert jax.jvp(lambda X: f(vector, X, Y), (jnp.float32(X),), (narrow,))[1].dtype == jnp.float64


def test_a_network_below_under_jit_and_scan(rng):
    model, X, Y = problem(rng, B=40)
    vector, unravel, f = function_of(model)
    W = rng.standard_normal((2, 2))

    def loss(state):
        return -f(state[1], jnp.tanh(X @ state[0]), Y)

    def step(state, _):
        value, bars = jax.value_and_grad(loss)(state)
        return jax.tree.map(lambda a, bar: a - 1e-3 * bar, state, bars), value

    (W_end, end), values = jax.jit(lambda state: jax.lax.scan(step, state, None, length=8))(
        (W, vector)
    )
    for expected in values:
        H = np.tanh(X @ W)
        value, grad, H_bar = fs.elbo_and_grad(
            unravel(vector), H, Y, num_data=NUM_DATA, jitter=JITTER, inputs=True
        )
        assert -value == pytest.approx(float(expected), rel=1e-9)
        W, vector = (
            W + 1e-3 * X.T @ (H_bar * (1 - H * H)),
            vector + 1e-3 * unravel.pullback(vector, grad),
        )
    np.testing.assert_allclose(W_end, W, rtol=1e-8)
    assert values[-1] < values[0]


def test_vmap_calls_one_after_another(rng):
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    several = vector + 0.1 * rng.standard_normal((3, len(vector)))
    np.testing.assert_allclose(
        jax.vmap(f, (0, None, None))(several, X, Y), [f(v, X, Y) for v in several], rtol=1e-12
    )
    bars = jax.jit(jax.vmap(jax.grad(f), (0, None, None)))(several, X, Y)
    np.testing.assert_allclose(bars, [jax.grad(f)(v, X, Y) for v in several], rtol=1e-9, atol=1e-11)


def test_dtypes(rng):
    """Each gradient has the dtype of its argument; the model's dtype is used inside."""
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    value, bars = jax.value_and_grad(f, argnums=(0, 1))(vector, X, Y)
    narrow = np.float32(X)
    found, found_bars = jax.value_and_grad(f, argnums=(0, 1))(vector, narrow, Y)
    assert found.dtype == found_bars[0].dtype == jnp.float64 and found_bars[1].dtype == jnp.float32
    np.testing.assert_allclose(found_bars[1], bars[1], rtol=1e-4, atol=1e-4)
    with jax.enable_x64(False):
        found = f(vector, X, Y)
        assert found.dtype == jnp.float32 and float(found) == pytest.approx(float(value), rel=1e-4)
        assert jax.grad(f)(vector, X, Y).dtype == jnp.float32


def test_labels(rng):
    model, X, Y = problem(rng, likelihood=fs.Softmax(num_classes=3))
    vector, unravel, f = function_of(model, rng=3)
    value, grad = fs.elbo_and_grad(unravel(vector), X, Y, num_data=NUM_DATA, jitter=JITTER, rng=3)
    found, bar = jax.jit(jax.value_and_grad(f))(vector, X, Y)
    assert Y.dtype.kind == "i" and float(found) == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(bar, unravel.pullback(vector, grad), rtol=1e-11, atol=1e-11)


def test_weights_are_constants(rng, monkeypatch):
    """NumPy or JAX arrays; the callback receives NumPy arrays."""
    model, X, Y = problem(rng)
    w = np.arange(len(X)) % 3
    Y[w == 0] = np.nan
    seen, plain = [], interop.elbo_and_grad
    monkeypatch.setattr(
        interop, "elbo_and_grad", lambda *a, **k: seen.append(k["weights"]) or plain(*a, **k)
    )
    for weights in (w, jnp.asarray(w)):
        vector, unravel, f = function_of(model, weights=weights)
        options = {"num_data": NUM_DATA, "jitter": JITTER, "weights": w, "inputs": True}
        value, grad, X_bar = fs.elbo_and_grad(unravel(vector), X, Y, **options)
        found, bars = jax.jit(jax.value_and_grad(f, argnums=(0, 1)))(vector, X, Y)
        assert float(found) == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(bars[0], unravel.pullback(vector, grad), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(bars[1], X_bar, rtol=1e-11, atol=1e-11)
    assert len(seen) == 2 and all(type(weights) is np.ndarray for weights in seen)
    with pytest.raises(
        TypeError, match="the option `weights` is traced, but options are constants"
    ):
        jax.jit(lambda w: function_of(model, weights=w)[2](vector, X, Y))(w)


# --- what cannot be -------------------------------------------------------------------------------


def test_second_derivatives_say_what_came(rng):
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    of_sum = jax.jit(jax.grad(lambda v: jax.grad(f)(v, X, Y).sum()))
    forward_twice = jax.jacfwd(jax.jacfwd(f))
    for call in (
        lambda: jax.hessian(f)(vector, X, Y),
        lambda: of_sum(vector),
        lambda: forward_twice(vector, X, Y),
    ):
        with pytest.raises(
            NotImplementedError,
            match="second derivative was requested, but fastsvgp has only first derivatives",
        ):
            call()
    stopped = jax.grad(lambda v: (jax.grad(f)(jax.lax.stop_gradient(v), X, Y) * v).sum())(vector)
    np.testing.assert_allclose(stopped, jax.grad(f)(vector, X, Y), rtol=1e-9, atol=1e-11)


def test_bad_arguments(rng):
    model, X, Y = problem(rng)
    vector, _, f = function_of(model)
    n = len(vector)
    for arguments, error, said in (
        (
            (vector, X.astype(np.float16), Y),
            TypeError,
            "`X` is float16, but fastsvgp computes in float32 and float64",
        ),
        ((jnp.asarray(vector, jnp.bfloat16), X, Y), TypeError, "`vector` is bfloat16"),
        ((vector, X.astype(int), Y), TypeError, "`X` must be float32 or float64, got int64"),
        (
            (vector[1:], X, Y),
            ValueError,
            rf"`vector` must have shape \({n},\) for this model, got \({n - 1},\)",
        ),
        ((vector, X[0], Y), ValueError, r"`X` must have shape \(B, D\)"),
        ((vector, X, Y[1:]), ValueError, r"got \(9, 2\) and \(8,\)"),
        ((vector, X * np.nan, Y), RuntimeError, "`X` contains nan at index"),
        ((vector, X[:, :1], Y), RuntimeError, "`X` has 1 columns where `inducing` has 2"),
    ):
        for call in (f, jax.jit(f), jax.grad(f)):
            with pytest.raises(error, match=said):
                call(*arguments)
    with pytest.raises(TypeError, match="a derivative in `Y` was requested"):
        jax.grad(f, argnums=2)(vector, X, Y)
    with pytest.raises(TypeError, match="a derivative in `Y` was requested"):
        jax.jvp(lambda Y: f(vector, X, Y), (Y,), (Y,))
    for name in ("wrt", "inputs"):
        with pytest.raises(
            TypeError,
            match=(
                f"interop.jax: `{name}` is not an option here, because jax selects .*; leave it out"
            ),
        ):
            function_of(model, **{name: ()})
    with pytest.raises(
        TypeError, match="`unravel` must be the second result of fastsvgp.ravel, got SVGP"
    ):
        interop.bound(model)


def test_arguments_that_never_come_are_an_error(monkeypatch):
    """As if the thread that copies them were the one that waits."""

    class Never:
        def is_ready(self):
            return False

    monkeypatch.setattr(interop, "PATIENCE", 0.01)
    monkeypatch.setattr(jax, "Array", Never)
    with pytest.raises(RuntimeError, match="did not arrive within 0.01 s.*NPROC=2, before"):
        interop._numpy(Never())


ONE_PROCESSOR = """
    import os
    os.environ.pop("NPROC", None)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import numpy as np
    import fastsvgp as fs
    from fastsvgp.interop.jax import bound
    import jax
    X = np.random.default_rng(0).standard_normal((20_000, 20)).astype(np.float32)
    Y = np.sin(X[:, 0])
    posterior = fs.Whitened(np.ones(100), 0.3 * np.eye(100))
    model = fs.SVGP(fs.RBF(1.0, np.ones(20)), X[:100], posterior, fs.Gaussian(0.1))
    vector, unravel = fs.ravel(model)
    f = jax.jit(jax.value_and_grad(lambda v, X: bound(unravel)(v, X * 0.5, Y), argnums=(0, 1)))
    for _ in range(3):
        value, (_, X_bar) = f(vector, X)
    expected, _, expected_bar = fs.elbo_and_grad(unravel(vector), 0.5 * X, Y, inputs=True)
    assert abs(float(value) / expected - 1) < 1e-4
    assert np.abs(X_bar - 0.5 * expected_bar).max() < 1e-3 * np.abs(expected_bar).max()
"""


def test_one_processor_is_enough():
    """With one JAX thread, large arguments of a callback would deadlock."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ONE_PROCESSOR)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
