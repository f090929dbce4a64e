"""The rows of docs/real_data.md that no paper has. See examples/real_data.py and patches.py."""

import argparse
import tempfile
from functools import partial

import mnist
import patches
import real_data as example

from .cells import QUICK, Cell, Data, Metric, Table
from .qsgp import quietly

PAPER = "Real data"
SCORES = Metric("RMSE"), Metric("accuracy", 1), Metric("NLPD")
MASKED = "{}.data.csv.gz", "{}.test_mask.csv.gz"
IMAGES = "mnist_t10k.images-idx3-ubyte.gz", "mnist_t10k.labels-idx1-ubyte.gz"


def there(files, split, part):
    """Return no rows, because the programs read the files themselves; raise if one is missing."""
    for name in files:
        (example.DATA / name).stat()
    return Data([], [], [], [])


def by_command_line(data, split, steps, checkpoint, *, name):
    """Fit by ``fastsvgp fit``, with the options of the example."""
    few = ("--inducing", "16") if 0 < steps < QUICK else ()
    with tempfile.TemporaryDirectory() as out:
        found = quietly(example.fitted, name, split, steps, out, ("--quiet", *few))
    score = found["test"]["model"]
    names = {"rmse": "RMSE", "accuracy": "accuracy", "nlpd": "NLPD"}
    scores = {names[key]: value for key, value in score.items() if key in names}
    return {"scores": scores, "steps": found["steps"]}


def softmax(data, split, steps, checkpoint):
    """Train examples/mnist.py."""
    few = ["--epochs", str(steps / 32), "--inducing", "16"] if 0 < steps < QUICK else []
    found = quietly(mnist.main, ["--inducing", "500", *few])
    accuracy, nlpd = found["model"]
    return {"scores": {"accuracy": accuracy, "NLPD": nlpd}, "steps": found["steps"]}


def on_patches(data, split, steps, checkpoint, *, method):
    """Train a row of examples/patches.py."""
    few = steps < QUICK
    with tempfile.TemporaryDirectory() as out:
        args = argparse.Namespace(
            steps=steps,
            batch_size=20 if few else 100,
            size=0.1 if few else 1.0,
            test=100 if few else 2000,
            float32=False,
            seed=split,
            report_every=steps + 1,
            out=out,
        )
        error, nlpd, _ = patches.score(method, args)
    return {"scores": {"accuracy": 1 - error, "NLPD": nlpd}}


def row(title, program, files, minutes, steps=0, differs=""):
    data = partial(there, files)
    return Cell(title, program, data, steps, minutes, splits=1, differs=differs)


def command_line(name, what, minutes, files=MASKED):
    program = partial(by_command_line, name=name)
    return row(f"{name}, {what}", program, tuple(f.format(name) for f in files), minutes)


SVGP, SGPR = "SVGP, Matérn 3/2 ARD, M = B = 1024, 100 epochs", "SGPR, Matérn 3/2 ARD, M = N"
TABLE = Table(
    "real_data",
    PAPER,
    "standardised scale, split 0",
    SCORES,
    "No row of a paper. `python examples/real_data.py` prints the first seven rows too, and `python"
    " examples/patches.py` the last. The other rows of [real data](real_data.md) are in the tables"
    " above: SOLVE 1024+1024 in solve_gp_2_6, QSGP-0 in qsgp_2, L = 2 in inverse_free_1, t-SVGP in"
    " dual_1; those of the search are printed by `python bench/defaults.py`.",
    (
        command_line("airfoil", SGPR, 10),
        command_line("energy", SGPR, 3),
        command_line("kin40k", SVGP, 40),
        command_line("elevators", SVGP, 18),
        command_line("bike", "SGPR, Matérn 3/2 ARD, M = 1024, 200 iterations", 30),
        command_line("banana", "SVGP, probit, M = 64", 1, files=("{}.X.csv", "{}.y.csv")),
        row("MNIST, SVGP, softmax, RBF, M = 500, 20 epochs", partial(softmax), IMAGES, 15),
        row(
            "MNIST, SVGP, softmax, patches of 5 × 5, M = 150",
            partial(on_patches, method="convolutional"),
            IMAGES,
            4,
            steps=600,
        ),
    ),
)
TABLES = (TABLE,)
