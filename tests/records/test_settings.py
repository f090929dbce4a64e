"""Settings of records: those with a default are keyword-only."""

import inspect
import re
import warnings
from typing import Any

import pytest

import fastsvgp as fs
from fastsvgp import records


class TestSettingsAreKeywordOnly:
    """In any class of the hierarchy, with or without a default."""

    @pytest.fixture
    def Sieve(self):
        @records.record
        class Sieve:
            rows: Any = records.static()
            width: Any = records.leaf("positive")
            depth: Any = records.leaf(default=2.0)
            colour: Any = records.static(default="grey")
            holes: Any = records.static()

        return Sieve

    def test_by_name(self, Sieve):
        with warnings.catch_warnings(action="error"):
            for sieve in (
                Sieve(1.0, rows=3, holes=4),
                Sieve(1.0, 2.0, colour="grey", holes=4, rows=3),
                Sieve(rows=3, width=1.0, holes=4),
                fs.replace(Sieve(5.0, rows=3, holes=4), width=1.0),
            ):
                assert repr(sieve) == "Sieve(rows=3, width=1.0, depth=2.0, colour='grey', holes=4)"
            assert fs.Softmax(num_classes=3).num_classes == 3 and fs.StudentT(0.3, df=5.0).df == 5.0
        assert [path for path, _, _ in fs.records.leaves(sieve)] == ["width", "depth"]
        assert str(inspect.signature(Sieve)).startswith(
            "(width: Any, depth: Any = 2.0, *, rows: Any, "
        )

    @pytest.mark.parametrize(
        "make, line",
        [
            (lambda _: fs.StudentT(0.3, 4.0), "StudentT(..., df=4.0)"),
            (lambda _: fs.StudentT(0.3, 4.0, 30), "StudentT(..., df=4.0, num_nodes=30)"),
            (lambda _: fs.Poisson(2.0), "Poisson(exposure=2.0)"),
            (lambda _: fs.Softmax(3, 16), "Softmax(num_classes=3, num_samples=16)"),
            (
                lambda _: fs.posteriors.LikelihoodForm(0.0, 1.0, False),
                "LikelihoodForm(..., preconditioned=False)",
            ),
            (
                lambda _: fs.qsgp.RandomFourier(fs.RBF(), 8, 3),
                "RandomFourier(..., num_features=8, seed=3)",
            ),
            (
                lambda _: fs.covariances.Convolutional(fs.RBF(), 1.0, None, (4, 4)),
                "Convolutional(..., image_shape=(4, 4))",
            ),
            (
                lambda Sieve: Sieve(3, 1.0, 2.0, 4, "red"),
                "Sieve(..., rows=3, holes=4, colour='red')",
            ),
            (lambda Sieve: Sieve(1.0, 2.0, "red", rows=3, holes=4), "Sieve(..., colour='red')"),
        ],
    )
    def test_by_position_they_are_refused_with_the_line_to_write(self, Sieve, make, line):
        with pytest.raises(
            TypeError, match=re.escape(f"settings are keyword-only: write {line}") + "$"
        ):
            make(Sieve)

    @pytest.mark.parametrize("make, settings", [
        (lambda _: fs.Softmax(3), {"num_classes": 3}),
        (lambda _: fs.likelihoods.RobustMax(3, epsilon=0.1), {"num_classes": 3, "epsilon": 0.1}),
        (lambda _: fs.qsgp.RandomFourier(fs.RBF(), 8, seed=1), {"num_features": 8, "seed": 1}),
        (lambda Sieve: Sieve(3, 1.0, 2.0, 4), {"rows": 3, "holes": 4, "depth": 2.0}),
        (lambda Sieve: Sieve(3, 1.0, holes=4), {"rows": 3, "holes": 4}),
    ])  # fmt: skip
    def test_those_without_a_default_can_come_in_their_place(self, Sieve, make, settings):
        with warnings.catch_warnings(action="error"):
            made = make(Sieve)
        assert {name: getattr(made, name) for name in settings} == settings
        assert "width" not in vars(made) or made.width == 1.0

    def test_those_of_a_record_that_another_extends_do_too(self, Sieve):
        @records.record
        class Mesh(Sieve):
            pass

        with warnings.catch_warnings(action="error"):
            assert Mesh(3, 1.0, 2.0, 4).depth == 2.0
        assert Mesh(1.0, rows=3, holes=4).width == 1.0

    @pytest.mark.parametrize("make", [
        lambda Sieve: fs.Softmax(),
        lambda Sieve: fs.qsgp.RandomFourier(fs.RBF()),
        lambda Sieve: fs.covariances.Convolutional(fs.RBF(), 1.0),
        lambda Sieve: Sieve(1.0, rows=3),
        lambda Sieve: fs.Gaussian(1.0, 2.0),
    ])  # fmt: skip
    def test_what_else_is_wrong_python_says(self, Sieve, make):
        with pytest.raises(TypeError, match="missing|takes from 1 to 2"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make(Sieve)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: fs.RBF(lengthscale=1.0), "RBF has no field `lengthscale`; did you mean `lengthsc"),
        (lambda: fs.RBF(active_dims=[0]), r"RBF has no field `active_dims`; write RBF\(...\).on\("),
        (lambda: fs.Gaussian(noise=1.0), "Gaussian has no field `noise`; did you mean `variance`?"),
        (lambda: fs.StudentT(0.1, dof=3.0), "StudentT has no field `dof`; did you mean `df`?"),
        (lambda: fs.RBF(zzz=1.0), "RBF has no field `zzz`; it takes `lengthscales`, `variance`$"),
    ],
)
def test_unknown_fields(make, message):
    with pytest.raises(TypeError, match=message):
        make()
