"""``fastsvgp fit --patch-shape``: functions of images from the command line."""

import pathlib

import numpy as np
import pytest
from support.cli_runs import results, run
from support.interruptions import after_step

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.cli.arguments import parser
from fastsvgp.cli.data import images
from fastsvgp.recipes.scaling import Scale

FEW = [
    "--patch-shape",
    "2x2",
    "--inducing",
    "6",
    "--batch-size",
    "32",
    "--learning-rate",
    "0.05",
    "--steps",
    "60",
]
H, W = 5, 4


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, rng):
    """Images with a bright column or row, in every layout; and squares with two channels."""
    monkeypatch.chdir(tmp_path)
    N, bright = 160, rng.uniform(0, 30, (160, H, W))
    rows = np.arange(N) % 2 == 0
    for image, row in zip(bright, rows, strict=True):
        place = (rng.integers(H), slice(None)) if row else (slice(None), rng.integers(W))
        image[place] += 200
    kinds = np.where(rows, "row", "column")
    np.savez("images.npz", X=bright, y=kinds)
    np.save("images.npy", bright)
    pathlib.Path("kinds.csv").write_text("kind\n" + "\n".join(kinds) + "\n")
    flat = bright.reshape(N, -1)
    text = "\n".join(
        ",".join([*map(repr, map(float, row)), kind]) for row, kind in zip(flat, kinds, strict=True)
    )
    pathlib.Path("table.csv").write_text(text + "\n")
    np.savez("colour.npz", X=rng.standard_normal((60, 3, 3, 2)), y=rng.standard_normal(60))
    np.savez("square.npz", X=rng.standard_normal((60, 9)), y=rng.standard_normal(60))


def test_fit_predict_and_plots(capsys):
    out, _ = run(
        capsys,
        "fit",
        "images.npz",
        *FEW,
        "--covariance",
        "rbf",
        "--natural-step",
        "1",
        "--steps",
        "150",
    )
    assert "SVGP, RBF of 2x2 patches with one lengthscale, 6 inducing patches" in out
    found = results("images-fit")
    assert found["test"]["model"]["accuracy"] > 0.85 > found["test"]["trivial"]["accuracy"]
    assert (found["patch_shape"], found["image_shape"], found["stride"], found["ard"]) == (
        [2, 2],
        [H, W, 1],
        1,
        False,
    )
    written = [
        "metrics.json",
        "model.npz",
        "patches.png",
        "predictions.png",
        "report.html",
        "training.png",
    ]
    assert sorted(p.name for p in pathlib.Path("images-fit").iterdir()) == written
    fitted = fs.load_fitted("images-fit")
    assert fitted.image_shape == (H, W, 1) and fitted.model.inducing.shape == (6, 4)
    assert fitted.model.covariance.weights.shape == ((H - 1) * (W - 1),)
    pixels = np.load("images.npz")["X"].reshape(-1, H * W)
    for name in ("x_mean", "x_scale"):
        assert len(set(getattr(fitted.scale, name))) == 1
    predicted = run(capsys, "predict", "images-fit", "images.npz")[0]
    assert predicted == run(capsys, "predict", "images-fit", "images.npy")[0]
    np.savetxt("pixels.csv", pixels, fmt="%.17g", delimiter=",")
    assert predicted == run(capsys, "predict", "images-fit", "pixels.csv")[0]
    cells = predicted.splitlines()[1].split(",")
    np.testing.assert_allclose(
        [float(cell) for cell in cells[1:]], fitted.predict(pixels[:1]).probabilities[0], rtol=1e-5
    )


def test_one_mean_and_one_scale():
    X = np.arange(12.0).reshape(4, 3)
    scale = Scale.fit(X, X[:, 0], True, shared=True)
    np.testing.assert_array_equal(scale.x_mean, np.full(3, 5.5))
    np.testing.assert_allclose(scale.x_scale, np.full(3, X.std()))


def test_a_model_starts_with_differences_of_variance_one(rng):
    args = parser().parse_args(
        [
            "fit",
            "images.npz",
            "--patch-shape",
            "2x2",
            "--image-shape",
            "3x3",
            "--stride",
            "1",
            "--no-ard",
        ]
    )
    X = rng.standard_normal((8, 9))
    K = images.covariance(X, fs.RBF, args, rng).Kff(X)
    assert np.mean(K[np.arange(8), np.arange(8)]) - K[
        ~np.eye(8, dtype=bool)
    ].mean() == pytest.approx(1)
    assert images.covariance(np.ones((8, 9)), fs.RBF, args, rng).patch_covariance.variance == 1


def test_every_layout_is_the_same_fit(unplotted, capsys):
    few = [*FEW[:-1], "6", "--likelihood", "bernoulli-probit", "--quiet"]
    found = []
    for out, *given in (("a", "images.npz"), ("b", "images.npy", "--target-file", "kinds.csv"),
                        ("c", "table.csv", "--image-shape", f"{H}x{W}")):  # fmt: skip
        run(capsys, "fit", *given, *few, "--out", out)
        found.append(results(out)["test"]["model"])
    # the order of summation depends on memory alignment
    assert all(one == pytest.approx(found[0], rel=1e-10) for one in found[1:])


@pytest.mark.parametrize(
    "method, posterior, options",
    [
        ("lsvgp", "LikelihoodForm", ["--ard"]),
        ("rsvgp", "Relaxed", []),
        ("tsvgp", "AbsorbedDualSites", ["--stride", "2"]),
        ("solvegp", "WhitenedOrthogonal", ["--orthogonal", "4"]),
        ("odvgp", "DecoupledWeights", []),
    ],
)
def test_every_method(unplotted, capsys, method, posterior, options):
    given = ["--method", method, "--dtype", "float32", "--out", "out", "--quiet", *options]
    run(capsys, "fit", "images.npz", *FEW[:-1], "5", *given)
    model = fs.load_fitted("out").model
    assert type(model.posterior).__name__ == posterior
    assert np.shape(model.covariance.patch_covariance.lengthscales) == (
        (4,) if "--ard" in options else ()
    )
    assert np.isfinite(results("out")["test"]["model"]["nlpd"])


def test_channels_squares_and_resuming(unplotted, capsys):
    few = [*FEW[:-1], "4", "--quiet", "--out"]
    run(capsys, "fit", "colour.npz", *few, "colour")
    fitted = fs.load_fitted("colour")
    assert fitted.image_shape == (3, 3, 2) and fitted.model.inducing.shape == (6, 8)
    run(capsys, "fit", "square.npz", *few, "square")
    assert fs.load_fitted("square").image_shape == (3, 3, 1)
    assert main(["predict", "colour", "images.npz"]) == 2
    assert (
        "images of 5 x 4 x 1 numbers, but the model was fitted to images of 3 x 3 x 2"
        in capsys.readouterr().err
    )
    run(capsys, "fit", "square.npz", "--steps", "2", "--inducing", "5", "--quiet", "--out", "plain")
    assert main(["predict", "plain", "colour.npz"]) == 2
    assert "shape (rows, columns), got float64 of shape (60, 3, 3, 2)" in capsys.readouterr().err

    few = ["fit", "square.npz", *FEW[:-1], "6", "--quiet", "--out", "half"]
    with after_step(3):
        assert main(few) == 130
    capsys.readouterr()
    assert main([*few, "--resume", "--stride", "2"]) == 2
    assert "stride 1 then, 2 now" in capsys.readouterr().err
    run(capsys, *few, "--resume")
    run(capsys, *few[:-1], "whole")
    assert (
        run(capsys, "predict", "half", "square.npz")[0]
        == run(capsys, "predict", "whole", "square.npz")[0]
    )
