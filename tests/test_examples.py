"""Run the examples for a few steps, and test the reader of IDX files."""

import importlib
import pathlib
import types

import numpy as np
import pytest
from support.numerics import five_point

import fastsvgp as fs

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"


def _example(name):
    @pytest.fixture(name=name)
    def module(monkeypatch):
        monkeypatch.syspath_prepend(FOLDER)
        return importlib.import_module(name)

    return module


mnist = _example("mnist")
inverse_free = _example("inverse_free")
blocks = _example("blocks")
network = _example("network")
solve_gp = _example("solve_gp")
weight_space = _example("weight_space")
control_variates = _example("control_variates")
odd_even = _example("odd_even")
relevance = _example("relevance")
dual = _example("dual")
dual_minibatches = _example("dual_minibatches")
directions = _example("directions")
deep = _example("deep")
patches = _example("patches")


def test_a_covariance_that_stays_outside(blocks, rng, capsys):
    found = blocks.main()
    assert found["period"] == pytest.approx(blocks.PERIOD, rel=0.005) and found[
        "noise"
    ] == pytest.approx(blocks.NOISE, rel=0.1)
    assert found["rmse"] < 0.1 and found["elbo"] > -found["loss"](found["loss"].start)[0] + 1000
    np.testing.assert_allclose(found["cov"].diagonal(), found["var"], rtol=1e-8)
    assert "three periods beyond" in capsys.readouterr().out
    loss = found["loss"]
    vector = loss.start + 0.1 * rng.standard_normal(loss.start.size)
    bar = loss(vector)[1]
    for part in np.split(np.arange(vector.size), loss.edges):
        d = np.zeros(vector.size)
        d[part] = rng.standard_normal(part.size)
        slope = five_point(lambda s, d=d: loss(vector + s * d)[0], h=1e-4)
        np.testing.assert_allclose(
            slope, bar @ d, rtol=1e-6, atol=1e-8 * np.linalg.norm(bar[part]) * np.linalg.norm(d)
        )


def test_a_network_under_a_gp(network, rng):
    X = rng.standard_normal((400, 3))
    y = np.sin(3 * np.tanh(X[:, 0] - X[:, 1])) + 0.1 * rng.standard_normal(400)
    model = network.start(X, rng, H=16, K=2, M=20)
    _, grad = network.elbo_and_grad(model, X, y, jitter=1e-2)
    vector, unravel = fs.ravel(model)
    bar = unravel.pullback(vector, grad)
    for path, part in unravel.slices.items():
        d = np.zeros(vector.size)
        d[part] = rng.standard_normal(d[part].size)
        slope = five_point(
            lambda s, d=d: network.elbo_and_grad(unravel(vector + s * d), X, y, jitter=1e-2)[0]
        )
        scale = np.linalg.norm(bar[part]) * np.linalg.norm(d)
        np.testing.assert_allclose(slope, bar @ d, rtol=1e-8, atol=1e-8 * scale, err_msg=path)
    trained, values = network.train(model, X, y, 150, rng, batch=100)
    assert -np.mean(values[-20:]) < -np.mean(values[:20])
    before, after = (fs.predict_y(m.gp, network.network(m, X)[1])[0] for m in (model, trained))
    assert np.mean((after - y) ** 2) < 0.3 * np.mean((before - y) ** 2)


