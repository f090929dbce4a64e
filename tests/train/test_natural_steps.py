"""Many natural steps at one prior equal single steps, for batches of any rows; monotone steps."""

import numpy as np
import pytest
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs

KINDS = {"whitened": 0, "marginal": 0, "absorbed-sites": 0, "dual-sites": 0}
M, N, D = 6, 40, 2


def problem(rng, name="absorbed-sites", P=None, likelihood=None, mean=None):
    batch = () if P is None else (P,)
    covariance, Z = fs.Matern52(1.1, np.array([0.9, 1.4])), rng.uniform(-2, 2, (M, D))
    q = EVERY[name].make(rng, covariance.Kuu(Z) + JITTER * np.eye(M), batch)
    model = fs.SVGP(covariance, Z, q, likelihood or fs.Gaussian(0.3), mean)
    return model, rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))


def assert_same_posterior(a, b, rtol=1e-9):
    for (path, kind, x), (_, _, y) in zip(
        fs.records.leaves(a.posterior), fs.records.leaves(b.posterior), strict=True
    ):
        lower = kind in ("tril", "symmetric")
        np.testing.assert_allclose(
            *(np.tril(v) if lower else v for v in (x, y)), rtol=rtol, atol=1e-9, err_msg=path
        )


@pytest.mark.parametrize(
    "P, likelihood, mean",
    [
        (None, fs.Gaussian(0.3), fs.means.ConstantMean(0.4)),
        (3, fs.Gaussian(0.3), None),
        (None, fs.StudentT(0.3, df=3.0), None),
    ],
    ids=["mean", "three", "student"],
)
@pytest.mark.parametrize("name", KINDS)
def test_many_steps_equal_single_steps(rng, tune, name, P, likelihood, mean):
    """On all data, also in chunks, and on batches of several lengths."""
    model, X, Y = problem(rng, name, P, likelihood, mean)
    batches = [rng.permutation(N)[:size] for size in (7, 19, 7, 1)]
    one = model
    for rows in batches:
        rows = np.sort(rows)
        one, info = fs.natural_step(one, X[rows], Y[rows], step_size=0.4, num_data=N, jitter=JITTER)
    many, infos = fs.sites.natural_steps(
        model, X, Y, rows=iter(batches), step_size=0.4, jitter=JITTER
    )
    assert type(many.posterior) is type(model.posterior) and len(infos) == 4
    assert infos[-1].value == pytest.approx(info.value, rel=1e-9) and infos[-1][1:] == info[1:]
    assert_same_posterior(many, one)
    one = model
    for _ in range(5):
        one, info = fs.natural_step(one, X, Y, step_size=0.4, num_data=2 * N, jitter=JITTER)
    for columns in (1024, 9):
        tune(bound_chunk_columns=columns, bound_chunk_numbers=1)
        for keep in (2**26, 0):
            tune(cached_projection_numbers=keep)
            many, infos = fs.sites.natural_steps(
                model, X, Y, steps=5, step_size=0.4, num_data=2 * N, jitter=JITTER
            )
            assert infos[-1].value == pytest.approx(info.value, rel=1e-9)
            assert_same_posterior(many, one)


def test_data_that_are_read_row_by_row(rng, tmp_path):
    model, X, Y = problem(rng)
    np.save(tmp_path / "X.npy", X)
    lazy = np.load(tmp_path / "X.npy", mmap_mode="r")
    batches = [np.arange(0, N, 3), np.arange(1, N, 5)]
    found, truth = (fs.sites.natural_steps(model, data, Y, rows=batches)[0] for data in (lazy, X))
    assert_same_posterior(found, truth, 1e-13)
    # the data decide on the dtype
    narrow = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    found, _ = fs.sites.natural_steps(narrow, lazy, Y, rows=batches)
    assert found.posterior.lambda2.dtype == np.float64


