"""A user-defined kind of model: one process for the mean, one for the log noise variance."""

import math
from typing import Any

import numpy as np
import pytest
from support.trials import (
    assert_bound,
    assert_fits,
    assert_single_precision,
    assert_trains_and_is_kept,
)

import fastsvgp as fs
from fastsvgp.extending import LayerPass, check, minibatch_training, restricted


@fs.records.record
class Latent:
    """One process, a layer."""

    covariance: Any
    inducing: Any
    posterior: Any
    mean: Any = None


@fs.records.record
class NoisePair:
    """y ~ N(f(x), exp g(x)) with processes f and g. signal, log_noise : Latent.

    E log p = -(log 2 pi + g_m + R exp(g_v / 2 - g_m)) / 2 with R = (y - f_m)^2 + f_v, from E
    exp(-g).
    """

    signal: Any
    log_noise: Any


FIELDS = ("signal", "log_noise")


def checked(model, X, Y=None, names=("X", "Y")):
    """The model, X and Y in one dtype."""
    X = check.inputs(names[0], X)
    arrays = (X,) if Y is None else (X, check.as_array(names[1], Y))
    for field in FIELDS:
        check.parts(getattr(model, field))
    model, dtype = check.parameters(model, *arrays, names=names)
    for field in FIELDS:
        layer = getattr(model, field)
        sizes, D = check.inducing(layer, layer.posterior.num_sets, type(layer.posterior).__name__)
        axes = layer.posterior.check_size(*sizes)
        if axes:
            raise ValueError(
                f"`{field}` of a NoisePair has one output; its posterior has leading axes {axes}"
            )
        check.columns(X, D, names[0])
        if layer.mean is not None:
            layer.mean.check_shapes(D, axes)
    if Y is not None:
        check.finite(names[1], arrays[1])
        if arrays[1].shape != (len(X),):
            raise ValueError(f"`{names[1]}` must have shape ({len(X)},), got {arrays[1].shape}")
    return model, *(array.astype(dtype, copy=False) for array in arrays), dtype


def expectation(Y, f, g):
    """``(value, f_bar, g_bar)``."""
    residual, precision = Y - f.mean, np.exp(0.5 * g.var - g.mean)
    square = residual * residual + f.var
    value = -0.5 * float((math.log(2 * math.pi) + g.mean + square * precision).sum(dtype=float))
    by_g = 0.5 * square * precision
    return (
        value,
        fs.records.Marginals(residual * precision, -0.5 * precision),
        fs.records.Marginals(by_g - 0.5, -0.5 * by_g),
    )


def bound(model, X, Y, *, num_data=None, jitter=None, wrt=(), inputs=False):
    """``(value, grad, X_bar)``."""
    wrt = check.names(wrt, model)
    model, X, Y, dtype = checked(model, X, Y)
    scale, layers = check.data_scale(num_data, len(X)), []
    for field in FIELDS:
        need = tuple(name.removeprefix(field + ".") for name in wrt if name.startswith(field + "."))
        need = ("covariance", "inducing", "posterior", "mean") if field in wrt else need
        layer = getattr(model, field)
        layers.append(
            LayerPass(
                layer, check.jitter_amount(jitter, dtype), len(X), need + ("inputs",) * bool(inputs)
            )
        )
    (f, rows_f), (g, rows_g) = (layer.forward(X) for layer in layers)
    check.report_clamped(sum(layer.work.clamped for layer in layers))
    data, *bars = expectation(Y, f, g)
    value = check.result(scale * data - sum(layer.kl() for layer in layers), model)
    if not wrt and not inputs:
        return value, None, None
    parts, X_bars = [], []
    for layer, rows, bar in zip(layers, (rows_f, rows_g), bars, strict=True):
        X_bars.append(layer.pull(rows, fs.records.tree_map(lambda leaf: leaf * scale, bar)))
        parts.append(Latent(*layer.finish(-1.0)))
    return value, restricted(NoisePair(*parts), wrt), sum(X_bars) if inputs else None


