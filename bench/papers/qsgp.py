"""QSGP (Evans and Nair 2018): tables 2 and 3, odd and even digits, figures 1 to 3.

See examples/weight_space.py, odd_even.py, control_variates.py and relevance.py.
"""

import argparse
import contextlib
import io
from functools import lru_cache, partial

import control_variates
import mnist
import numpy as np
import odd_even
import relevance
import weight_space as example

import fastsvgp as fs

from .cells import Cell, Data, Metric, Table, held_back
from .running import hyperparameters, outcome

PAPER = "QSGP"
SCORES = Metric("RMSE"), Metric("MNLP")
FEATURES, POINTS = 100_000, 500
CONVERGED = 1e-6  # residual that ends the blocks
BLOCKS = {"differs": "the mean by blocks of rows, not from samples"}


@lru_cache(maxsize=2)
def kin40k(split, part):
    data = Data(*example.rows_of("kin40k", split))
    return data if part == "test" else held_back(data)


def scores(model, data, **options):
    """Return RMSE and MNLP of the test rows."""
    X, y = data.test_X, data.test_y
    off = fs.predict_y(model, X)[0] - y
    density = fs.predict_log_density(model, X, y, **options)
    return {"RMSE": float(np.sqrt(np.mean(off**2))), "MNLP": -float(np.mean(density))}


def start(data, basis, columns=0):
    """Return a QSGP with the hyperparameters of an exact GP on 1,000 rows."""
    m = len(data.X) if basis == "inducing" else data.scaled(FEATURES)
    settings = {"basis": basis, "dense_columns": columns, "exact": data.scaled(1000, least=50)}
    return example.prepared(data.X, data.y, m, **settings)


def from_samples(data, split, steps, checkpoint, *, optimiser, columns=0, basis="fourier"):
    """Train the mean, and dense columns, from samples with a kriged control."""
    options = checkpoint.options(
        checkpoint.look(
            {max(1, round(part * steps)) for part in example.PARTS},
            lambda model: scores(model, data),
        )
    )
    model = checkpoint.start(lambda: start(data, basis, columns))
    size = data.scaled(2000 if basis == "inducing" else example.FUNCTIONS, least=20)
    options["batch_size"] = data.scaled(example.BATCH, least=32)
    points = data.scaled(POINTS, least=20)
    model, info = example.train(model, data.X, data.y, steps, "kriged", points, size, **options)
    checkpoint.finish(info)
    found = scores(model, data)
    return outcome(model, info, data, found)


