"""References and table of ``bench/first_times.py``, and the rows that ``one_call.py`` takes."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
import types
from unittest import mock

import numpy as np
import pytest
from oracles import chevron, covariances, fourier, patches as patch_oracles
from support.derivatives import assert_derivative

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
FAMILIES = "rbf", "matern32"


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the benchmarks by its name; their folder is not a package."""
    path = list(sys.path)
    monkeypatch.syspath_prepend(str(BENCH))
    with mock.patch.dict(os.environ):  # some of them set numbers of threads
        yield importlib.import_module
    sys.path[:] = path  # one of them adds to it
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


# --- references -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_covariances(bench, rng, family):
    reference = bench("first_references")
    X1, X2, bar = (rng.standard_normal(shape) for shape in ((7, 3), (5, 3), (7, 5)))
    arguments = family, X1, X2, 1.3, rng.uniform(0.5, 2, 3)
    close(reference.stationary(np, *arguments), covariances.stationary(*arguments))
    X1_bar, _, *others = covariances.stationary_vjp(bar, *arguments)
    for found, expected in zip(
        reference.stationary_vjp(np, bar, *arguments), (X1_bar, *others), strict=True
    ):
        close(found, expected)


def test_patches(bench, rng):
    reference, geometry = bench("first_references"), (5, 4, 2, 2, 3, 1)
    Z, X, A = (rng.standard_normal(shape) for shape in ((3, 12), (2, 40), 8))
    lengthscales, bar = rng.uniform(0.5, 2, 12), rng.standard_normal((3, 2))
    names = "Z", "X", "A", "variance", "lengthscales"
    values = Z, X, A, np.float64(1.3), lengthscales

    def sums(Z, X, A, variance, lengthscales):
        def k(a, b):
            return covariances.stationary("rbf", a, b, variance, lengthscales)

        return patch_oracles.sums(k, Z, X, A, geometry)

    arguments = "rbf", *values, geometry
    close(reference.patch_sums(np, *arguments), sums(*values))
    bars = reference.patch_sums_vjp(np, bar, *arguments)
    for i, (name, found) in enumerate(zip(names, bars, strict=True)):

        def along(x, i=i):
            return (bar * sums(*values[:i], x, *values[i + 1 :])).sum()

        direction = rng.standard_normal(np.shape(values[i]))
        assert_derivative(along, values[i], found, direction, name=name)


def test_chevron(bench, rng):
    reference = bench("first_references")
    dense, diagonal, z = (rng.standard_normal(shape) for shape in ((9, 3), 6, (1, 9)))
    close(reference.chevron(np, dense, diagonal, z), z @ chevron.matrix(dense, diagonal).T)


def test_features(bench, rng):
    reference = bench("first_references")
    omega, X = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
    u, w, lengthscales = rng.standard_normal(4), rng.standard_normal(12), rng.uniform(0.5, 2, 3)
    Phi = reference.features(np, omega, X, 20, 1.3, lengthscales)
    close(Phi, fourier.features(omega, X, 20, 1.3, lengthscales))
    bars = fourier.gradients(omega, X, u[None], w[None], 20, 1.3, lengthscales)
    X_bar, _, w_bar, *others = bars
    found = reference.features_vjp(np, Phi, omega, X, u, w, 1.3, lengthscales)
    for one, other in zip(found, (X_bar, w_bar[0], *others), strict=True):
        close(one, other)


def test_errors_are_relative(bench):
    error_of = bench("first_references").error_of
    assert error_of(np, (np.array([1.0, 3.0]),), (np.array([1.0, 4.0]),)) == 0.25
    assert error_of(np, (0.5, np.ones(2)), (0.25, np.ones(2))) == 0.25  # at least by 1
    assert np.isnan(error_of(np, (np.ones(2), np.nan), (np.ones(2), 1.0)))
    with pytest.raises(ValueError, match=r"shape \(2,\), its reference \(3,\)"):
        error_of(np, (np.ones(2),), (np.ones(3),))