def elbo(model, X, Y, *, num_data=None, jitter=None):
    return bound(model, X, Y, num_data=num_data, jitter=jitter)[0]


def elbo_and_grad(model, X, Y, *, num_data=None, jitter=None, rng=None, wrt=None, inputs=False):
    """``rng`` is what ``fit`` gives; nothing is random here."""
    found = bound(model, X, Y, num_data=num_data, jitter=jitter, wrt=wrt, inputs=inputs)
    return found if inputs else found[:2]


def marginals(model, Xs, Ys, jitter):
    model, Xs, *Ys, dtype = checked(model, Xs, Ys, ("Xs", "Ys"))
    layers = (
        LayerPass(getattr(model, field), check.jitter_amount(jitter, dtype)) for field in FIELDS
    )
    f, g = (layer.forward(Xs)[0] for layer in layers)
    return f, g, *Ys


def predict_f(model, Xs, *, full_cov=False, jitter=None):
    if full_cov:
        raise TypeError("predict_f: a NoisePair has no full_cov; that of its signal is an SVGP's")
    f, _ = marginals(model, Xs, None, jitter)
    return f.mean, f.var


def predict_y(model, Xs, *, jitter=None):
    f, g = marginals(model, Xs, None, jitter)
    return f.mean, f.var + np.exp(g.mean + 0.5 * g.var)


fs.extending.models.register(
    NoisePair,
    instead="its processes are .signal and .log_noise",
    elbo=elbo,
    elbo_and_grad=elbo_and_grad,
    predict_f=predict_f,
    predict_y=predict_y,
    fit=minibatch_training,
)


def latent(rng, X, posterior, scale=1.0, mean=None):
    M, lengthscales = 5, np.array([1.2, 1.5])
    Z = np.array([[-1.5, -1.0], [-1.0, 1.2], [0.1, 0.0], [1.2, -1.1], [1.5, 1.3]]) + rng.uniform(
        -0.2, 0.2, (M, 2)
    )
    m = scale * rng.standard_normal(M)
    if posterior == "LikelihoodForm":
        q = fs.posteriors.LikelihoodForm(m, rng.uniform(0.2, 0.5, M))
    else:
        q = getattr(fs.posteriors, posterior)(
            m, np.diag(rng.uniform(0.3, 0.8, M)) + np.tril(rng.uniform(-0.1, 0.1, (M, M)), -1)
        )
    return Latent(fs.RBF(0.9, lengthscales), Z, q, mean)


def problem(rng, posteriors=("Whitened", "Whitened")):
    X = rng.uniform(-2, 2, (60, 2))
    Y = np.sin(X[:, 0]) + np.exp(0.5 * (X[:, 1] - 1)) * rng.standard_normal(60)
    signal = latent(rng, X, posteriors[0], mean=fs.means.ConstantMean(0.2))
    return NoisePair(signal, latent(rng, X, posteriors[1], 0.3)), X, Y


@pytest.mark.parametrize("posteriors", [("Whitened", "Whitened"), ("Marginal", "LikelihoodForm")])
def test_bound(rng, posteriors):
    assert_bound(*problem(rng, posteriors), rng)


def test_known_noise_gives_an_svgp(rng):
    """A process g without variance and with a constant mean."""
    model, X, Y = problem(rng)
    tiny = fs.replace(
        model.log_noise, covariance=fs.RBF(1e-20, 1.0), mean=fs.means.ConstantMean(math.log(0.3))
    )
    tiny = fs.replace(tiny, posterior=fs.Whitened(np.zeros(5), np.eye(5)))
    svgp = fs.SVGP(
        model.signal.covariance,
        model.signal.inducing,
        model.signal.posterior,
        fs.Gaussian(0.3),
        model.signal.mean,
    )
    pair = fs.replace(model, log_noise=tiny)
    np.testing.assert_allclose(fs.elbo(pair, X, Y), fs.elbo(svgp, X, Y), rtol=1e-8)
    for ours, theirs in zip(fs.predict_y(pair, X), fs.predict_y(svgp, X), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_inputs_alone(rng):
    model, X, Y = problem(rng)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, wrt=(), inputs=True)
    assert grad.signal is None and grad.log_noise is None
    np.testing.assert_allclose(
        X_bar, fs.elbo_and_grad(model, X, Y, inputs=True)[2], rtol=1e-9, atol=1e-9
    )


