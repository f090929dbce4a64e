"""Bounds, gradients and predictions of several latent functions computed by GPflow.

``peer_values.json`` has the problems and the numbers, and says which versions made them; ``python
bench/latent_peers.py --values FILE`` writes it again. GPflow's heteroskedastic noise has the scale
exp(h / 2), and an expectation by 100 nodes per function.
"""

import json
import pathlib

import numpy as np
import pytest

import fastsvgp as fs

FOUND = json.loads(pathlib.Path(__file__).with_name("peer_values.json").read_text(encoding="utf-8"))
KINDS = "lmc", "icm", "separate", "heteroskedastic"
SETTINGS = {"jitter": FOUND["settings"]["jitter"], "num_data": FOUND["settings"]["num_data"]}
TOLERANCE = 1e-9


def close(ours, theirs):
    theirs = np.array(theirs)
    np.testing.assert_allclose(
        ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, np.abs(theirs).max(initial=0.0))
    )


def read(kind):
    """Return the model, X, Y, the inputs of the predictions, and GPflow's numbers."""
    case = FOUND["cases"][kind]
    p = case["problem"]
    layers = tuple(
        fs.layers.Layer(
            fs.RBF(q["variance"], np.array(q["lengthscales"])),
            np.array(q["Z"]),
            fs.Whitened(np.array(q["mean"]), np.array(q["scale_tril"])),
        )
        for q in p["layers"]
    )
    two = p["noise"] is None
    likelihood = fs.likelihoods.HeteroskedasticGaussian() if two else fs.Gaussian(p["noise"])
    mixing = None if p["mixing"] is None else np.array(p["mixing"])
    X, Y, Xs = np.array(p["X"]), np.array(p["Y"]), np.array(case["Xs"])
    return fs.MultiGP(layers, likelihood, mixing), X, Y[:, 0] if two else Y, Xs, case["values"]


@pytest.mark.parametrize("kind", KINDS)
def test_bound_and_gradients(kind):
    model, X, Y, _, theirs = read(kind)
    value, grad = fs.elbo_and_grad(model, X, Y, **SETTINGS)
    close(value, theirs["elbo"])
    close(fs.elbo(model, X, Y, **SETTINGS), theirs["elbo"])
    close(fs.bounds.kl_term_and_grad(model, jitter=SETTINGS["jitter"])[0], theirs["kl"])
    ours = {}
    for i, bars in enumerate(grad.latents):
        q, covariance = bars.posterior, bars.covariance
        ours |= {f"{i}.mean": q.mean, f"{i}.scale_tril": np.tril(q.scale_tril)}
        ours |= {f"{i}.variance": covariance.variance, f"{i}.Z": bars.inducing}
        ours[f"{i}.lengthscales"] = covariance.lengthscales
    if model.mixing is not None:
        ours["mixing"] = grad.mixing
    if kind != "heteroskedastic":
        ours["noise"] = grad.likelihood.variance
    assert set(ours) == set(theirs["grad"])
    for name, bar in ours.items():
        close(bar, theirs["grad"][name])


@pytest.mark.parametrize("kind", KINDS)
def test_predictions(kind):
    model, _, _, Xs, theirs = read(kind)
    jitter = SETTINGS["jitter"]
    mean, var = fs.predict_f(model, Xs, jitter=jitter)
    close(mean, theirs["f_mean"])
    close(var, theirs["f_var"])
    close(fs.predict_f(model, Xs, full_cov=True, jitter=jitter)[1], theirs["f_cov"])
    close(fs.predict_f(model, Xs, full_output_cov=True, jitter=jitter)[1], theirs["f_output_cov"])
    for ours, name in zip(fs.predict_y(model, Xs, jitter=jitter), ("y_mean", "y_var"), strict=True):
        close(ours.reshape(len(Xs), -1), theirs[name])
