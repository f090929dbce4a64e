"""Steps of deep GPs, value and all gradients.

L layers of P = D = 8 outputs, then one output, ARD RBF. One draw of each hidden layer (S = 1), or
two if the name says so. Floor: a whitened layer of P outputs and n rows takes min((3 P + 3) M^2 n +
4/3 M^3, (3 P + 2) M^2 n + (4/3 + 2 P) M^3) flops, a LikelihoodForm layer 3 M^2 n + 2 M^3. Error: of
value and gradients against the same layers one by one, as SVGPs whose inputs are given.
"""

import numpy as np
import pytest
from harness import record, relative_error

import fastsvgp as fs

JITTER = {"float64": 1e-6, "float32": 1e-4}
SIZES = [(100, 1024), (128, 1024), (500, 1000)]
D, SCALE = 8, 10.0


def problem(L, M, B, kind, dtype, seed=0):
    """Return ``(model, X, y, draws)``."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((B, D))
    y = np.sin(X).sum(axis=1) + 0.3 * rng.standard_normal(B)

    def posterior(*lead):
        mean = 0.5 * rng.standard_normal((*lead, M))
        if kind == "likelihood":
            return fs.posteriors.LikelihoodForm(mean, rng.uniform(0.05, 0.2, M))
        W = np.tril(rng.standard_normal((*lead, M, M))) * (0.1 / np.sqrt(M))
        W[..., np.arange(M), np.arange(M)] = rng.uniform(0.5, 1.0, (*lead, M))
        return fs.Whitened(mean, W)

    layers = [
        fs.layers.Layer(
            fs.RBF(1.3, rng.uniform(0.9, 1.5, D)), rng.standard_normal((M, D)), posterior(*lead)
        )
        for lead in [(D,)] * (L - 1) + [()]
    ]
    model, draws = (
        fs.DeepGP(tuple(layers), fs.Gaussian(variance=0.2)),
        [rng.standard_normal((1, B, D)) for _ in layers[1:]],
    )
    model = fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model)
    return model, X.astype(dtype), y.astype(dtype), tuple(eps.astype(dtype) for eps in draws)


def flops(L, M, B, kind, S):
    def layer(P, n):
        if kind == "likelihood":
            return 3 * M**2 * n + 2 * M**3
        return min(
            (3 * P + 3) * M**2 * n + 4 / 3 * M**3, (3 * P + 2) * M**2 * n + (4 / 3 + 2 * P) * M**3
        )

    return sum(layer(D if number < L - 1 else 1, S * B if number else B) for number in range(L))


def layer_by_layer(model, X, y, draws, jitter):
    """Return ``(value, gradient of the last layer's inducing inputs)`` for one draw, by SVGPs."""
    kl = 0.0
    for layer, (eps,) in zip(model.layers, draws, strict=False):
        one = fs.SVGP(layer.covariance, layer.inducing, layer.posterior, model.likelihood)
        mean, var = fs.predict_f(one, X, jitter=jitter)
        kl += fs.bounds.kl_term_and_grad(one, jitter=jitter, wrt=())[0]
        X = mean + np.sqrt(var) * eps
    top = model.layers[-1]
    last = fs.SVGP(top.covariance, top.inducing, top.posterior, model.likelihood)
    value, grad = fs.elbo_and_grad(last, X, y, num_data=SCALE * len(y), jitter=jitter)
    return value - kl, grad.inducing


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("M, B", SIZES)
@pytest.mark.parametrize("L", [2, 3])
@pytest.mark.parametrize("kind, S", [("whitened", 1), ("likelihood", 1), ("whitened", 2)])
def test_step(benchmark, kind, S, L, M, B, dtype):
    model, X, y, draws = problem(L, M, B, kind, dtype)
    exact = (
        fs.records.tree_map(lambda a: np.asarray(a, float)[()], model),
        X.astype(float),
        y.astype(float),
    )
    truth, Z_bar = layer_by_layer(*exact, [eps.astype(float) for eps in draws], JITTER[dtype])
    options = {"num_data": SCALE * B, "jitter": JITTER[dtype]}
    value, grad = fs.elbo_and_grad(model, X, y, draws=draws, **options)
    error = max(relative_error(value, truth), relative_error(grad.layers[-1].inducing, Z_bar))
    if S == 2:
        draws = tuple(np.concatenate([eps, -eps]) for eps in draws)
    unit = (
        4
        * np.dtype(dtype).itemsize
        * sum(P * (M**2 + M * n) for P, n in [(D, B)] * (L - 1) + [(1, B)])
    )
    record(
        benchmark,
        lambda: fs.elbo_and_grad(model, X, y, draws=draws, **options),
        flops=flops(L, M, B, kind, S),
        gemm=(M, B, dtype),
        error=error,
        unit=unit,
    )