def test_training_and_files(rng, tmp_path):
    model, X, Y = problem(rng)
    trained = assert_trains_and_is_kept(model, X, Y, tmp_path, steps=200)
    noise = fs.predict_y(trained, X)[1] - fs.predict_f(trained, X)[1]
    assert noise[X[:, 1] > 1].mean() > noise[X[:, 1] < -1].mean()


def test_fit(rng, tmp_path):
    """Train on minibatches with fixed fields; a resumed training takes the same steps."""
    model, X, Y = problem(rng)
    trained = assert_fits(model, X, Y, fixed="signal.inducing", checkpoint=tmp_path / "whole.npz")
    np.testing.assert_array_equal(trained.signal.inducing, model.signal.inducing)
    assert not np.array_equal(trained.log_noise.inducing, model.log_noise.inducing)
    options = {
        "batch_size": len(X) // 2,
        "fixed": "signal.inducing",
        "checkpoint": tmp_path / "part.npz",
        "rng": 0,
    }
    fs.fit(model, X, Y, steps=11, **options)
    again, info = fs.fit(model, X, Y, steps=30, resume=tmp_path / "part.npz", **options)
    assert info.steps == 30
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(again), fs.records.leaves(trained), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=path)
    with pytest.raises((TypeError, ValueError), match="natural_step"):
        fs.fit(model, X, Y, steps=3, natural_step_size=0.1)


def test_single_precision(rng):
    assert_single_precision(*problem(rng))


def test_unsupported_functions_are_refused(rng):
    model, X, Y = problem(rng)
    with pytest.raises(
        TypeError, match="natural_step: .*got NoisePair: its processes are .signal and .log_noise"
    ):
        fs.natural_step(model, X, Y)
    with pytest.raises(
        TypeError, match="elbo has no option `rng` for NoisePair; it takes `jitter`, `num_data`"
    ):
        fs.elbo(model, X, Y, rng=0)
    with pytest.raises(
        TypeError, match="elbo_and_grad has no option `weights` for NoisePair; it takes"
    ):
        fs.elbo_and_grad(model, X, Y, weights=np.ones(len(X)))
    with pytest.raises(
        TypeError, match="fit: `weights` are given, and elbo_and_grad of a NoisePair takes none"
    ):
        fs.fit(model, X, Y, weights=np.ones(len(X)), steps=1)
    with pytest.raises(
        TypeError, match="predict_y has no option `chunk_size` for NoisePair; it takes `jitter`"
    ):
        fs.predict_y(model, X, chunk_size=10)


def test_bad_input(rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="`X` has 1 columns where `inducing` has 2"):
        fs.elbo(model, X[:, :1], Y)
    with pytest.raises(ValueError, match="`signal.covariance.variance` must be positive"):
        fs.elbo(fs.records.replace_at(model, "signal.covariance.variance", -1.0), X, Y)
    with pytest.raises(ValueError, match="`wrt` names 'noise'"):
        fs.elbo_and_grad(model, X, Y, wrt=("noise",))


def test_a_derived_class_is_a_kind_of_its_own(rng):
    model, X, Y = problem(rng)

    @fs.records.record
    class QuietPair(NoisePair):
        """A derived class without changes."""

    with pytest.raises(
        TypeError, match="elbo: `model` must be a fastsvgp.[A-Za-z, ]*SVGP.*, got QuietPair"
    ):
        fs.elbo(QuietPair(model.signal, model.log_noise), X, Y)
