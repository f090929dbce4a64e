"""Steps in weight space on device arrays: the CPU's results, and only the value is copied.

Without a GPU the device is emulated: see ``cuda_host.cupy_on_host``.
"""

import numpy as np
import pytest
from cuda_host import cupy_on_host
from support.device_models import Copies, assert_same, errors, moved
from support.weight_problems import BASES, basis_of, weights

import fastsvgp as fs
from fastsvgp.train.kinds import qsgp

M, N, SIZE = 16, 21, 5
f8 = np.float64
POSTERIOR = "posterior.mean", "posterior.columns", "posterior.diagonal"
every_basis = pytest.mark.parametrize("name", BASES)


def problem(rng, name, k=0, likelihood=None, dtype=np.float64):
    """Return ``(model, X, Y)`` in one dtype."""
    likelihood = fs.Gaussian(0.3) if likelihood is None else likelihood
    model = fs.QSGP(basis_of(rng, name, M), weights(rng, M, k), likelihood)
    model = fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model)
    Y = rng.standard_normal(N) if isinstance(likelihood, fs.Gaussian) else rng.integers(0, 2, N)
    return model, rng.standard_normal((N, 2)).astype(dtype), Y.astype(dtype)


def units_of(model):
    return SIZE if model.basis.width == 1 else 3


def samples(model, there, **options):
    """Return the same sample of both models."""
    return [
        fs.qsgp.draw_basis_sample(m.basis, units_of(model), rng=(3, 7), **options)
        for m in (model, there)
    ]


def dense_of(tree, of):
    """Return a gradient with all rows, or None if it has none."""
    return fs.records.tree_map(
        lambda leaf, bar: bar.dense(len(leaf)) if isinstance(bar, fs.qsgp.SparseRows) else bar,
        of,
        tree,
    )


def controls_of(kind, model, there, X):
    points = X[:6]
    make = {
        "kriged": lambda m, P: fs.qsgp.kriging_control_variate(m, P, jitter=1e-3),
        "paired": lambda m, P: fs.qsgp.paired_control_variate(m, P, 0.7, jitter=1e-3),
        "running": lambda m, P: fs.qsgp.paired_control_variate(
            m, P, "running", targets=P[:, 0], jitter=1e-3
        ),
    }
    return (
        [None, None]
        if kind == "none"
        else [make[kind](model, points), make[kind](there[0], there[1][:6])]
    )


def check_sampled(gpu, here, k, control="none", tolerance=1e-9, **options):
    model, X, Y = here
    there = moved(gpu, *here)
    one, other = samples(model, there[0], pair=options.pop("pair", True))
    wrt = POSTERIOR + (() if model.basis.dense_precision else ("basis", "likelihood"))
    controls = controls_of(control, model, there, X)
    options |= {"num_data": 100, "wrt": wrt}
    value, grad, info = fs.qsgp.sampled_bound_and_grad(*here, one, control=controls[0], **options)
    sent = cupy_on_host.copies.to_device
    with Copies(gpu, 1):
        found, found_grad, found_info = fs.qsgp.sampled_bound_and_grad(
            *there, other, control=controls[1], **options
        )
    if isinstance(model.likelihood, fs.Gaussian):  # others use nodes: a number for `tangent`
        assert cupy_on_host.copies.to_device == sent
    assert type(found) is float and abs(found - value) <= tolerance * max(1, abs(value))
    assert_same(dense_of(found_grad, there[0]), dense_of(grad, model), tolerance)
    assert_same((found_info.mean, found_info.var), (info.mean, info.var), tolerance)
    np.testing.assert_allclose(
        [float(gpu.back(term)) for term in found_info.terms],
        info.terms,
        rtol=tolerance,
        atol=tolerance,
    )
    if control == "running":
        assert_same(found_info.control.coefficient, info.control.coefficient, 10 * tolerance)
    if control == "none":
        return
    change = fs.qsgp.ChevronWeights(
        grad.posterior.mean, grad.posterior.columns if k else None, None
    )
    found_change = fs.qsgp.ChevronWeights(
        found_grad.posterior.mean, found_grad.posterior.columns if k else None, None
    )
    with Copies(gpu, 0):
        advanced = fs.qsgp.update_control_variate(there[0], found_info.control, found_change)
    assert_same(
        advanced.values,
        fs.qsgp.update_control_variate(model, info.control, change).values,
        tolerance,
    )


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 2e-3)])
@pytest.mark.parametrize("control", ["none", "kriged", "paired", "running"])
@pytest.mark.parametrize("k", [0, 2])
@every_basis
def test_gaussian(gpu, rng, name, k, control, dtype, tolerance):
    check_sampled(gpu, problem(rng, name, k, dtype=dtype), k, control, tolerance)


@pytest.mark.parametrize(
    "k, control, pair",
    [(0, "none", False), (0, "none", True), (2, "none", True), (2, "kriged", True)],
)
@every_basis
def test_tangent(gpu, rng, name, k, control, pair):
    here = problem(rng, name, k, fs.likelihoods.BernoulliLogit())
    check_sampled(gpu, here, k, control, pair=pair or name == "inducing")
    check_sampled(gpu, here, k, control, pair=pair or name == "inducing", tangent=0.8)


