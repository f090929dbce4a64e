"""One pass of data through a layer: whole, in chunks of rows, and through two layers."""

from types import SimpleNamespace

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_derivative, assert_gradient, extended
from support.posterior_problems import JITTER, ROWS, in_model, of_means

import fastsvgp as fs
from fastsvgp.bounds import relay
from fastsvgp.bounds.layer_pass import LayerPass

N = 9
FIELDS = ("covariance", "inducing", "posterior", "mean")
each_posterior = pytest.mark.parametrize("name", ROWS)


def layer_of(rng, name, D=2, M=5, batch=()):
    """``(layer, random quantities)``."""
    mean = fs.means.LinearMean(
        rng.standard_normal((*batch, D)), np.linspace(0.1, 0.4, *batch) if batch else 0.3
    )
    covariance = fs.Matern52(1.2, np.linspace(0.9, 1.3, D)) + fs.Linear(0.3)
    return in_model(
        rng, name, fs.layers.Layer(covariance, rng.uniform(-2, 2, (M, D)), None, mean), batch
    )


def definition(layer, X, random):
    """Means, variances (P, N) and the KL term, the mean function included."""
    blocks = definitions.blocks(layer.covariance, layer.inducing, X, JITTER)
    mean, var, kl = definitions.moments(layer.posterior, blocks, **random)
    return mean + definitions.prior_mean(layer.mean, X), var, kl


@pytest.mark.parametrize("batch", [(), (2,)])
@each_posterior
def test_forward_and_back_by_definition(rng, name, batch):
    """Two chunks of rows, pulled in reverse order."""
    layer, random = layer_of(rng, name, batch=batch)
    X = rng.uniform(-2, 2, (N, 2))
    work = LayerPass(layer, JITTER, N, (*FIELDS, "inputs"), **random)
    runs = slice(0, 4), slice(4, N)
    (f, first), (g, second) = (work.forward(X[run]) for run in runs)
    mean, var, kl = definition(layer, X, random)
    np.testing.assert_allclose(
        np.concatenate([f.mean, g.mean], -1), mean.reshape(*batch, N), atol=1e-10
    )
    np.testing.assert_allclose(
        np.concatenate([f.var, g.var], -1), var.reshape(*batch, N), atol=1e-10
    )
    assert work.kl() == pytest.approx(kl, rel=1e-10) and work.num_inducing == 5
    f_bar = fs.records.Marginals(*rng.standard_normal((2, *batch, N)))
    bars = [work.pull(rows, fs.records.tree_map(lambda a, run=run: a[..., run], f_bar))
            for rows, run in ((second, runs[1]), (first, runs[0]))]  # fmt: skip
    found = work.finish(-0.7)

    def value(layer, X):
        mean, var, kl = definition(layer, X, random)
        return (
            (f_bar.mean * mean.reshape(*batch, N)).sum()
            + (f_bar.var * var.reshape(*batch, N)).sum()
            - 0.7 * kl
        )

    assert_gradient(lambda q: value(q, X), layer, fs.layers.Layer(*found), rng)
    X_bar = np.concatenate(bars[::-1])
    assert_derivative(
        lambda X: value(layer, X), extended(X), X_bar, rng.standard_normal(X.shape), name="X"
    )


@each_posterior
def test_only_what_is_needed(rng, name):
    layer, random = layer_of(rng, name)
    X = rng.uniform(-2, 2, (N, 2))

    def through(*need):
        work = LayerPass(layer, JITTER, N, need, **random)
        f, rows = work.forward(X)
        X_bar = work.pull(rows, fs.records.Marginals(np.sin(f.mean), -np.cos(f.var)))
        return *work.finish(-1.0), X_bar

    whole = dict(zip((*FIELDS, "inputs"), through(*FIELDS, "inputs"), strict=True))
    some = ("covariance.parts.0.variance", "inputs"), ("inducing", of_means(layer.posterior))
    for need in ((), ("inputs",), ("mean",), *some, FIELDS):
        found = dict(zip(whole, through(*need), strict=True))
        for field, bar in found.items():
            names = [name for name in need if name.partition(".")[0] == field]
            if not names:
                assert bar is None or not [
                    leaf for _, _, leaf in fs.records.leaves(bar) if leaf is not None
                ], (need, field)
            elif field in ("inputs", "inducing"):
                np.testing.assert_allclose(bar, whole[field], rtol=1e-10, atol=1e-11, err_msg=field)
            else:
                for (path, _, a), (_, _, b) in zip(
                    fs.records.leaves(bar), fs.records.leaves(whole[field]), strict=True
                ):
                    wanted = any(f"{field}.{path}.".startswith(f"{name}.") for name in names)
                    assert (a is not None) == wanted, (need, path)
                    if wanted:
                        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-11, err_msg=path)


