"""Compare models on a device with the same models on the CPU.

Without a GPU the device is emulated on the host: see ``cuda_host.cupy_on_host``.
"""

import math

import numpy as np
import pytest
from cuda_host import cupy_on_host
from support.posterior_problems import JITTER, in_model

import fastsvgp as fs
from fastsvgp.errors import NotPositiveDefinite

M, B, D = 17, 65, 3
f8 = np.float64
TARGETS = {
    "real": lambda rng, shape: rng.standard_normal(shape),
    "labels": lambda rng, shape: rng.integers(0, 2, shape),
    "counts": lambda rng, shape: rng.integers(0, 6, shape),
    "classes": lambda rng, shape: rng.integers(0, 3, B),
}
LIKELIHOODS = [
    (fs.Gaussian(f8(0.3)), "real", ()),
    (fs.Gaussian(f8(0.3)), "real", (2,)),
    (fs.BernoulliProbit(), "labels", ()),
    (fs.likelihoods.BernoulliLogit(), "labels", (2,)),
    (fs.likelihoods.Laplace(f8(0.4)), "real", ()),
    (fs.StudentT(f8(0.4)), "real", ()),
    (fs.Poisson(), "counts", ()),
    (fs.likelihoods.HeteroskedasticGaussian(), "real", ()),
    (fs.likelihoods.HeteroskedasticGaussian(), "real", (2,)),
    (fs.likelihoods.HeteroskedasticNegativeBinomial(), "counts", ()),
    (fs.likelihoods.RobustMax(num_classes=3), "classes", (3,)),
    (fs.Softmax(num_classes=3), "classes", (3,)),
]
COVARIANCES = [
    fs.Matern12(f8(1.3), f8(0.8)),
    fs.Matern32(f8(1.3), np.ones(D)) + fs.Linear(np.ones(D)) + fs.covariances.Constant(f8(0.3)),
    fs.Matern52(f8(1.0), np.ones(D)) * fs.Linear(f8(0.7)),
]
MEANS = [
    fs.means.ZeroMean(),
    fs.means.ConstantMean(f8(0.3)),
    fs.means.LinearMean(np.ones(D), f8(0.2)),
]


def small_model(rng, outputs=(), posterior=fs.Whitened, **fields):
    K = fields["likelihood"].latents_per_output if "likelihood" in fields else 1
    outputs = outputs if K == 1 else (K * math.prod(outputs),)
    W = np.tril(0.1 * rng.standard_normal((*outputs, M, M))) + np.eye(M)
    defaults = {
        "covariance": fs.RBF(f8(1.3), np.array([0.8, 1.1, 1.4])),
        "inducing": rng.standard_normal((M, D)),
        "posterior": posterior(0.3 * rng.standard_normal((*outputs, M)), W),
        "likelihood": fs.Gaussian(f8(0.3)),
    }
    return fs.SVGP(**defaults | fields)


def assert_same(there, here, tolerance=1e-10):
    """Compare a record or a tuple of arrays from the device with those from the CPU."""
    if isinstance(here, tuple):
        for one, other in zip(there, here, strict=True):
            assert_same(one, other, tolerance)
        return
    if not hasattr(here, "_record_fields"):
        there, here = [("", "", there)], [("", "", here)]
    for (path, _, one), (_, _, other) in zip(
        *(x if isinstance(x, list) else fs.records.leaves(x) for x in (there, here)), strict=True
    ):
        assert (one is None) is (other is None), path
        if other is not None:
            assert (
                hasattr(one, "__cuda_array_interface__")
                and one.shape == np.shape(other)
                and one.dtype == other.dtype
            ), path
            assert np.abs(one.get() - other).max(initial=0) <= tolerance * max(
                1, np.abs(other).max(initial=0)
            ), path


class Copies:
    """Assert the number of copies to the host in a block; a real device does not count them."""

    def __init__(self, gpu, number):
        self.counts, self.number = gpu.cupy is cupy_on_host.cupy, number

    def __enter__(self):
        self.before = cupy_on_host.copies.to_host

    def __exit__(self, kind, *_):
        if kind is None and self.counts:
            assert cupy_on_host.copies.to_host - self.before == self.number


def moved(gpu, model, *arrays):
    return fs.to_device(model), *map(gpu.there, arrays)


def check_bound(gpu, bound, here, there, **settings):
    """Check the value and the gradient of a bound, and with ``inputs`` the gradient in X."""
    value, *bars = bound(*here, **settings)
    with Copies(gpu, 1):
        other_value, *other_bars = bound(*there, **settings)
    assert type(other_value) is float and abs(other_value - value) <= 1e-10 * max(1, abs(value))
    assert_same(tuple(other_bars), tuple(bars))


def model_of_row(rng, name, outputs=(), jitter=JITTER):
    """Return a model with the posterior of a row, and the options of its bound."""
    model, random = in_model(rng, name, small_model(rng), outputs, jitter)
    return model, {
        "jitter": jitter,
        **{quantity: 4 for quantity in random},
        **({"rng": 1} if random else {}),
    }


def errors(function, here, there):
    """Return the messages that the two sides raise."""
    messages = []
    for arguments in (here, there):
        with pytest.raises((ValueError, TypeError, NotPositiveDefinite)) as caught:
            function(*arguments)
        messages.append((type(caught.value), str(caught.value)))
    return messages