@pytest.mark.parametrize("k", [M, M - 1])
def test_all_columns_are_dense(gpu, rng, k):
    check_sampled(gpu, problem(rng, "relevance", k), k, "kriged")


@every_basis
def test_the_same_units_on_either_side(gpu, rng, name):
    model, *_ = problem(rng, name)
    there = fs.to_device(model)
    with Copies(gpu, 0):
        one, other = samples(model, there)
    for a, b in zip(one, other, strict=True):
        assert (a is None) is (b is None)
        if a is not None:
            np.testing.assert_array_equal(gpu.back(b), a)
    for scheme in ("stratified", "without", "with"):
        one, other = (
            fs.qsgp.draw_basis_sample(m.basis, 3, rng=5, scheme=scheme) for m in (model, there)
        )
        np.testing.assert_array_equal(gpu.back(other.i), one.i)
        value, _, _ = fs.qsgp.sampled_bound_and_grad(*problem(rng, name), one, wrt=POSTERIOR)
        assert np.isfinite(value)


@pytest.mark.parametrize("fixed", [(), "basis"])
@pytest.mark.parametrize("k", [0, 2])
def test_adagrad(gpu, rng, k, fixed):
    here = problem(rng, "relevance", k)
    there, optimiser = moved(gpu, *here), fs.optim.adagrad(0.1, fixed=fixed)
    (model, X, Y), (other, *data) = here, there
    states = [optimiser.init(model), optimiser.init(other)]
    for step in range(3):
        both = [fs.qsgp.draw_basis_sample(m.basis, SIZE, rng=(1, step)) for m in (model, other)]
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, both[0], wrt=optimiser.paths(model)
        )
        found, bar, _ = fs.qsgp.sampled_bound_and_grad(
            other, *data, both[1], wrt=optimiser.paths(other)
        )
        model, states[0] = optimiser.step(model, grad, states[0], value)
        with Copies(gpu, 1):  # whether the whole gradient is finite
            other, states[1] = optimiser.step(other, bar, states[1], found)
    model, other = (
        fs.records.replace_at(m, "posterior.columns", np.tril(m.posterior.columns))
        for m in (model, other)
    )
    assert_same(other, model, 1e-9)


@pytest.mark.parametrize("k", [0, 3])
@every_basis
def test_closed_forms(gpu, rng, name, k):
    here = problem(rng, name, k)
    here = (
        fs.records.replace_at(here[0], "posterior.columns", np.tril(here[0].posterior.columns)),
        *here[1:],
    )
    there = moved(gpu, *here)
    with Copies(gpu, 1):
        found = fs.qsgp.optimal_diagonal(*there[:2], num_data=50, jitter=1e-2)
    assert_same(found, fs.qsgp.optimal_diagonal(*here[:2], num_data=50, jitter=1e-2), 1e-9)
    expected, info = fs.qsgp.optimal_weights(*here, iterations=5, jitter=1e-2)
    found, found_info = fs.qsgp.optimal_weights(*there, iterations=5, jitter=1e-2)
    assert_same(found, expected, 1e-7)
    np.testing.assert_allclose(found_info.gains, info.gains, rtol=1e-6)


FITS = {
    "gaussian": ({}, {}),
    "kriged": ({"name": "relevance", "k": 2}, {"control": 6}),
    "dense": ({"name": "inducing", "k": 1}, {"control": 6, "jitter": 1e-3}),
    "logit": ({"likelihood": fs.likelihoods.BernoulliLogit()}, {}),
    "kriged logit": ({"likelihood": fs.likelihoods.BernoulliLogit(), "k": 1}, {"control": 6}),
    "hyperparameters": (
        {},
        {
            "fixed": "posterior.columns",
            "optimiser": fs.optim.by_field(fs.optim.adagrad(0.1), {"basis": fs.adam(0.1)}),
        },
    ),
}


@pytest.mark.parametrize("run", FITS)
def test_fit(gpu, rng, run, tmp_path, monkeypatch):
    monkeypatch.setattr(qsgp, "RENEWAL", 3)
    monkeypatch.setattr(qsgp, "SHARE", 1)
    about, options = FITS[run]
    model, X, Y = problem(rng, **{"name": "fourier"} | about)
    model = fs.records.replace_at(model, "posterior.columns", np.tril(model.posterior.columns))
    options = {"batch_size": 8, "basis_size": 6, "rng": 3} | options
    expected, info = fs.fit(model, X, Y, steps=5, **options)
    there = fs.to_device(model)
    found, found_info = fs.fit(there, X, Y, steps=5, **options)
    np.testing.assert_allclose(found_info.values, info.values, rtol=1e-7)
    assert_same(found, expected, 1e-7)
    assert_same(there, model, 0)  # the arguments are not modified
    assert_same(
        fs.fit(there, gpu.there(X), gpu.there(Y), steps=5, **options)[0], fs.to_host(found), 0
    )
    path = tmp_path / "state.npz"
    fs.fit(there, X, Y, steps=2, checkpoint=path, **options)
    assert_same(fs.fit(there, X, Y, steps=5, resume=path, **options)[0], fs.to_host(found), 0)


