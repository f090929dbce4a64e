"""``--method qsgp``: very many random Fourier features; hyperparameters of an exact Gaussian process on some of the rows."""

import numpy as np

import fastsvgp as fs

EXACT = 1000  # rows of the exact GP,
ITERATIONS = 100  # of L-BFGS for it, or steps where the noise is not Gaussian
NATURAL_STEP, ADAM = 0.2, 0.05  # sizes of these steps
STEP, END = 0.1, 0.2  # of AdaGrad at the beginning, and what part of it is left at the end
SLOW = 0.01  # of hyperparameters that are learned on the way,
REST = 0.2  # after this part of the steps, falling to
LAST = 0.1  # this part
CLOSED_FORMS = 20  # of the diagonal, while they are learned


def build(X, y, covariance, likelihood, args):
    """The model to start from: at its prior, with the hyperparameters of an exact GP on at most ``EXACT`` rows."""
    if not args.resume:  # the checkpoint has them
        covariance, likelihood = hyperparameters(
            X, y, covariance, likelihood, args.seed, args.jitter
        )
    m, k = args.features, args.dense_columns
    posterior = fs.ChevronWeights(np.zeros(m), np.eye(m, k), np.ones(m - k))
    model = fs.QSGP(
        fs.RandomFourier(covariance, num_features=m, seed=args.seed), posterior, likelihood
    )
    return fs.tree_map(lambda value: np.asarray(value, args.dtype)[()], model)


def hyperparameters(X, y, covariance, likelihood, seed, jitter=None):
    """``(covariance, likelihood)`` of a Gaussian process with all of some rows as inducing inputs.

    Ctrl-C leaves nothing.
    """
    some = np.random.default_rng([seed, 2]).permutation(len(X))[:EXACT]
    X, y = X[some].astype(np.float64), y[some]
    inducing = np.unique(X, axis=0)
    covariance = fs.tree_map(np.float64, covariance)
    if isinstance(likelihood, fs.Gaussian):
        start = fs.SGPR(covariance, inducing, noise_variance=float(likelihood.variance))
        found, info = fs.fit(start, X, y, steps=ITERATIONS, fixed="inducing", jitter=jitter)
        _heed(info)
        return found.covariance, fs.Gaussian(found.noise_variance)
    start = fs.SVGP(
        covariance, inducing, fs.at_prior(fs.Whitened, covariance, inducing), likelihood
    )
    found, info = fs.fit(
        start, X, y, steps=ITERATIONS, batch_size=len(X), rng=seed, fixed="inducing", optimiser=fs.adam(ADAM, transform="log"),
        natural_step_size=fs.schedules.log_linear(1e-3, NATURAL_STEP, ITERATIONS // 5), jitter=jitter,
    )  # fmt: skip
    _heed(info)
    return found.covariance, found.likelihood


def _heed(info):
    """``fit`` takes the first Ctrl-C for its own end; here it is that of the command."""
    if info.interrupted:
        raise KeyboardInterrupt


def training(args, model, total):
    """What ``fs.fit`` is told beside what all minibatch methods tell it."""
    rate = args.learning_rate or STEP
    optimiser = fs.adagrad(fs.schedules.log_linear(rate, END * rate, total))
    settings = {"basis_size": args.basis_batch, "control": args.control_points}
    if not args.learn_hyperparameters:
        return settings | {"optimiser": optimiser}
    own = [
        name
        for name in ("basis.covariance", "likelihood")
        if any(path.startswith(name) for path, _, _ in fs.leaves(model))
    ]
    slow = fs.adam(fs.schedules.log_linear(SLOW, LAST * SLOW, total), transform="log")
    after = dict.fromkeys(own, int(REST * total))
    if isinstance(model.likelihood, fs.Gaussian):
        settings["closed_form_every"] = max(1, total // CLOSED_FORMS)
    return settings | {
        "optimiser": fs.by_field(optimiser, dict.fromkeys(own, slow), after=after),
        "fixed": (),
    }
