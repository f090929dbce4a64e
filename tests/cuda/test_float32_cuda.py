"""All code above the kernels on float32 device arrays: stays float32, as accurate as on the CPU.

The reference is float64 on the CPU, for the same rounded numbers.
"""

import contextlib

import numpy as np
import pytest
from support.device_models import (
    COVARIANCES,
    LIKELIHOODS,
    MEANS,
    TARGETS,
    B,
    Copies,
    D,
    model_of_row,
    moved,
    small_model,
)
from support.posterior_problems import ROWS

import fastsvgp as fs

EPS = np.finfo(np.float32).eps
# bound: a multiple of the CPU's own error, or this if that is small by chance; relative to the
# largest entry
SLACK, FLOOR = 4, 64 * EPS


def rounded(tree, dtype=np.float32):
    """Return a record or array with numbers rounded to float32, as float32 or float64."""
    if isinstance(tree, np.ndarray):
        return tree.astype(np.float32).astype(dtype) if tree.dtype.kind == "f" else tree
    return fs.records.tree_map(lambda a: np.asarray(a, np.float32).astype(dtype)[()], tree)


def by_name(results):
    """Return the results of a bound or a prediction as ``name: array``."""
    if isinstance(results, tuple):
        return {
            f"{i} {name}": a for i, part in enumerate(results) for name, a in by_name(part).items()
        }
    if hasattr(results, "_record_fields"):
        return {path: value for path, _, value in fs.records.leaves(results)}
    return {"": results}


def check(gpu, function, *arguments, copies=1, there=None, **settings):
    """Compare the results of ``function`` in float32, with ``copies`` copies to the host.

    None: copies are not counted. ``there`` holds additional settings for the device.
    """
    exact, plain = (
        by_name(function(*(rounded(a, dtype) for a in arguments), **settings))
        for dtype in (np.float64, np.float32)
    )
    moved_there = moved(gpu, *map(rounded, arguments))
    with Copies(gpu, copies) if copies else contextlib.nullcontext():
        found = by_name(function(*moved_there, **settings | (there or {})))
    assert found.keys() == exact.keys()
    for name, truth in exact.items():
        if truth is None:
            assert found[name] is None, name
            continue
        ours = found[name]
        if isinstance(truth, float) and not isinstance(truth, np.generic):
            assert type(ours) is float, name
        else:
            assert (
                hasattr(ours, "__cuda_array_interface__")
                and ours.dtype == np.float32
                and ours.shape == np.shape(truth)
            ), name
            ours = ours.get()
        scale = max(1, np.abs(truth).max(initial=0))
        theirs = np.abs(plain[name] - truth).max(initial=0) / scale
        assert np.abs(ours - truth).max(initial=0) / scale <= SLACK * max(theirs, FLOOR), (
            name,
            theirs,
        )


@pytest.mark.parametrize(
    "case", range(len(LIKELIHOODS)), ids=lambda i: type(LIKELIHOODS[i][0]).__name__
)
def test_likelihoods(gpu, rng, case):
    """Every likelihood with one posterior and prediction, and these with several likelihoods."""
    likelihood, kind, outputs = LIKELIHOODS[case]
    posterior, predict = ((fs.Whitened, fs.predict_f), (fs.Marginal, fs.predict_y))[case % 2]
    model = small_model(rng, outputs, posterior, likelihood=likelihood)
    X, Y = rng.standard_normal((B, D)), TARGETS[kind](rng, (B, *outputs))
    check(gpu, fs.elbo_and_grad, model, X, Y, num_data=1000)
    check(gpu, predict, model, X, there={"chunk_size": 40})
    check(gpu, fs.predict_log_density, model, X, Y, copies=None)


@pytest.mark.parametrize(
    "covariance, mean", [*zip(COVARIANCES, MEANS, strict=True)], ids=lambda x: type(x).__name__
)
def test_covariances_and_the_collapsed_bound(gpu, rng, covariance, mean):
    model, X, Y = (
        small_model(rng, covariance=covariance, mean=mean),
        rng.standard_normal((B, D)),
        rng.standard_normal(B),
    )
    check(gpu, fs.elbo_and_grad, model, X, Y, num_data=1000)
    sgpr = fs.SGPR(covariance, model.inducing, np.float64(0.3), mean)
    check(gpu, fs.collapsed_bound_and_grad, sgpr, X, Y)


@pytest.mark.parametrize("posterior", ROWS)
def test_every_posterior(gpu, rng, posterior):
    X, Y = rng.standard_normal((B, D)), rng.standard_normal((B, 2))
    # well conditioned, because a single problem has no median
    model, settings = model_of_row(rng, posterior, (2,), jitter=0.3)
    check(gpu, fs.elbo_and_grad, model, X, Y, num_data=1000, inputs=True, **settings)


@pytest.mark.parametrize("posterior", [fs.Whitened, fs.Marginal])
def test_steps(gpu, rng, posterior):
    model, X = small_model(rng, posterior=posterior), rng.standard_normal((B, D))
    check(
        gpu,
        lambda *a: fs.natural_step(*a, step_size=0.4, num_data=500)[0],
        model,
        X,
        np.sin(X[:, 0]),
        copies=None,
    )
    there, X, Y = moved(gpu, *map(rounded, (model, X, np.sin(X[:, 0]))))
    found, info = fs.fit(there, X, Y, steps=3, batch_size=20, rng=3)
    assert (
        all(leaf.dtype == np.float32 for _, _, leaf in fs.records.leaves(found))
        and np.isfinite(info.values).all()
    )
