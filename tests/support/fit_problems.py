"""Small models to train by ``fit``, and exact comparison of models."""

import signal

import numpy as np

import fastsvgp as fs
from fastsvgp.records import leaves

M = 5


def problem(rng, N=60, D=2, dtype=np.float64, likelihood=None, outputs=()):
    X = rng.uniform(-2, 2, (N, D)).astype(dtype)
    Y = (np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)).astype(dtype)
    if outputs:
        Y = np.stack([Y + i for i in range(outputs[0])], axis=1)
    posterior = fs.Whitened(
        np.zeros(outputs + (M,), dtype),
        np.broadcast_to(np.eye(M, dtype=dtype), outputs + (M, M)).copy(),
    )
    model = fs.SVGP(
        covariance=fs.RBF(variance=1.0, lengthscales=np.ones(D, dtype)),
        inducing=X[:M].copy(), posterior=posterior,
        likelihood=likelihood or fs.Gaussian(variance=0.1),
    )  # fmt: skip
    return model, X, Y


def classes(rng):
    model, X, _ = problem(rng, outputs=(3,))
    return fs.replace(model, likelihood=fs.Softmax(num_classes=3)), X, rng.integers(3, size=len(X))


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(leaves(a), leaves(b), strict=True):
        assert (x is None) == (y is None), path
        if x is not None:
            np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


def cast(tree, dtype):
    return fs.records.tree_map(lambda v: v.astype(dtype) if np.ndim(v) else v, tree)


def assert_mixed_dtypes_train_in_the_wide_one(tmp_path, model, X, Y, **options):
    """Model and data of different dtypes: arrays are wide from step one; resuming is bitwise."""
    narrow = cast(model, np.float32), X.astype(np.float32), Y.astype(np.float32)
    wide = tuple(
        cast(a, np.float64) if isinstance(a, type(model)) else a.astype(np.float64) for a in narrow
    )
    expected, expected_info = fs.fit(*wide, steps=6, **options)
    for which in ((0, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0)):
        model, X, Y = (
            pair[i] for pair, i in zip(zip(narrow, wide, strict=True), which, strict=True)
        )
        path = tmp_path / "half.npz"
        half, _ = fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
        got, info = fs.fit(model, X, Y, steps=6, **options)
        resumed, _ = fs.fit(model, X, Y, steps=6, resume=path, **options)
        for result in (half, got):
            assert {v.dtype for _, _, v in leaves(result) if np.ndim(v)} == {np.dtype(np.float64)}
        assert_same(got, expected)
        np.testing.assert_array_equal(info.values, expected_info.values)
        if isinstance(model, fs.SVGP):  # an SGPR goes on with a new memory of curvature
            assert_same(resumed, got)


def signalling(monkeypatch, module, name, at, times):
    """Signals during one call of what a step computes."""
    real, calls = getattr(module, name), []

    def function(*args, **kwargs):
        calls.append(1)
        for _ in range(times if len(calls) == at else 0):
            signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, function)
    return calls


def failing(real, fails):
    """``real``, raising NotPositiveDefinite unless the jitter is enough."""

    def function(*args, jitter, **kwargs):
        if jitter < fails:
            raise fs.NotPositiveDefinite((), 3, jitter, M, np.float64)
        return real(*args, jitter=jitter, **kwargs)

    return function