@each_posterior
def test_joint_moments_have_the_marginals(rng, name):
    layer, random = layer_of(rng, name, batch=(2,))
    X = rng.uniform(-2, 2, (N, 2))
    f, _ = LayerPass(layer, JITTER, N, **random).forward(X)
    joint = LayerPass(layer, JITTER).joint(X)
    np.testing.assert_allclose(joint.mean, f.mean, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(joint.cov, axis1=1, axis2=2), f.var, atol=1e-12)
    plain = LayerPass(fs.replace(layer, mean=None), JITTER).joint(X)
    np.testing.assert_allclose(joint.mean - plain.mean, layer.mean(X), atol=1e-12)


@each_posterior
def test_layers_chain(rng, name):
    """The means of one layer are the inputs of the next; gradients of both are correct."""
    (below, random_below), (above, random_above) = (
        layer_of(rng, name, batch=(3,)),
        layer_of(rng, name, D=3),
    )
    X = rng.uniform(-1, 1, (N, 2))
    first = LayerPass(below, JITTER, N, (*FIELDS, "inputs"), **random_below)
    f, rows = first.forward(X)
    second = LayerPass(above, JITTER, N, (*FIELDS, "inputs"), **random_above)
    g, rows_above = second.forward(np.ascontiguousarray(f.mean.T))
    g_bar, var_bar = fs.records.Marginals(*rng.standard_normal((2, N))), rng.standard_normal((3, N))
    mean_bar = np.ascontiguousarray(second.pull(rows_above, g_bar).T)
    X_bar = first.pull(rows, fs.records.Marginals(mean_bar, var_bar))
    bars, bars_above = first.finish(-1.0), second.finish(-1.0)

    def value(below, above, X):
        mean, var, kl = definition(below, X, random_below)
        top_mean, top_var, top_kl = definition(above, mean.T, random_above)
        return (
            (var_bar * var).sum()
            + (g_bar.mean * top_mean[0]).sum()
            + (g_bar.var * top_var[0]).sum()
            - kl
            - top_kl
        )

    assert_derivative(
        lambda X: value(below, above, X), extended(X), X_bar, rng.standard_normal(X.shape), name="X"
    )
    assert_gradient(lambda q: value(q, above, X), below, fs.layers.Layer(*bars), rng)
    assert_gradient(lambda q: value(below, q, X), above, fs.layers.Layer(*bars_above), rng)


@pytest.mark.parametrize("rows", [100, 2048, 8192, 9001, 100_003])
def test_chunks_are_of_one_size_that_suits_the_cache(rows, tune):
    """Cache lines as a whole, no multiple of the distance at which lines share a set."""
    tune(bound_chunk_numbers=512 * 1024, bound_chunk_columns=1024)
    X = np.empty((rows, 1))
    found = relay.chunks(SimpleNamespace(sizes=[(512, 1)], samples=1), X)
    assert sum(len(X[rows]) for rows in found) == rows
    starts, stops = [rows.start or 0 for rows in found], [rows.stop for rows in found]
    assert starts[1:] == stops[:-1]
    if len(found) > 1:
        (size,) = {stop - start for start, stop in zip(starts, stops, strict=True)}
        assert size % 8 == 0 and size % 512 and len(X[found[-1]]) <= size
