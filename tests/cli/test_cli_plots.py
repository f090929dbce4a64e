"""Content of the plots: rows or densities, intervals of the likelihood, data and model."""

import numpy as np
import pytest
from scipy import stats

import fastsvgp as fs
from fastsvgp.cli import report
from fastsvgp.cli.data.task import Task
from fastsvgp.cli.fitted import Fitted
from fastsvgp.cli.report import metrics, plots
from fastsvgp.recipes.scaling import Scale

pytest.importorskip("matplotlib")
TITLE = "SVGP, RBF on waves.csv"


def a_fit_of_nothing_but_noise(likelihood, name, inputs=2):
    """y is noise: f is 0, except near a distant inducing input."""
    model = fs.SVGP(
        fs.RBF(1e-12, np.ones(inputs)),
        np.full((1, inputs), 9.0),
        fs.Whitened(np.zeros(1), np.eye(1)),
        likelihood,
    )
    scale = Scale(np.zeros(inputs), np.ones(inputs), *((300.0, 40.0) if name != "poisson" else ()))
    return Fitted(model, name, None, ["a", "b"][:inputs], "height", {}, scale, jitter=1e-6)


def a_task(fitted, y, rng):
    X = rng.standard_normal((len(y), len(fitted.input_names)))
    return Task(
        X,
        y,
        fitted.likelihood,
        "as asked",
        None,
        fitted.input_names,
        "height",
        {},
        test=np.arange(len(y)) % 100 > 0,
    )


def calibration(figure):
    """The curve of the model."""
    (line,) = (line for line in figure.axes[1].lines if line.get_label() == "model")
    return line.get_data()


@pytest.mark.parametrize("name", ["gaussian", "student-t", "laplace", "poisson"])
def test_a_calibrated_model_of_any_likelihood_looks_calibrated(rng, name):
    """Gaussian intervals of a Student-t variable would cover far too much."""
    likelihood, draw = {
        "gaussian": (fs.Gaussian(0.1), lambda n: 300 + 40 * 0.1**0.5 * rng.standard_normal(n)),
        "student-t": (fs.StudentT(0.3, df=2.1), lambda n: 300 + 40 * 0.3 * rng.standard_t(2.1, n)),
        "laplace": (fs.likelihoods.Laplace(0.3), lambda n: 300 + 40 * rng.laplace(0, 0.3, n)),
        "poisson": (fs.Poisson(exposure=1.3), lambda n: rng.poisson(1.3, n).astype(float)),
    }[name]
    fitted = a_fit_of_nothing_but_noise(likelihood, name)
    figure = report._fit_plots(fitted, a_task(fitted, draw(4000), rng), TITLE)["predictions.png"]
    nominal, observed = calibration(figure)
    np.testing.assert_allclose(observed, nominal, atol=0.05)
    assert figure.get_suptitle() == TITLE


def drawn(rng, n, **changes):
    y = rng.normal(5, 2, n)
    mean = y + rng.standard_normal(n)
    pit = stats.norm.cdf(y, mean, 1)
    arguments = {"interval": np.stack([mean - 2, mean + 2]), "pit": (pit, pit)} | changes
    return plots.predicted_against_true(y, mean, **arguments, name="height", title=TITLE)


def test_many_rows_are_a_density_and_few_are_all_shown(rng, tmp_path):
    for n, many in ((100, False), (plots.MANY, False), (plots.MANY + 1, True), (20_000, True)):
        figure = drawn(rng, n)
        left = figure.axes[0]
        kinds = {type(c).__name__: c for c in left.collections}
        intervals = len(kinds["LineCollection"].get_segments())
        assert ("PathCollection" in kinds) != many and (
            intervals == n if not many else 10 < intervals <= plots.SAMPLE
        )
        assert ("density" in left.get_title()) == many
        if many:
            assert (
                drawn_rows := sum(np.round(np.asarray(kinds["PolyCollection"].get_array())))
            ) and drawn_rows <= n
    assert len(plots.png(figure)) > 10_000


def test_intervals_without_an_end_are_left_out(rng):
    endless = np.stack([np.full(50, -np.inf), np.full(50, np.inf)])
    assert plots.png(drawn(rng, 50, interval=endless))


def test_band_over_one_input_is_the_interval_of_the_likelihood(rng):
    fitted = a_fit_of_nothing_but_noise(fs.StudentT(0.3, df=2.1), "student-t", inputs=1)
    figure = report._fit_plots(fitted, a_task(fitted, rng.normal(300, 40, 60), rng), TITLE)[
        "fit.png"
    ]
    band = figure.axes[0].collections[0].get_paths()[0].get_extents()
    expected = 300 + 40 * stats.t.ppf([0.025, 0.975], 2.1, 0, 0.3)
    np.testing.assert_allclose([band.y0, band.y1], expected, rtol=1e-4)


def test_reliability_has_no_point_of_a_few_rows(rng):
    p = np.concatenate([rng.uniform(0.3, 0.6, 100), [0.05, 0.99, 0.98]])
    codes = (rng.random(103) < p).astype(int)
    figure = plots.classification(codes, np.stack([1 - p, p], axis=1), ["no", "yes"], TITLE)
    x, y = figure.axes[0].lines[1].get_data()
    assert 1 < len(x) <= 5 and (0.2 < x).all() and (x < 0.9).all()
    assert figure.get_suptitle() == TITLE and (metrics.rms(y - x) < 0.5)
