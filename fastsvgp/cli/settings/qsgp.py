"""``--method qsgp``: random Fourier features, with hyperparameters of an exact GP on some rows."""

import numpy as np

import fastsvgp as fs

from ..errors import UsageError, refuse_beside
from .defaults import BASIS, FEATURES, POINTS
from .names import LOG_CONCAVE

OPTIONS = "features", "dense_columns", "basis_batch", "control_points", "learn_hyperparameters"
EXACT = 1000  # rows of the exact GP
ITERATIONS = 100  # of L-BFGS for the exact GP, or steps if the noise is not Gaussian
NATURAL_STEP, ADAM = 0.2, 0.05  # step sizes of the latter
STEP, END = 0.1, 0.2  # first step size of AdaGrad, and the last one as a fraction of it
SLOW = 0.01  # first step size of hyperparameters in training
REST = 0.2  # fraction of the steps before they are trained
LAST = 0.1  # their last step size, as a fraction of SLOW
CLOSED_FORMS = 20  # closed-form updates of the diagonal while they are trained


def resolve(args, task, rows):
    """Return the sizes of qsgp by name, given or default; refuse them with another method."""
    requested = {name: getattr(args, name) for name in OPTIONS}
    refuse_beside(args.method, ("qsgp",), **requested)
    if args.method != "qsgp":
        return requested
    if task.second is not None:
        raise UsageError(f"--method qsgp: there is no --{task.second.option}; use --method svgp")
    if task.likelihood not in LOG_CONCAVE:
        names = ", ".join(LOG_CONCAVE)
        raise UsageError(
            f"--method qsgp needs a log-concave likelihood ({names}), but here it is"
            f" {task.likelihood}; use --method svgp"
        )
    if args.inducing is not None:
        raise UsageError(
            "--inducing: --method qsgp uses --features instead of inducing inputs; leave --inducing"
            " out"
        )
    features = args.features or FEATURES
    if features % 2:
        raise UsageError(
            f"--features {features}: features are pairs of sine and cosine; give an even number"
        )
    dense, batch = args.dense_columns or 0, args.basis_batch or min(BASIS, features)
    for option, value in (("--dense-columns", dense), ("--basis-batch", batch)):
        if value > features:
            raise UsageError(
                f"{option} {value} is more than --features {features}; give at most {features}"
            )
    points = args.control_points
    if points is None:
        points = min(POINTS, rows) if task.likelihood == "gaussian" else 0
    elif points > rows:
        raise UsageError(
            f"--control-points {points} is more than the {rows} training rows; give at most {rows}"
        )
    sizes = {"features": features, "dense_columns": dense, "basis_batch": batch}
    return requested | sizes | {"control_points": points}


def build(X, y, covariance, likelihood, settings):
    """Build the initial model: the prior, with hyperparameters of an exact GP on some rows."""
    if not settings.resume:  # the checkpoint has them
        covariance, likelihood = hyperparameters(
            X, y, covariance, likelihood, settings.seed, settings.jitter
        )
    m, k = settings.features, settings.dense_columns
    posterior = fs.qsgp.ChevronWeights(np.zeros(m), np.eye(m, k), np.ones(m - k))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(covariance, num_features=m, seed=settings.seed), posterior, likelihood
    )
    return fs.records.tree_map(lambda value: np.asarray(value, settings.dtype)[()], model)


def hyperparameters(X, y, covariance, likelihood, seed, jitter=None):
    """Train a GP on at most ``EXACT`` rows, all inducing inputs; return covariance, likelihood.

    Ctrl-C here ends the command without a result.
    """
    some = np.random.default_rng([seed, 2]).permutation(len(X))[:EXACT]
    X, y = X[some].astype(np.float64), y[some]
    inducing = np.unique(X, axis=0)
    covariance = fs.records.tree_map(np.float64, covariance)
    if isinstance(likelihood, fs.Gaussian):
        start = fs.SGPR(covariance, inducing, noise_variance=float(likelihood.variance))
        found, info = fs.fit(start, X, y, steps=ITERATIONS, fixed="inducing", jitter=jitter)
        _pass_on_interrupt(info)
        return found.covariance, fs.Gaussian(found.noise_variance)
    start = fs.SVGP(
        covariance, inducing, fs.posteriors.at_prior(fs.Whitened, covariance, inducing), likelihood
    )
    found, info = fs.fit(
        start,
        X,
        y,
        steps=ITERATIONS,
        batch_size=len(X),
        rng=seed,
        fixed="inducing",
        optimiser=fs.adam(ADAM, transform="log"),
        natural_step_size=fs.optim.schedules.log_linear(1e-3, NATURAL_STEP, ITERATIONS // 5),
        jitter=jitter,
    )
    _pass_on_interrupt(info)
    return found.covariance, found.likelihood


def _pass_on_interrupt(info):
    """Raise ``KeyboardInterrupt`` again after ``fit`` has handled it, to end the command."""
    if info.interrupted:
        raise KeyboardInterrupt


def training(settings, model, total):
    """Return the arguments of ``fs.fit`` for a QSGP, beyond those of all minibatch methods."""
    rate = settings.learning_rate or STEP
    optimiser = fs.optim.adagrad(fs.optim.schedules.log_linear(rate, END * rate, total))
    options = {"basis_size": settings.basis_batch, "control": settings.control_points}
    if not settings.learn_hyperparameters:
        return options | {"optimiser": optimiser}
    fields = [
        name
        for name in ("basis.covariance", "likelihood")
        if any(path.startswith(name) for path, _, _ in fs.records.leaves(model))
    ]
    slow = fs.adam(fs.optim.schedules.log_linear(SLOW, LAST * SLOW, total), transform="log")
    after = dict.fromkeys(fields, int(REST * total))
    if isinstance(model.likelihood, fs.Gaussian):
        options["closed_form_every"] = max(1, total // CLOSED_FORMS)
    return options | {
        "optimiser": fs.optim.by_field(optimiser, dict.fromkeys(fields, slow), after=after),
        "fixed": (),
    }
