"""Trainings of the figures of t-SVGP that the examples do not have."""

import os
import time

import dual as example
import dual_minibatches as minibatches
import numpy as np
from scipy.optimize import minimize_scalar

import fastsvgp as fs

from .running import needs, outcome

# --- figure 2: EM in the lengthscale --------------------------------------------------------------

START, GRID, NEAR = 2.5, (0.5, 3.0, 26), 0.01
BOUNDS = np.log([0.05, 20.0])


def at(model, lengthscale):
    return fs.records.replace_at(model, "covariance.lengthscales", float(lengthscale))


def best(bound):
    """Return the lengthscale where a function of it is largest."""
    found = minimize_scalar(
        lambda log: -bound(np.exp(log)), bounds=BOUNDS, method="bounded", options={"xatol": 1e-6}
    )
    return float(np.exp(found.x))


def map_of_em(data, held, rounds):
    """Return the result of EM in the lengthscale with a representation of q held in the M-step."""
    X, y = data.X, data.y
    start, _, _ = example.toy()

    def em_round(lengthscale):
        q = example.converged(at(start, lengthscale), X, y)
        q = fs.posteriors.convert(q, example.HELD[held])
        return best(lambda length: fs.elbo(at(q, length), X, y))

    limit = best(lambda length: fs.elbo(example.converged(at(start, length), X, y), X, y))
    path = [START]
    while len(path) <= rounds and abs(path[-1] / limit - 1) > NEAR:
        path.append(em_round(path[-1]))
    near = limit * np.array([0.98, 1.02])
    slope = (em_round(near[1]) - em_round(near[0])) / (near[1] - near[0])
    grid = np.linspace(*GRID[:2], min(rounds, GRID[2]))
    return {
        "scores": {"rounds": len(path) - 1, "slope": float(slope)},
        "limit": limit,
        "path": path,
        "before": grid.tolist(),
        "after": [em_round(length) for length in grid],
    }


# --- figure 3: rounds of E-steps and of Adam on all rows ------------------------------------------

FOLDS = 5
REGRESSION, CLASSES = (8, 0.8, 20, 0.1), (6, 0.75, 14, 0.2)  # E-steps, their size, M-steps, theirs


def fold(name, number):
    """Return (X, y, test X, test y) of a fold, standardised by the training part."""
    if name == "banana":
        X, y = example.banana()
    else:
        rows = np.loadtxt(example.DATA / f"{name}.data.csv.gz", delimiter=",")
        X, y = rows[:, :-1], rows[:, -1]
    order = np.random.default_rng(0).permutation(len(X))
    test = np.isin(np.arange(len(X)), order[number % FOLDS :: FOLDS])
    X = (X - X[~test].mean(axis=0)) / np.where(X[~test].std(axis=0) > 0, X[~test].std(axis=0), 1)
    if name != "banana":
        y = (y - y[~test].mean()) / y[~test].std()
    return X[~test], y[~test], X[test], y[test]


def alternate(data, rounds, checkpoint, name, method):
    """Return the result of some rounds, with bound and NLPD of each."""
    X, y, Xs, ys, _ = data
    likelihood = fs.BernoulliProbit() if name == "banana" else fs.Gaussian(variance=1.0)
    e_steps, natural, m_steps, size = CLASSES if name == "banana" else REGRESSION
    covariance = fs.Matern52(variance=1.0, lengthscales=np.ones(X.shape[1]))
    kind = fs.posteriors.AbsorbedDualSites if method == "t-SVGP" else fs.Whitened
    given = covariance, X[: data.scaled(50)].copy(), likelihood

    def scores(model):
        nlpd = -float(np.mean(fs.predict_log_density(model, Xs, ys)))
        return {"bound": float(fs.elbo(model, X, y)), "NLPD": nlpd}

    if method == "q-SVGP, Adam":
        steps = {"m_steps": e_steps + m_steps}
    else:
        steps = {"e_steps": e_steps, "m_steps": m_steps, "natural_step_size": natural}
    model, info = fs.fit(
        checkpoint.start(lambda: example.start(kind, *given)),
        X,
        y,
        steps=rounds,
        batch_size=len(X),
        optimiser=fs.adam(size),
        rng=0,
        **steps,
        **checkpoint.options(checkpoint.look(range(1, rounds + 1), scores)),
    )
    checkpoint.finish(info)
    return outcome(model, info, data, scores(model))


# --- figure 4: seconds of short trainings ---------------------------------------------------------


def short(data, inducing, steps, method):
    """Return CPU seconds and NLPD of some steps; the first one, which compiles, is not counted."""
    X, y, Xs, ys, likelihood, outputs = data
    natural, adam, *_ = minibatches.TABLE_1[1]
    if method == "GPflow":
        seconds, nlpd = gpflow_steps(data, inducing, steps, natural, adam)
        return {"scores": {"CPU seconds": seconds, "NLPD": nlpd}}
    started = [0.0]

    def watch(step, value, info):
        if step == 1:
            started[0] = time.process_time()

    setting = minibatches.Setting(inducing, min(200, len(X)), steps + 1, *minibatches.TABLE_1[1])
    model, _ = minibatches.train(method, setting, data, 0, callback=watch)
    seconds = time.process_time() - started[0]
    return {"scores": {"CPU seconds": seconds, "NLPD": minibatches.score(model, data)[1]}}


def gpflow_steps(data, inducing, steps, natural, adam):
    """Return the same of GPflow: natural and Adam's steps in turns, robust maximum, compiled."""
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    try:
        import gpflow
        import tensorflow as tf
    except ImportError:
        needs(False, "GPflow is not installed")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    X, y, Xs, ys, _, outputs = data
    y, ys = (labels[:, None].astype(float) for labels in (y, ys))
    length = fs.inducing.median_lengthscales(X, rng=0, ard=False)
    model = gpflow.models.SVGP(
        gpflow.kernels.Matern52(lengthscales=float(length)),
        gpflow.likelihoods.MultiClass(outputs),
        fs.inducing.kmeans(X, inducing, rng=0),
        num_latent_gps=outputs,
        num_data=len(X),
    )
    q = [(model.q_mu, model.q_sqrt)]
    for parameter in q[0]:
        gpflow.set_trainable(parameter, False)
    sizes, size = np.geomspace(1e-3, natural, 100), tf.Variable(1e-3, dtype=tf.float64)
    natural, adam = gpflow.optimizers.NaturalGradient(size), tf.keras.optimizers.Adam(adam)
    rng, variables = np.random.default_rng(0), model.trainable_variables

    @tf.function
    def step(X, y):
        natural.minimize(lambda: -model.elbo((X, y)), q)
        with tf.GradientTape() as tape:
            loss = -model.elbo((X, y))
        adam.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    for i in range(steps + 1):
        if i == 1:
            started = time.process_time()
        size.assign(sizes[min(i, 99)])
        rows = rng.choice(len(X), min(200, len(X)), replace=False)
        step(tf.constant(X[rows]), tf.constant(y[rows]))
    seconds = time.process_time() - started
    return seconds, -float(np.mean(model.predict_log_density((Xs, ys))))
