"""Compare the two directions of R-SVGP during training with each other and with L-SVGP on kin40k.

    python examples/directions.py            # M = 300, batches of 100, 600 steps: under a minute
    python examples/directions.py --inducing 1000 --steps 2000

``Relaxed`` trains in the direction "likelihood" with several tolerances for the residual of its
factor. Every twentieth step computes three vectors, over all fields, at the same model and batch:
the gradient of R-SVGP, ``lsvgp_direction``, and the gradient of L-SVGP with the same
parameters. Errors are ratios of norms; d = ||L' (Kuu + S~) L - I||_F. Reads ../shared/data or the
folder that FASTSVGP_DATA names.
"""

import argparse

import inverse_free
import numpy as np

import fastsvgp as fs

EVERY = 20  # steps
TOLERANCES = (1e-3, 5e-3, 5e-2)


def flat(grad):
    """Return the fields that R-SVGP and L-SVGP share, as one vector."""
    covariance, posterior = grad.covariance, grad.posterior
    parts = (
        covariance.variance,
        covariance.lengthscales,
        grad.inducing,
        posterior.mean,
        posterior.variance,
    )
    return np.concatenate([np.ravel(part) for part in parts])


def distance(model):
    """Return d of a model whose posterior is ``Relaxed``."""
    Kuu, L = model.covariance.matrix(model.inducing), np.tril(model.posterior.inverse_tril)
    return np.linalg.norm(L.T @ (Kuu + np.diag(model.posterior.variance)) @ L - np.eye(len(L)))


def errors(model, X, y, num_data):
    """Return ``(d, direction from exact, exact from L-SVGP, direction from L-SVGP)``."""
    form = fs.replace(
        model,
        posterior=fs.posteriors.LikelihoodForm(model.posterior.mean, model.posterior.variance),
    )
    calls = (
        (fs.elbo_and_grad, model),
        (fs.bounds.lsvgp_direction, model),
        (fs.elbo_and_grad, form),
    )
    exact, other, truth = (
        flat(function(m, X, y, num_data=num_data, jitter=0.0)[1]) for function, m in calls
    )
    pairs = (other, exact), (exact, truth), (other, truth)
    return distance(model), *(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs)


def train(X, y, tolerance, args):
    """Return the errors during one training, one row per comparison."""
    rng, rows = np.random.default_rng(args.seed), []

    def watch(step, value, info):
        if step % EVERY == 0:
            batch = rng.choice(len(X), args.batch_size, replace=False)
            rows.append(errors(info.model, X[batch], y[batch], len(X)))

    Z = fs.inducing.kmeans(X, args.inducing, rng=args.seed)
    covariance = fs.RBF(variance=1.0, lengthscales=np.ones(X.shape[1]))
    start = inverse_free.posterior("R-SVGP", args.inducing)
    options = {
        "optimiser": inverse_free.slow_inducing(0),
        "batch_size": args.batch_size,
        "rng": args.seed,
    }
    model = fs.SVGP(covariance, Z, start, fs.Gaussian(variance=1.0))
    updates = fs.optim.inverse_updates(tolerance, direction="likelihood")
    fs.fit(
        model,
        X,
        y,
        steps=args.steps,
        callback=watch,
        jitter=0.0,
        inverse_updates=updates,
        **options,
    )
    return np.array(rows)


def main(argv=None):
    """Train, then print and return a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inducing", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    X, y, _, _ = inverse_free.table("kin40k", 0)
    print(
        "| tolerance | d | direction from exact | exact from L-SVGP | direction from L-SVGP |\n|"
        " --- | --- | --- | --- | --- |"
    )
    table = {}
    for tolerance in TOLERANCES:
        table[tolerance] = np.median(train(X, y, tolerance, args), axis=0)
        print("|", " | ".join(f"{a:.1g}" for a in (tolerance, *table[tolerance])), "|", flush=True)
    return table


if __name__ == "__main__":
    main()