def test_numbers_are_as_good_as_random(bench, monkeypatch):
    first_families = bench("first_families")
    A = first_families.numbers(300, 200, xp=np)
    monkeypatch.setattr(first_families, "AT_A_TIME", 1000)
    np.testing.assert_array_equal(first_families.numbers(300, 200, xp=np), A)
    assert abs(A).max() < 1 and len(np.unique(A)) == A.size
    # a uniform number has variance 1/3; the bounds are five standard deviations
    deviation = np.sqrt(1 / 3 / A.size)
    assert abs(A.mean()) < 5 * deviation
    assert abs((A[:, 1:] * A[:, :-1]).mean()) < 5 * deviation
    values = np.linalg.svd(A, compute_uv=False)
    assert values[0] / values[-1] < 20  # 10 for random numbers; infinity for few frequencies


# --- the table ------------------------------------------------------------------------------------


def test_the_steps_of_the_likelihood_form(bench, rng):
    """Value and gradients, against those of the package on the CPU."""
    import fastsvgp as fs

    families, p = bench("first_families"), bench("problems").step_problem(9, 14)
    variance = rng.uniform(0.3, 1, 9)
    model = fs.SVGP(
        fs.RBF(p["variance"], p["lengthscales"]),
        p["Z"],
        fs.posteriors.LikelihoodForm(p["mean"], variance),
        fs.Gaussian(p["noise"]),
    )
    found = fs.elbo_and_grad(model, p["X"], p["y"], num_data=140.0, jitter=1e-6)

    def truth():
        return families.in_likelihood_form(p, variance, 1e-6, 10.0)

    assert families.error_of_step(truth)(found) < 1e-8
    value, grad = truth()
    assert families.error_of_step(lambda: (value, grad | {"inducing": 0 * p["Z"]}))(found) > 0.1


@pytest.fixture
def timed(bench, monkeypatch):
    """``first_times`` with times that are known."""
    first_times = bench("first_times")
    calls = []

    def times(call, waits, most):
        calls.append((waits, most))
        return (None if waits else 2e-5), 3e-5, 4e-5, 5e-6

    monkeypatch.setattr(first_times, "times", times)
    first_times.calls = calls
    return first_times


def test_rows_have_errors_beside_times(timed, bench):
    Row = bench("first_families").Row
    row = Row("solve", lambda: 7, 1e-5, "bytes", lambda found: found * 1e-9)
    found = timed.measured(row, "float64")
    assert timed.cells(found) == [
        "float64, solve", "20.0", "30.0", "40.0", "5.0", "10.0 (bytes)", "2.00", "7.0e-09",
    ]  # fmt: skip
    found = timed.measured(row._replace(waits=True), "float32", 1)
    assert timed.cells(found)[1] == "-" and found["ratio"] == 3.0
    assert timed.calls == [(False, 200), (True, 1)]
    for error in (1.0, float("nan")):
        found = timed.measured(row._replace(error=lambda _, error=error: error), "float32")
        assert found["wrong"] and timed.cells(found)[-1].endswith(" WRONG")
    assert not timed.measured(row._replace(error=lambda found: 1e-3), "float32")["wrong"]


def test_rows_that_fail_say_why(timed, bench):
    def call():
        raise RuntimeError("cudaErrorUnknown\nmore")

    row = bench("first_families").Row("solve", call, 1e-5, "bytes", lambda found: 0.0)
    line = timed.cells(timed.measured(row, "float64"))
    assert line[:2] == ["float64, solve", "RuntimeError: cudaErrorUnknown"]
    assert len(line) == len(timed.HEADER)


