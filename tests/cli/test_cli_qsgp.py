"""``fastsvgp fit --method qsgp``: many random Fourier features from the command line."""

import pathlib
import signal

import numpy as np
import pytest
from support.cli_runs import results, run
from support.interruptions import at_call

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.settings import qsgp
from fastsvgp.train.kinds import qsgp as sampled

FEW = [
    "--method",
    "qsgp",
    "--features",
    "600",
    "--basis-batch",
    "100",
    "--batch-size",
    "32",
    "--steps",
    "60",
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    x, z = rng.uniform(10, 20, 150), rng.standard_normal(150)
    y = np.sin(x)
    for name, columns in (
        ("wave.csv", (x, 300 + 50 * y + rng.normal(0, 5, 150))),
        ("kind.csv", (x, z, np.where(y > 0, "up", "down"))),
        ("many.csv", (x, rng.choice(["a", "b", "c"], 150))),
        ("calls.csv", (x, z, rng.poisson(np.exp(1 + y)))),
    ):
        pathlib.Path(name).write_text(
            "\n".join(",".join(map(str, row)) for row in zip(*columns, strict=True)) + "\n"
        )


def test_fit_predict_and_plots(capsys):
    out, _ = run(capsys, "fit", "wave.csv", *FEW)
    assert (
        "QSGP, Matérn 3/2, 600 random Fourier features, 0 dense columns" in out
        and "exact Gaussian process on 135" in out
    )
    found = results("wave-fit")
    assert found["test"]["model"]["rmse"] < 0.6 * found["test"]["trivial"]["rmse"]
    assert (
        found["features"],
        found["dense_columns"],
        found["basis_batch"],
        found["control_points"],
    ) == (600, 0, 100, 135)
    assert found["inducing"] is None and found["parameters"]["basis.covariance.variance"] > 0
    files = ["fit.png", "metrics.json", "model.npz", "report.html", "residuals.png", "training.png"]
    assert sorted(p.name for p in pathlib.Path("wave-fit").iterdir()) == files
    fitted = fs.load_fitted("wave-fit")
    lines = run(capsys, "predict", "wave-fit", "wave.csv")[0].splitlines()
    X = np.loadtxt("wave.csv", delimiter=",")[:, :1]
    np.testing.assert_allclose(float(lines[1].split(",")[0]), fitted.predict(X).mean[0], rtol=1e-8)
    mean, _ = fs.predict_y(fitted.model, fitted.standardise_inputs(X))
    np.testing.assert_allclose(
        fitted.scale.y_mean + fitted.scale.y_scale * mean, fitted.predict(X).mean
    )


@pytest.mark.parametrize(
    "file, likelihood", [("kind.csv", "BernoulliProbit"), ("calls.csv", "Poisson")]
)
def test_other_likelihoods_in_float32(unplotted, capsys, file, likelihood):
    run(
        capsys,
        "fit",
        file,
        *FEW,
        "--dense-columns",
        "2",
        "--dtype",
        "float32",
        "--out",
        "out",
        "--quiet",
    )
    model = fs.load_fitted("out").model
    assert type(model.likelihood).__name__ == likelihood and model.posterior.columns.shape == (
        600,
        2,
    )
    assert {np.asarray(value).dtype for _, _, value in fs.records.leaves(model)} == {
        np.dtype(np.float32)
    }
    found = results("out")["test"]
    assert found["model"]["nlpd"] < found["trivial"]["nlpd"]


@pytest.mark.parametrize("options", [[], ["--learn-hyperparameters"]])
def test_resume_ends_where_an_uninterrupted_run_ends(unplotted, capsys, monkeypatch, options):
    run(capsys, "fit", "wave.csv", *FEW, *options, "--quiet", "--out", "whole")
    half = ["fit", "wave.csv", *FEW, *options, "--quiet", "--out", "half"]
    with at_call(sampled, "sampled_bound_and_grad", 31):
        assert main(half) == 130
    monkeypatch.setattr(qsgp, "hyperparameters", None)  # the checkpoint has them
    capsys.readouterr()
    assert main([*half, "--resume", "--features", "602"]) == 2
    assert "features 600 then, 602 now" in capsys.readouterr().err
    assert main([*half, "--resume", "--method", "svgp"]) == 2
    capsys.readouterr()
    run(capsys, *half, "--resume")
    assert (
        run(capsys, "predict", "half", "wave.csv")[0]
        == run(capsys, "predict", "whole", "wave.csv")[0]
    )
    models = [fs.load_fitted(folder).model for folder in ("half", "whole")]
    assert models[0].basis.covariance.variance == models[1].basis.covariance.variance


@pytest.mark.parametrize("file", ["wave.csv", "kind.csv"])
def test_one_interrupt_ends_the_search_for_hyperparameters_too(monkeypatch, file):
    plain, trained = fs.fit, []

    def interrupted(model, *data, **options):
        trained.append(type(model))
        return plain(
            model, *data, **options, callback=lambda *_: signal.raise_signal(signal.SIGINT)
        )

    monkeypatch.setattr(fs, "fit", interrupted)
    assert main(["fit", file, *FEW, "--out", "out"]) == 130
    assert len(trained) == 1 and trained != [fs.QSGP]
    assert not pathlib.Path("out").exists()


def test_learning_hyperparameters_moves_them_late(unplotted, capsys):
    variances = {}
    for name, options in (("kept", []), ("learned", ["--learn-hyperparameters"])):
        _, err = run(capsys, "fit", "wave.csv", *FEW, *options, "--out", name)
        variances[name] = results(name)["parameters"]["basis.covariance.variance"]
        assert ("hyperparameters" in err.lower()) == (name == "learned"), err
    assert variances["kept"] != variances["learned"]


def test_more_than_two_classes_are_refused(capsys):
    assert main(["fit", "many.csv", "--method", "qsgp"]) == 2
    assert "log-concave" in capsys.readouterr().err