def test_idx_files(mnist, tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = b"\0\0\x08\x03" + np.array(images.shape, ">u4").tobytes()
    (tmp_path / "a").write_bytes(header + images.tobytes())
    np.testing.assert_array_equal(mnist.read_idx(tmp_path / "a"), images)
    (tmp_path / "b").write_bytes(b"1,2\n3,4\n")
    with pytest.raises(ValueError, match="no IDX file"):
        mnist.read_idx(tmp_path / "b")


@pytest.mark.parametrize("likelihood", ["softmax", "robustmax"])
def test_a_few_steps_on_the_digits(mnist, likelihood):
    if not (mnist.FOLDER / "mnist_t10k.images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no MNIST files in {mnist.FOLDER}; set FASTSVGP_DATA")
    scores = mnist.main(
        ["--likelihood", likelihood, "--inducing", "20", "--batch-size", "64", "--epochs", "0.1"]
    )
    assert scores["steps"] == 13
    assert scores["model"][1] < scores["trivial"][1] or likelihood == "robustmax"


def skip_without(folder, *names):
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {folder}; set FASTSVGP_DATA")


def test_traces_of_the_bound(inverse_free, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    skip_without(inverse_free.DATA, "snelson.csv.gz", "banana.X.csv", "banana.y.csv")
    traces, _ = inverse_free.main(["snelson", "banana", "--steps", "60", "--out", str(tmp_path)])
    for found in traces.values():
        ends = {t.method: t.elbos[-1] for t in found}
        assert all(t.elbos[-1] > t.elbos[0] and t.steps[-1] == 60 for t in found)
        assert ends["R-SVGP"] == pytest.approx(ends["L-SVGP"], rel=0.01)
    assert (tmp_path / "traces.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("| snelson |") == len(inverse_free.CURVES) == 7


def test_methods_in_turns(inverse_free, tmp_path, capsys):
    skip_without(inverse_free.DATA, "elevators.data.csv.gz", "elevators.test_mask.csv.gz")
    command = [
        "elevators",
        "--inducing",
        "20",
        "--batch-size",
        "16",
        "--out",
        str(tmp_path),
        "--report-every",
        "30",
    ]
    inverse_free.main([*command, "--steps", "30"])
    _, rows = inverse_free.main([*command, "--steps", "60", "--resume"])
    assert [row.split(" | ")[1] for row in rows] == ["W-SVGP", "L-SVGP", "R-SVGP"]
    scores = {row.split(" | ")[1]: float(row.split(" | ")[3]) for row in rows}
    assert scores["R-SVGP"] == pytest.approx(scores["L-SVGP"], abs=0.01)
    assert "step 60: RMSE and NLPD W-SVGP" in capsys.readouterr().out
    _, again = inverse_free.main([*command, "--steps", "60", "--resume"])  # everything is finished
    assert [row.split(" | ")[2:5] for row in again] == [row.split(" | ")[2:5] for row in rows]
    with pytest.raises(SystemExit):
        inverse_free.main(["elevators", "--methods", "X"])


def test_directions_of_r_svgp(inverse_free):
    skip_without(inverse_free.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    table = importlib.import_module("directions").main(["--inducing", "30", "--steps", "40"])
    for distance, difference, exact, other in table.values():
        assert 0 < distance < 1 and other < exact < 1 and 0 < difference < 1


def test_solve_gp_beside_the_others(solve_gp, tmp_path, monkeypatch, capsys):
    """An interrupted row resumes, and a finished one is read from its file."""
    skip_without(solve_gp.DATA, "elevators.data.csv.gz")
    command = ["elevators", "--size", "8", "--epochs", "0.5", "--out", str(tmp_path)]
    rows = solve_gp.main(command)
    trivial, *rows = rows
    assert (
        trivial.startswith("| elevators | 0 | trivial | 0.987 | -1.406 |")
        and trivial.count("|") == 9
    )
    assert [row.split(" | ")[2] for row in rows] == list(solve_gp.METHODS)
    assert all(0.3 < float(row.split(" | ")[3]) < 1.1 for row in rows)
    folder = tmp_path / "elevators" / "split0" / "SOLVE-1024+1024"
    (folder / "scores.json").unlink()
    only = [*command, "--rows", "SOLVE 1024+1024"]
    plain, values = solve_gp.fs.fit, []

    def interrupted(*args, **options):
        model, info = plain(
            *args, callback=lambda step, value, info: values.append(value) or step == 2, **options
        )
        return model, types.SimpleNamespace(interrupted=True)

    monkeypatch.setattr(solve_gp.fs, "fit", interrupted)
    with pytest.raises(SystemExit, match="interrupted; run the same command to resume"):
        solve_gp.main(only)
    assert len(values) == 2 and not (folder / "scores.json").exists()
    monkeypatch.setattr(solve_gp.fs, "fit", plain)
    again = solve_gp.main(only)
    assert again == [trivial, rows[2]] and solve_gp.main(only) == again
    with pytest.raises(SystemExit):
        solve_gp.main(["moon"])
    assert "no data set or row 'moon'" in capsys.readouterr().err


def test_the_picture_of_solve_gp(solve_gp, tmp_path):
    pytest.importorskip("matplotlib")
    skip_without(solve_gp.DATA, "snelson.csv.gz")
    assert solve_gp.main(["snelson", "--steps", "3", "--out", str(tmp_path)]) == []
    assert (tmp_path / "solve_gp.png").read_bytes().startswith(b"\x89PNG")
    assert solve_gp.toys(3)[2]["ODVGP 5+100"].inducing.O.shape == (100, 1)


def test_deep_gps_of_a_step_and_of_kin40k(deep, tmp_path):
    """A training resumes from its checkpoint."""
    pytest.importorskip("matplotlib")
    deep.main(["step", "--steps", "2", "--out", str(tmp_path)])
    assert (tmp_path / "deep.png").read_bytes().startswith(b"\x89PNG")
    skip_without(deep.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    command = [
        "kin40k",
        "--inducing",
        "20",
        "--batch-size",
        "100",
        "--report-every",
        "2",
        "--out",
        str(tmp_path),
    ]
    rows = deep.main([*command, "--steps", "2"]) + deep.main([*command, "--steps", "4"])
    assert [row[0] for row in rows] == [2, 4] and all(0.8 < row[3] < 1.1 for row in rows)


def test_digits_by_patches(patches, tmp_path, monkeypatch):
    """A finished row is read from its file."""
    pytest.importorskip("matplotlib")
    skip_without(patches.mnist.FOLDER, "mnist_t10k.images-idx3-ubyte.gz")
    few = tuple(part[:200] for part in patches.mnist.digits())
    monkeypatch.setattr(patches.mnist, "digits", lambda: few)
    monkeypatch.setattr(patches.mnist, "TRAIN", 150)
    command = [
        "--steps",
        "2",
        "--size",
        "0.08",
        "--batch-size",
        "10",
        "--test",
        "10",
        "--out",
        str(tmp_path),
    ]
    rows = patches.main(command)
    assert [row.split(" | ")[0][2:] for row in rows] == list(patches.ROWS)
    assert patches.main([*command, "picture", "RBF"]) == rows[1:2]
    assert (tmp_path / "patches.png").read_bytes().startswith(b"\x89PNG")
    tried = [row.split(" | ") for row in patches.main([*command, "settings"])]
    assert len(tried) == len(patches.TRIED)
    assert tried[1][:1] == ["| convolutional, variance 30"] and tried[1][2] != tried[0][2]
    with pytest.raises(SystemExit):
        patches.main(["moon"])


def test_dual_sites_beside_a_held_q(dual_minibatches, tmp_path, capsys):
    """A finished score is read from its file."""
    skip_without(dual_minibatches.DATA, "banana.X.csv", "airfoil.data.csv.gz")
    command = ["banana", "airfoil", "--steps", "30", "--seeds", "2", "--out", str(tmp_path)]
    rows = dual_minibatches.main(command)
    assert [row.split(" | ")[:2] for row in rows] == [
        [f"| {name}", m] for name in ("banana", "airfoil") for m in dual_minibatches.METHODS
    ]
    assert all(0 < float(row.split(" | ")[3].split(" ± ")[0]) < 1.5 for row in rows)
    path = tmp_path / "airfoil-natural-30-1.json"
    path.write_text("[0.0, 0.0, 0.0]")
    assert (
        dual_minibatches.main(command)[4].startswith("| airfoil | natural | ")
        and dual_minibatches.main(command)[4] != rows[4]
    )
    with pytest.raises(SystemExit):
        dual_minibatches.main(["moon"])
    assert "no data set 'moon'; there are banana," in capsys.readouterr().err


def test_digits_in_rounds(dual_minibatches):
    skip_without(dual_minibatches.DATA, "mnist_t10k.images-idx3-ubyte.gz")
    setting = dual_minibatches.Setting(10, 50, 6, *dual_minibatches.TABLE_1[4])
    data = dual_minibatches.split_rows("mnist", 0)
    for method in dual_minibatches.METHODS:
        model, info = dual_minibatches.train(method, setting, data, 0)
        (error, nlpd), bound = dual_minibatches.score(model, data), info.smoothed / len(data[0])
        assert 0.1 < error < 0.95 and 1 < nlpd < 3 and -4 < bound < -1


def test_the_picture_of_dual_sites_and_rounds_of_em(dual, tmp_path, capsys):
    rows = list(dual.table_of_rounds(4, 1))
    three, most = ([row.split(" | ")[at] for row in rows] for at in (1, 3))
    assert [row.split(" | ")[0][2:] for row in rows] == list(dual.HELD)
    # whitened q is far from it after these few rounds
    assert three[:2] != ["0", "0"] and three[3] == "0" and most[3] == "inf"
    each, tied = dual.epochs_without_noise(dual.fs.Poisson())
    assert abs(each) < 1e-4 and tied > 0.01
    pytest.importorskip("matplotlib")
    skip_without(dual.DATA, "banana.X.csv")
    dual.main(["picture", "--rounds", "2", "--out", str(tmp_path)])
    assert (tmp_path / "dual.png").read_bytes().startswith(b"\x89PNG")
    traces = dict(
        line.split(": ") for line in capsys.readouterr().out.splitlines() if ": -" in line
    )
    ends = {name: float(values.split(", ")[1]) for name, values in traces.items()}
    assert ends["absorbed sites"] > ends["whitened q"] + 5 > ends["dual sites"] + 5


def test_rounds_of_em_by_their_command(dual, tmp_path, capsys):
    dual.main(["rounds", "--rounds", "1", "--seeds", "1", "--out", str(tmp_path)])
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("| held | in 3 rounds") and len(said) == 2 + len(dual.HELD) + 2
    with pytest.raises(SystemExit):
        dual.main(["moon"])
    assert "no 'moon'; there are picture and rounds" in capsys.readouterr().err


def test_random_features_by_conjugate_gradients(weight_space, capsys):
    skip_without(weight_space.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    scores = weight_space.main(
        ["kin40k", "--features", "200", "--iterations", "11", "--exact", "100"]
    )
    assert [score[0] for score in scores] == [10, 11] and scores[-1][2] < 0.97
    assert capsys.readouterr().out.count("\n| 1") == 2
    few = ["kin40k", "--features", "200", "--steps", "10", "--exact", "100"]
    for control in ("kriged", "paired", "none"):
        scores = weight_space.main([*few, "--control", control, "--points", "20"])
        assert [score[0] for score in scores] == [1, 2, 3, 4, 6, 8, 10] and scores[-1][2] < scores[
            0
        ][2] + 0.1
    assert len(weight_space.main([*few, "--dense-columns", "3", "--points", "20"])) == 7


@pytest.mark.parametrize(
    "options", [["--features", "2000", "--basis-size", "200"], ["--svgp", "20"]]
)
def test_odd_and_even_digits(odd_even, monkeypatch, options):
    skip_without(odd_even.mnist.FOLDER, "mnist_t10k.images-idx3-ubyte.gz")
    monkeypatch.setattr(odd_even, "TRAIN", 300)
    whole = odd_even.mnist.digits()
    monkeypatch.setattr(odd_even.mnist, "digits", lambda: tuple(part[:500] for part in whole))
    ((_, steps, accuracy, median, nlpd),) = odd_even.main(
        [*options, "--steps", "30", "--batch-size", "100"]
    )
    assert steps == 30 and accuracy > 0.7 and 0 < median < nlpd + 0.1 < np.log(2) + 0.1


def test_weight_space_by_time_features_and_hyperparameters(weight_space, tmp_path, capsys):
    skip_without(weight_space.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    few = [
        "--features",
        "1000",
        "--iterations",
        "12",
        "--exact",
        "100",
        "--steps",
        "10",
        "--points",
        "20",
    ]
    ((m, rmse, nlpd, variance),) = weight_space.main(["features", *few])
    assert m == 1000 and rmse < 1 and variance > 0
    (_, noise, _), (_, learned, _) = weight_space.main(["collapse", *few])
    assert noise != learned
    few[1] = "200"
    (rows,) = [weight_space.main(["kin40k", "--basis", "inducing", *few[:-4]])]
    assert [row[0] for row in rows] == [10, 12]
    pytest.importorskip("matplotlib")
    curves = weight_space.main(["picture", *few, "--out", str(tmp_path)])
    assert (tmp_path / "qsgp.png").read_bytes().startswith(b"\x89PNG") and len(curves) == 4


def test_relevance_vectors_of_sinc(relevance, tmp_path, capsys):
    command = ["sinc", "--rows", "100", "--turns", "30", "--steps", "60", "--out", str(tmp_path)]
    models = relevance.main(command)["sinc"]
    assert 4 < len(models["in turns"].posterior.mean) < 30
    out = capsys.readouterr().out
    assert out.count("| in turns |") == 3 and out.count("| from samples |") == 4
    bounds = [float(line.split(" | ")[4]) for line in out.splitlines() if "| in turns |" in line]
    assert bounds == sorted(bounds)
    with pytest.raises(SystemExit):
        relevance.main(["cosine"])


def test_variances_that_grow_away_from_the_data(relevance, tmp_path):
    found = relevance.main(["augmented", "--out", str(tmp_path)])["augmented"]
    exact, far = found["exact GP"], -1
    np.testing.assert_allclose(found["full"][:2], exact[:2], rtol=1e-2)
    for name in ("mean field", "full"):
        assert found[name][far] < 0.01 * exact[far] < found[f"{name}, augmented"][far]
        assert (found[f"{name}, augmented"] > found[name]).all()
        np.testing.assert_allclose(found[f"{name}, augmented"][far], exact[far], rtol=1e-3)


def test_the_pictures_of_relevance(relevance, tmp_path):
    pytest.importorskip("matplotlib")
    relevance.main(["--rows", "40", "--turns", "10", "--steps", "20", "--out", str(tmp_path)])
    for name in ("relevance.png", "augmented.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_what_control_variates_leave(control_variates, tmp_path, capsys):
    found = control_variates.main(
        ["classes", "--features", "300", "--evaluations", "10", "--iterations", "10"]
    )
    assert [(features, points) for features, points, *_ in found[:3]] == [
        (50, 0),
        (50, 20),
        (50, 60),
    ]
    assert found[2][2] < 0.3 * found[0][2] and found[2][3] < found[0][3]
    pytest.importorskip("matplotlib")
    skip_without(control_variates.DATA, "kin40k.data.csv.gz", "kin40k.test_mask.csv.gz")
    command = [
        "kin40k",
        "--features",
        "200",
        "--size",
        "20",
        "--evaluations",
        "10",
        "--exact",
        "50",
        "--iterations",
        "2",
    ]
    panels = control_variates.main(
        [*command, "--batch", "100", "--points", "100", "--out", str(tmp_path)]
    )
    assert all(list(curves) == list(control_variates.KINDS) for curves in panels.values())
    (_,), value, gradient = panels["a mean from the prior"]["kriged"]
    assert value < 0.5 and gradient < 0.7
    assert (tmp_path / "control_variates.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("| kriged |") == 2