@pytest.mark.parametrize("run", FITS)
def test_copies_of_a_training_step(gpu, rng, run):
    about, options = FITS[run]
    model, X, Y = problem(rng, **{"name": "fourier"} | about)
    there, counts = moved(gpu, model, X, Y), []
    fs.fit(*there, steps=4, batch_size=N, basis_size=6, rng=3,
           callback=lambda *_: counts.append(cupy_on_host.copies.to_host), **options)  # fmt: skip
    # the value, and whether the gradients of each optimiser are finite
    if gpu.cupy is cupy_on_host.cupy:
        assert set(np.diff(counts)) == {3 if run == "hyperparameters" else 2}


def test_faults_have_the_same_words(gpu, rng):
    model, X, Y = problem(rng, "relevance", 2)
    one = fs.qsgp.draw_basis_sample(model.basis, M, rng=0)

    def spoilt(path, value):
        array = {path: leaf for path, _, leaf in fs.records.leaves(model)}[path].copy()
        array[5] = value
        return fs.records.replace_at(model, path, array)

    X_wrong = X.copy()
    X_wrong[3, 1] = np.nan
    cases = [
        (spoilt("posterior.mean", np.nan), X, Y, one),
        (spoilt("posterior.columns", np.inf), X, Y, one),
        (spoilt("posterior.diagonal", -1.0), X, Y, one),
        (spoilt("basis.precision", -1.0), X, Y, one),
        (fs.records.replace_at(model, "likelihood.variance", f8(-1)), X, Y, one),
        (fs.records.replace_at(model, "basis.covariance.variance", f8(np.nan)), X, Y, one),
        (model, X_wrong, Y, one),
        (model, X, Y, one._replace(i=np.array([0, M]))),
        (model, X, Y, one._replace(j=np.array([-1, 2]), weight_j=None)),
        (model, X, Y, one._replace(weight_i=np.where(np.arange(M) == 3, -1.0, 1.0))),
        (model, X, Y, one._replace(weight_j=np.where(np.arange(M) == 3, np.nan, 1.0))),
    ]
    for *here, sample in cases:
        on_device = type(sample)(*(part if part is None else gpu.there(part) for part in sample))
        for other in (sample, on_device):
            seen = iter((sample, other))
            a, b = errors(
                lambda *args, seen=seen: fs.qsgp.sampled_bound_and_grad(*args, next(seen)),
                here,
                moved(gpu, *here),
            )
            assert a == b
    check_sampled(
        gpu,
        (fs.records.replace_at(model, "posterior.columns", np.tril(model.posterior.columns)), X, Y),
        2,
    )


def test_gradients_that_are_wrong_move_nothing(gpu, rng):
    model, *_ = problem(rng, "fourier")
    optimiser, ones = (
        fs.optim.adagrad(0.1, fixed=("basis", "likelihood", "posterior.columns")),
        gpu.there(np.ones(M)),
    )

    def grad(mean):
        return fs.QSGP(None, fs.qsgp.ChevronWeights(mean, None, ones), None)

    there = fs.to_device(model)
    there, state = optimiser.step(there, grad(ones), optimiser.init(there))
    before = fs.to_host(there)
    for rows, values, message in (
        ([0, 3], [1.0, np.nan], "NaN or infinity in 'posterior.mean'"),
        ([0, M], [1.0, 1.0], f"rows 0 to {M}, but there are {M}"),
    ):  # fmt: skip
        wrong = fs.qsgp.SparseRows(*(gpu.there(np.array(part)) for part in (rows, values)))
        with pytest.raises((ValueError, IndexError), match=message):
            optimiser.step(there, grad(wrong), state)
    assert_same(there, before, 0)


def test_refused_device_arrays_are_reported(gpu, rng):
    model, X, Y = problem(rng, "relevance", 2)
    there = moved(gpu, model, X, Y)
    with pytest.raises(TypeError, match="estimators that draw columns work on NumPy arrays"):
        fs.qsgp.sampled_bound_and_grad(
            *there, fs.qsgp.draw_basis_sample(model.basis, 3, rng=0, columns=4)
        )
    with pytest.raises(
        TypeError, match="sampled_bound_and_grad_from_features works on NumPy arrays"
    ):
        fs.qsgp.sampled_bound_and_grad_from_features(
            there[1], None, model.posterior, model.likelihood, there[2],
            fs.qsgp.BasisSample(np.arange(2)), precision=np.ones(M))  # fmt: skip
    with pytest.raises(TypeError, match="different devices"):
        fs.qsgp.sampled_bound_and_grad(
            there[0], X, Y, fs.qsgp.draw_basis_sample(model.basis, 3, rng=0)
        )
    with pytest.raises(TypeError, match="different devices"):
        fs.qsgp.sampled_bound_and_grad(
            *there,
            fs.qsgp.draw_basis_sample(model.basis, 3, rng=0),
            control=fs.qsgp.kriging_control_variate(model, X[:3]),
        )