@pytest.mark.parametrize(
    "likelihood", [fs.StudentT(0.3, df=3.0), fs.Poisson(exposure=1.0)], ids=["student", "poisson"]
)
def test_monotone_steps_never_lower_the_bound(rng, likelihood):
    model, X, Y = problem(rng, likelihood=likelihood)
    Y = np.floor(200 * np.abs(Y)) if isinstance(likelihood, fs.Poisson) else 3 * Y
    zeros = fs.replace(
        model, posterior=fs.posteriors.AbsorbedDualSites(np.zeros(M), np.zeros((M, M)))
    )
    found, infos = fs.sites.natural_steps(
        zeros, X, Y, steps=500, step_size=1.0, monotone=True, tolerance=1e-7
    )
    values = [info.value for info in infos]
    assert len(infos) < 500 and np.diff(values).min() > -1e-6 * max(map(abs, values))
    assert fs.elbo(found, X, Y) >= values[-1] - 1e-6
    assert not isinstance(likelihood, fs.Poisson) or any(info.backed_off for info in infos)
    _, grad = fs.elbo_and_grad(fs.posteriors.convert(found, fs.Whitened), X, Y)
    assert np.abs(grad.posterior.mean).max() < 0.1
    assert not isinstance(likelihood, fs.StudentT) or any(info.negative for info in infos)


def test_steps_end_when_the_bound_rises_less_than_tolerance(rng):
    model, X, Y = problem(rng, "whitened")
    _, infos = fs.sites.natural_steps(model, X, Y, steps=50, step_size=1.0, tolerance=1e-9)
    assert len(infos) == 3  # the optimum after the first step
    same, infos = fs.sites.natural_steps(model, X, Y, steps=0)
    assert infos == []
    assert_same_posterior(same, model, 1e-8)


def test_at_the_optimum_rounding_halves_no_step(rng):
    model, X, Y = problem(rng, "whitened")
    best, _ = fs.sites.natural_steps(model, X, Y, steps=1, step_size=1.0)
    _, infos = fs.sites.natural_steps(best, X, Y, steps=20, step_size=0.9, monotone=True)
    assert not any(info.backed_off for info in infos)


def test_bad_input(rng):
    model, X, Y = problem(rng)
    relaxed = fs.replace(model, posterior=fs.posteriors.Relaxed(np.zeros(M), np.ones(M), np.eye(M)))
    for change, error, message in (
        (
            {"step_size": 0.0},
            ValueError,
            "natural_steps: `step_size` must be above 0 and at most 1, got 0",
        ),
        ({"step_size": 1.5}, ValueError, "`step_size` must be above 0 and at most 1, got 1.5"),
        ({"steps": -1}, ValueError, "`steps` must be a whole number of at least 0, got -1"),
        (
            {"rows": [[0, 3, 0]]},
            ValueError,
            "`rows` has row 0 more than once; give each once",
        ),
        (
            {"rows": [[0, N]]},
            ValueError,
            f"`rows` must hold row numbers, 0 to {N - 1}, in an array",
        ),
        ({"rows": [[-1]]}, ValueError, "`rows` must hold row numbers"),
        ({"rows": [[]]}, ValueError, "`rows` must hold row numbers"),
        ({"rows": [0, 1]}, ValueError, "`rows` must hold row numbers"),
        (
            {"rows": [[0]], "tolerance": 0.1},
            ValueError,
            "`tolerance` must be zero or more, and without `rows`, got 0.1",
        ),
        ({"tolerance": -1.0}, ValueError, "`tolerance` must be zero or more"),
        ({"monotone": 1}, TypeError, "`monotone` must be True or False"),
        ({"num_data": 3}, ValueError, "`num_data` is 3, smaller than the batch of 40"),
        (
            {"model": relaxed},
            TypeError,
            "natural_steps: a Relaxed posterior is none of Whitened, Marginal",
        ),
        (
            {"Y": Y[:-1]},
            ValueError,
            "`X` and `Y` must have the same number of rows, at least one, got 40 and 39",
        ),
    ):
        with pytest.raises(error, match=message):
            fs.sites.natural_steps(**({"model": model, "X": X, "Y": Y} | change))


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP], ids=lambda kind: kind.__name__)
def test_sites_of_data_step_by_step(rng, kind, P):
    """Many steps in one call equal single ones, for rows in any order, of any length."""
    X, Y = rng.uniform(-2, 2, (40, 1)), rng.standard_normal((40, *(() if P is None else (P,))))
    sites = fs.sites.Sites(*np.zeros((2, *Y.T.shape)))
    inducing = () if kind is fs.sites.VGP else (np.linspace(-2, 2, 6)[:, None],)
    model = kind(fs.Matern52(1.0, 0.7), *inducing, sites, fs.StudentT(0.3, df=4.0))
    rows = [rng.choice(40, size, replace=False) for size in (10, 7, 30, 1, 25)]
    together, infos = fs.sites.natural_steps(model, X, Y, rows=iter(rows), step_size=0.4)
    one = model
    for batch, expected in zip(rows, infos, strict=True):
        one, info = fs.natural_step(one, X, Y, rows=batch, step_size=0.4)
        assert expected.value == pytest.approx(info.value, rel=1e-12) and expected[1:] == info[1:]
    np.testing.assert_allclose(together.sites.lambda1, one.sites.lambda1, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(together.sites.lambda2, one.sites.lambda2, rtol=1e-11, atol=1e-11)
    climbed, infos = fs.sites.natural_steps(
        model, X, Y, steps=200, step_size=1.0, monotone=True, tolerance=1e-9
    )
    assert np.diff([info.value for info in infos]).min() >= -1e-8 and len(infos) < 200
    assert fs.sites.bound(climbed, X, Y) == pytest.approx(infos[-1].value, abs=1e-6)
    for bad, message in (
        ({"rows": [[1]], "monotone": True}, "leave `rows` out"),
        ({"rows": [[1, 1]]}, "row 1 more than once"),
    ):
        with pytest.raises(ValueError, match=message):
            fs.sites.natural_steps(model, X, Y, **bad)


def test_a_bad_row_is_named_and_rows_must_be_arrays(rng):
    X, Y, Z = rng.uniform(-2, 2, (50, 1)), rng.standard_normal(50), np.linspace(-2, 2, 5)[:, None]
    covariance = fs.RBF(1.0, 0.7)
    model = fs.SVGP(
        covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), fs.Gaussian(0.1)
    )
    Y[25] = np.nan
    with pytest.raises(ValueError, match="`Y` contains nan at index 25"):
        fs.sites.natural_steps(model, X, Y, rows=(np.arange(i, i + 10) for i in range(0, 50, 10)))
    for rows in (5, np.arange(5)):
        with pytest.raises(
            TypeError, match="`rows` must hold an array of row numbers for each step, as"
        ):
            fs.sites.natural_steps(model, X, Y, rows=rows)