def test_the_table_is_written_after_each_family(timed, bench, monkeypatch, tmp_path, capsys):
    """Also if a later family ends the program."""
    first_families = bench("first_families")
    row = first_families.Row("solve", lambda: 0, 1e-5, "bytes", lambda found: 0.0)

    def broken(card, dtype, small):
        raise KeyboardInterrupt
        yield

    pool = types.SimpleNamespace(free_all_blocks=lambda: None)
    cupy = types.SimpleNamespace(
        cuda=types.SimpleNamespace(Stream=lambda non_blocking: open(BENCH / "report.py")),
        get_default_memory_pool=lambda: pool,
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(bench("device"), "REASON", None)
    monkeypatch.setattr(bench("device"), "facts", lambda: "a device")
    monkeypatch.setattr(timed, "Card", lambda small: "its rates")
    families = {"good": lambda card, dtype, small: [row], "broken": broken}
    monkeypatch.setattr(first_families, "FAMILIES", families)
    with pytest.raises(KeyboardInterrupt):
        timed.main(["--results", str(tmp_path / "new")])
    text = (tmp_path / "new" / "first_times_cuda.md").read_text(encoding="utf-8")
    assert "a device" in text and "its rates" in text and "Back to back: consecutive" in text
    assert text.count("| float64, solve |") == text.count("| float32, solve |") == 1
    rows = json.loads((tmp_path / "new" / "first_times_cuda.json").read_text(encoding="utf-8"))
    assert [(r["family"], r["error"]) for r in rows] == [("good", 0.0)] * 2
    assert timed.main(["good", "--small"]) == 0 and timed.calls[-1] == (False, 1)
    assert timed.main(["good", "--results", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.glob("*.*")) == [
        "first_times_cuda_good.json",
        "first_times_cuda_good.md",
    ]
    families["good"] = lambda card, dtype, small: [row._replace(error=lambda found: 1.0)]
    assert timed.main(["good", "--small"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_the_worst_rows_are_called_alone(bench, tmp_path):
    one_call = bench("one_call")
    assert one_call.worst(tmp_path) == one_call.EXPECTED
    rows = [
        ("products", "float64, tril_product, 1000", 2e-5, 1.5),
        ("products", "float64, tril_product, 2000", 4e-5, 1.7),
        ("products", "float64, copy and potrf, 1000", 2e-5, 9.0),  # not ours
        ("step", "float64, elbo_and_grad Whitened, M = 1000, B = 1000", 2e-4, 5.0),
        ("triangular", "float32, solve_triangular, 8 x 64 x 64", 1e-6, 8.0),  # mostly latency
        ("pairwise", "float32, stationary rbf, 8192, D = 100", 2e-5, 3.0),
        ("pairwise", "float32, stationary matern32, 8192, D = 8", 2e-5, 2.0),
    ]
    keys = "family", "call", "floor", "ratio"
    rows = [dict(zip(keys, row, strict=True)) for row in rows]
    failed = {"family": "products", "call": "float64, tril_product, 4000", "floor": 1e-4}
    (tmp_path / "first_times_cuda_a.json").write_text(json.dumps(rows[:3]))
    (tmp_path / "first_times_cuda_b.json").write_text(json.dumps([*rows[3:], failed]))
    assert one_call.worst(tmp_path) == [
        ("pairwise", "float32, stationary rbf, 8192, D = 100"),
        ("products", "float64, tril_product, 2000"),
    ]
    for family, name in one_call.EXPECTED:
        assert family in bench("first_families").FAMILIES and name.startswith("float")


# --- where there is no git ------------------------------------------------------------------------


def test_the_commit_where_there_is_no_git(bench, monkeypatch):
    report = bench("report")

    def no_git(*call, **settings):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    monkeypatch.setenv("FASTSVGP_COMMIT", "0123abc")
    assert report.commit() == "0123abc"
    monkeypatch.delenv("FASTSVGP_COMMIT")
    assert report.commit() == "unknown"


def test_programs_that_fail_are_left_out(bench, monkeypatch, capsys):
    """Only other programs: an error of ours ends the comparison."""
    monkeypatch.setenv("OPENBLAS_THREAD_TIMEOUT", "1")
    peers = bench("peers")
    answer = 2.0, {"mean": np.ones(3)}

    def fails():
        raise RuntimeError("no backend\nmore")

    rows = peers.started({"fastsvgp": lambda: answer, "other": fails, "third": lambda: answer})
    assert rows == {"fastsvgp": (0.0, 0.0), "third": (0.0, 0.0)}
    assert "(left out: other; RuntimeError: no backend)" in capsys.readouterr().err
    builds = {"fastsvgp": lambda p, device: 1, "other": lambda p, device: fails()}
    assert list(peers.installed(None, "cuda", builds)) == [("fastsvgp", 1)]
    with pytest.raises(RuntimeError, match="no backend"):
        peers.started({"fastsvgp": fails})