def by_blocks(data, split, steps, checkpoint, *, basis, block, augmented=False):
    """Solve for the mean by blocks of rows; ``steps`` are epochs."""
    made, block = start(data, basis), data.scaled(block)
    per, before = -(-len(data.X) // block), checkpoint.seconds
    epochs = range(per, per * steps + 1, per)
    look = checkpoint.look(epochs, lambda model: scores(model, data))
    options = checkpoint.options_of_blocks(look)
    model, info = fs.qsgp.optimal_weights(
        made, data.X, data.y, method="blocks", block=block, epochs=steps, rng=split, **options
    )
    if info.iterations < per * steps and info.residual > CONVERGED:
        checkpoint.stop(interrupted=not checkpoint.over)
    seconds = checkpoint.seconds - before
    found = scores(model, data, **{"augmented": True} if augmented else {})
    return {
        "scores": found | {"CPU seconds of the mean": seconds},
        "hyperparameters": hyperparameters(model),
        "residual": info.residual,
        "products": info.products,
    }


def svgp(data, split, steps, checkpoint, *, learn):
    """Train an SVGP with 512 inducing inputs from the same hyperparameters."""

    def make():
        rows = data.scaled(1000, least=50)
        covariance, noise = example.hyperparameters(data.X, data.y, rows, np.random.default_rng(0))
        Z = fs.inducing.kmeans(data.X, data.scaled(512, least=8), rng=split)
        q = fs.posteriors.at_prior(fs.Whitened, covariance, Z)
        return fs.SVGP(covariance, Z, q, fs.Gaussian(variance=noise))

    model, info = fs.fit(
        checkpoint.start(make),
        data.X,
        data.y,
        steps=steps,
        batch_size=data.scaled(500, least=32),
        optimiser=fs.adam(0.01),
        natural_step_size=0.1,
        fixed=() if learn else ("covariance", "likelihood"),
        rng=split,
        **checkpoint.options(),
    )
    checkpoint.finish(info)
    return outcome(model, info, data, scores(model, data))


UCI = (
    "kin40k, the paper's five 90/10 splits. Hyperparameters start at those of an exact GP on 1,000"
    " rows. The paper's RMSE is the mean of five splits with their standard deviation, its MNLP is"
    " that of the first split. SVGP has natural steps of 0.1 and Adam with 0.01, 5,000 steps of 500"
    " rows; the paper does not state its training. "
)
OTHERS = "protein, kegg, ctslice, keggu and song"


def row(title, program, steps, minutes, paper, **others):
    """Return a cell; ``paper`` has the RMSE with its deviation, and the MNLP."""
    rmse, mnlp = paper
    published = {"RMSE": rmse, "MNLP": (mnlp, None)}
    return Cell(
        title,
        program,
        kin40k,
        steps,
        minutes,
        **{"paper": published, "groups": ("kin40k",)} | others,
    )


ZERO, HUNDRED, SVGP = ((0.174, 0.004), 0.135), ((0.175, 0.004), 0.139), ((0.247, 0.004), 0.055)
SAMPLES = {"paper_steps": 100_000}
TABLE_2 = Table(
    "qsgp_2",
    PAPER,
    "table 2: random Fourier features",
    (*SCORES, Metric("CPU seconds of the mean", 0, 0)),
    UCI + "100,000 Fourier features, samples of 10,000 functions and 500 rows, control at 500"
    " points. The paper learns the hyperparameters by steps of 1e-5 from step 10,000 on, QSGP here"
    " keeps them, and has a kriged control. # of QSGP-#: dense columns.",
    (
        row(
            "QSGP-0",
            partial(from_samples, optimiser="AdaGrad"),
            10_000,
            7,
            ZERO,
            **SAMPLES,
        ),
        row(
            "QSGP-0, Nesterov",
            partial(from_samples, optimiser="Nesterov"),
            3000,
            3,
            ZERO,
            **SAMPLES,
            groups=(),
            differs="Nesterov's momentum in place of AdaGrad; commit b3bab439 can run it",
            missing="`fs.nesterov`, which commit b3bab439 has",
        ),
        row(
            "QSGP-0, blocks",
            partial(by_blocks, basis="fourier", block=500),
            10,
            5,
            ZERO,
            groups=(),
            differs=BLOCKS["differs"] + "; steps are epochs",
        ),
        row(
            "QSGP-0, 4 epochs of blocks",
            partial(by_blocks, basis="fourier", block=500),
            4,
            2,
            ZERO,
            groups=(),
            differs=BLOCKS["differs"] + "; steps are epochs",
        ),
        row(
            "QSGP-100",
            partial(from_samples, optimiser="AdaGrad", columns=100),
            10_000,
            35,
            HUNDRED,
            splits=3,
            **SAMPLES,
        ),
        row("SVGP 512", partial(svgp, learn=True), 5000, 7, SVGP),
        Cell(OTHERS, missing="these data sets"),
    ),
    spread="deviation",
)
AT_DATA, FIXED = ((0.154, 0.007), -0.348), ((0.171, 0.003), -0.089)
TABLE_3 = Table(
    "qsgp_3",
    PAPER,
    "table 3: a basis function at each training row",
    (*SCORES, Metric("CPU seconds of the mean", 0, 0)),
    UCI + "36,000 functions k(·, xᵢ), augmented predictive variances; no model learns its"
    " hyperparameters.",
    (
        row(
            "QSGP-0, blocks",
            partial(by_blocks, basis="inducing", block=500, augmented=True),
            8,
            2,
            AT_DATA,
            differs=BLOCKS["differs"] + "; steps are epochs",
        ),
        row("SVGP 512", partial(svgp, learn=False), 5000, 7, FIXED),
        row(
            "QSGP-0, AdaGrad",
            partial(from_samples, optimiser="AdaGrad", basis="inducing"),
            2000,
            4,
            AT_DATA,
            splits=1,
            groups=(),
            differs="not augmented; samples of 2,000 functions and 500 rows",
            **SAMPLES,
        ),
        Cell(OTHERS, missing="these data sets"),
    ),
    spread="deviation",
)


# --- odd and even digits --------------------------------------------------------------------------


@lru_cache(maxsize=1)
def parity(split, part):
    X, labels = mnist.digits()
    X, y = np.ascontiguousarray(X, np.float32), (labels % 2).astype(np.float32)
    data = Data(X[: mnist.TRAIN], y[: mnist.TRAIN], X[mnist.TRAIN :], y[mnist.TRAIN :])
    return data if part == "test" else held_back(data)


def odd_or_even(data, split, steps, checkpoint, *, features):
    """Train random Fourier features for labels."""

    def found(model):
        values = odd_even.scored(model, data.test_X, data.test_y)
        return dict(zip(("accuracy", "NLPD at the median", "NLPD"), values, strict=True))

    model, info = fs.fit(
        checkpoint.start(lambda: odd_even.features(data.scaled(features), np.float32)),
        data.X,
        data.y,
        steps=steps,
        batch_size=data.scaled(100, least=32),
        basis_size=data.scaled(20_000),
        optimiser=fs.optim.adagrad(0.1),
        rng=split,
        **checkpoint.options(checkpoint.look({1000, 3000, steps}, found)),
    )
    checkpoint.finish(info)
    return outcome(model, info, data, found(model))


DIGITS = Table(
    "qsgp_digits",
    PAPER,
    "section 4: odd and even digits of MNIST",
    (Metric("accuracy", 1, 4), Metric("NLPD at the median", -1, 4), Metric("NLPD", -1, 4)),
    "A logistic likelihood, RBF of variance 10 and lengthscale 5 on pixels in [0, 1], samples of"
    " 20,000 functions and 100 rows, AdaGrad with 0.1, float32. 8,000 of MNIST's 10,000 test digits"
    " for training, 2,000 for testing; the paper has 60,000 and 10,000, learns the covariance, and"
    " does not state its steps.",
    tuple(
        Cell(
            f"m = {features:,}",
            partial(odd_or_even, features=features),
            parity,
            10_000,
            minutes,
            splits=splits,
            paper={key: (value, None) for key, value in published.items()},
            differs="8,000 digits",
        )
        for features, minutes, splits, published in (
            (10**6, 8, 1, {"accuracy": 0.9785, "NLPD at the median": 0.068}),
            (10**7, 10, 0, {"NLPD at the median": 0.063}),
        )
    ),
)


# --- figures --------------------------------------------------------------------------------------


def quietly(function, *args):
    """Return the result of a function of an example without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args)


def controls(data, split, steps, checkpoint):
    """Measure what control variates at 300 points leave of variances."""
    points = 300 if data.share == 1 else 30
    args = argparse.Namespace(
        exact=data.scaled(1000, least=50),
        features=data.scaled(10_000, least=200),
        iterations=30,
        points=[points],
        evaluations=steps,
        batch=data.scaled(500, least=50),
        size=data.scaled(250, least=10),
    )
    panels = quietly(control_variates.figure_1, "kin40k", args)
    curves, found = panels["a mean from the prior"], {}
    for kind, name in (("eq. 3", "eq. 3"), ("kriged", "kriged")):
        _, value, gradient = curves[kind]
        found |= {f"{name}, value": float(value[0]), f"{name}, gradient": float(gradient[0])}
    return {"scores": found}


def augmented(data, split, steps, checkpoint):
    """Return standard deviations of f at 15, five beyond the data."""
    *_, found = relevance.deviations(np.array([[15.0]]))
    return {"scores": {name: float(value[0]) for name, value in found.items()}}


def vectors(data, split, steps, checkpoint, *, how):
    """Train a relevance vector machine on sinc."""
    turns, samples = (steps, 0) if how == "in turns" else (0, steps)
    n = 500 if data.share == 1 and steps > 10 else 60
    X, Y, found = quietly(relevance.vectors, n, turns, samples)
    model, grid = found[how], np.linspace(-relevance.EDGE, relevance.EDGE, 400)[:, None]
    error = fs.predict_f(model, grid)[0] - np.sinc(grid[:, 0] / np.pi)
    scores = {
        "relevance vectors": len(model.basis.inducing),
        "RMSE to sinc": float(np.sqrt(np.mean(error**2))),
    }
    return {"scores": scores}


def sinc(split, part):
    X, Y = relevance.sinc(500, 0)
    return Data(X, Y, X, Y)


LEFT = tuple(
    Metric(f"{kind}, {what}") for kind in ("eq. 3", "kriged") for what in ("value", "gradient")
)
FIGURE_1 = Table(
    "qsgp_fig_1",
    PAPER,
    "figure 1: what control variates leave of variances",
    LEFT,
    "kin40k, 10,000 Fourier features, samples of 500 features and 500 rows, a mean from the prior,"
    " 300 points, 1,000 evaluations. The paper states that at about 300 points its variances have"
    " decreased by an order of magnitude. `python examples/control_variates.py kin40k` draws it.",
    (
        Cell(
            "300 points",
            partial(controls),
            kin40k,
            1000,
            10,
            splits=1,
            paper={f"eq. 3, {what}": (0.1, None) for what in ("value", "gradient")},
        ),
    ),
)
DEVIATIONS = "exact GP", "mean field", "mean field, augmented", "full", "full, augmented"
FIGURE_2 = Table(
    "qsgp_fig_2",
    PAPER,
    "figure 2: augmented predictive variances",
    tuple(Metric(name, 0) for name in DEVIATIONS),
    "Standard deviations of f five beyond 20 data of sinc; a basis function at each. The paper"
    " shows curves: without augmentation they fall to 0, with it they tend to the prior's. `python"
    " examples/relevance.py augmented` draws it.",
    (Cell("at 15", partial(augmented), sinc, 300, 0.2, splits=1),),
)
FIGURE_3 = Table(
    "qsgp_fig_3",
    PAPER,
    "figure 3: relevance vectors of sinc",
    (Metric("relevance vectors", 0, 0), Metric("RMSE to sinc", -1, 4)),
    "500 data with noise 0.1 and a basis function at each, lengthscale 1; data and lengthscale of"
    " the paper are not stated. `python examples/relevance.py sinc` draws it.",
    tuple(
        Cell(
            how,
            partial(vectors, how=how),
            sinc,
            steps,
            0.5,
            splits=1,
            paper={"relevance vectors": (13, None)},
            differs="no dense columns" + "; closed forms in turns" * (how == "in turns"),
        )
        for how, steps in (("in turns", 100), ("from samples", 5000))
    ),
)
TABLES = TABLE_2, TABLE_3, DIGITS, FIGURE_1, FIGURE_2, FIGURE_3