@pytest.mark.parametrize("batched", [False, True])
def test_strong_sites_in_float32_leave_no_rounding_behind(rng, batched):
    X, Y = (
        rng.uniform(-2, 2, (200, 1)).astype(np.float32),
        rng.standard_normal(200).astype(np.float32),
    )
    sites = fs.sites.Sites(np.zeros(200, np.float32), np.full(200, 1e6, np.float32))
    Z = np.linspace(-2, 2, 10, dtype=np.float32)[:, None]
    model = fs.sites.SiteSVGP(
        fs.RBF(np.float32(1), np.float32(0.7)), Z, sites, fs.Gaussian(np.float32(0.1))
    )
    rows = {"rows": [np.arange(i % 10, 200, 10) for i in range(30)]} if batched else {"steps": 3}
    found, infos = fs.sites.natural_steps(model, X, Y, step_size=1.0, **rows)
    once, _ = fs.natural_step(model, X, Y, step_size=1.0)
    np.testing.assert_allclose(found.sites.lambda1, once.sites.lambda1, rtol=1e-3, atol=1e-2)
    if not batched:
        assert infos[-1].value == pytest.approx(fs.sites.bound(found, X, Y), rel=1e-4)


def test_without_room_for_the_projections_of_all_data(rng, tune):
    tune(cached_projection_numbers=0)
    X, Y = rng.uniform(-2, 2, (40, 1)), rng.standard_normal(40)
    model = fs.sites.SiteSVGP(
        fs.RBF(1.0, 0.7),
        np.linspace(-2, 2, 6)[:, None],
        fs.sites.Sites(*np.zeros((2, 40))),
        fs.Gaussian(0.1),
    )
    found, infos = fs.sites.natural_steps(model, X, Y, steps=3, step_size=1.0)
    assert infos[1].value == pytest.approx(infos[2].value, rel=1e-9)
    assert fs.sites.bound(found, X, Y) == pytest.approx(
        fs.collapsed_bound(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y)
    )
