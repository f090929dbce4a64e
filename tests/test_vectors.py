"""Values and gradients computed by GPflow, if that folder is present.

GPflow's conventions: ``q_mu`` (M, P), ``q_sqrt`` (P, M, M), targets (N, P), gradients in natural
space.
"""

import json
import os
import pathlib

import numpy as np
import pytest
from oracles import gp

import fastsvgp as fs

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path(os.environ.get("FASTSVGP_VECTORS", HERE.parent.parent / "shared" / "vectors"))
COVARIANCES = {
    "rbf": fs.RBF,
    "matern12": fs.Matern12,
    "matern32": fs.Matern32,
    "matern52": fs.Matern52,
}
TOLERANCE = 1e-9


def read(name):
    path = FOLDER / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"no reference vectors at {path}; set FASTSVGP_VECTORS to their folder")
    with np.load(path, allow_pickle=False) as file:
        arrays = {
            key: file[key][()] if file[key].ndim == 0 else file[key]
            for key in file.files
            if key != "meta"
        }
        return arrays, json.loads(str(file["meta"]))


def close(ours, theirs):
    np.testing.assert_allclose(
        ours, theirs, rtol=0, atol=TOLERANCE * max(1.0, np.max(np.abs(theirs)))
    )


def single(a, axis):
    """Drop the axis of a single output, as the package does."""
    return np.squeeze(a, axis) if a.shape[axis] == 1 else a


def covariance_of(v, meta):
    return COVARIANCES[meta["kernel"]["type"]](
        variance=v["in.kernel.variance"], lengthscales=v["in.kernel.lengthscales"]
    )


def likelihood_of(v, meta):
    kind = meta["likelihood"]["type"]
    if kind == "gaussian":
        return fs.Gaussian(variance=v["in.likelihood.variance"])
    if kind == "poisson":
        return fs.Poisson(exposure=meta["likelihood"]["binsize"])
    assert kind == "bernoulli" and meta["likelihood"]["link_jitter"] == 0
    return fs.BernoulliProbit()


def svgp_of(v, meta):
    q = fs.Whitened if meta["whiten"] else fs.Marginal
    posterior = q(mean=single(v["in.q_mu"].T, 0), scale_tril=single(v["in.q_sqrt"], 0))
    return fs.SVGP(
        covariance=covariance_of(v, meta),
        inducing=v["in.Z"],
        posterior=posterior,
        likelihood=likelihood_of(v, meta),
    )


SVGP_CASES = [
    "svgp_whitened_rbf_gaussian",
    "svgp_unwhitened_rbf_bernoulli_probit_exact",
    "svgp_minibatch_unwhitened_matern52_poisson",
    "svgp_multioutput_shared_whitened_rbf_gaussian",
]


@pytest.mark.parametrize("name", SVGP_CASES)
def test_svgp_value_and_gradients(name):
    v, meta = read(name)
    model, X, Y = svgp_of(v, meta), v["in.X"], single(v["in.Y"], 1)
    settings = dict(num_data=v["in.scale"] * len(X), jitter=float(v["in.jitter"]))
    value, grad = fs.elbo_and_grad(model, X, Y, **settings)
    close(value, v["out.elbo"])
    close(fs.elbo(model, X, Y, **settings), v["out.elbo"])
    close(fs.bounds.kl_term_and_grad(model, jitter=settings["jitter"])[0], v["out.kl"])
    close(
        fs.bounds.data_term_and_grad(model, X, Y, **settings)[0],
        v["in.scale"] * v["out.var_exp"].sum(),
    )
    mean, var = fs.predict_f(model, X, jitter=settings["jitter"])
    close(mean, single(v["out.f_mean"], 1))
    close(var, single(v["out.f_var"], 1))
    close(grad.covariance.variance, v["grad.kernel.variance"])
    close(grad.covariance.lengthscales, v["grad.kernel.lengthscales"])
    close(grad.inducing, v["grad.Z"])
    close(grad.posterior.mean, single(v["grad.q_mu"].T, 0))
    close(np.tril(grad.posterior.scale_tril), single(v["grad.q_sqrt"], 0))
    if "grad.likelihood.variance" in v:
        close(grad.likelihood.variance, v["grad.likelihood.variance"])


@pytest.mark.parametrize(
    "name, kind",
    [("whitened", fs.posteriors.WhitenedOrthogonal), ("unwhitened", fs.posteriors.Orthogonal)],
)
def test_solve_gp(name, kind):
    v, meta = read(f"solvegp_{name}_rbf_gaussian")
    fields = [v["in.qu_mu"][:, 0], v["in.qu_sqrt"][0], v["in.qv_mu"][:, 0], v["in.qv_sqrt"][0]]
    model = fs.SVGP(
        covariance_of(v, meta),
        fs.posteriors.InducingPair(v["in.Z"], v["in.O"]),
        kind(*fields),
        likelihood_of(v, meta),
    )
    X, Y, jitter = v["in.X"], v["in.Y"][:, 0], float(v["in.jitter"])
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=v["in.scale"] * len(X), jitter=jitter)
    close(value, v["out.elbo"])
    close(fs.bounds.kl_term_and_grad(model, jitter=jitter)[0], v["out.kl_u"] + v["out.kl_v"])
    close(grad.covariance.variance, v["grad.kernel.variance"])
    close(grad.covariance.lengthscales, v["grad.kernel.lengthscales"])
    close(grad.likelihood.variance, v["grad.likelihood.variance"])
    close(grad.inducing.Z, v["grad.Z"])
    close(grad.inducing.O, v["grad.O"])
    for field, key in (("mean_u", "qu_mu"), ("mean_v", "qv_mu")):
        close(getattr(grad.posterior, field), v[f"grad.{key}"][:, 0])
    for field, key in (("scale_tril_u", "qu_sqrt"), ("scale_tril_v", "qv_sqrt")):
        close(getattr(grad.posterior, field), v[f"grad.{key}"][0])
    mean, cov = fs.predict_f(model, v["in.Xnew"], full_cov=True, jitter=jitter)
    close(mean, v["out.pred_mean"][:, 0])
    close(cov, v["out.pred_cov"][0])
    close(fs.predict_f(model, v["in.Xnew"], jitter=jitter)[1], v["out.pred_var"][:, 0])


@pytest.mark.parametrize(
    "name, kind",
    [("tsvgp", fs.posteriors.AbsorbedDualSites), ("tsvgp_white", fs.posteriors.DualSites)],
)
def test_dual_sites(name, kind):
    """The state after 0, 1 and 5 E-steps, and the gradient of the M-step at the last."""
    v, meta = read(f"{name}_rbf_gaussian")
    X, Y, jitter = v["in.X"], v["in.Y"][:, 0], float(v["in.jitter"])
    posterior = kind(v["in.lambda_1"][:, 0], v["in.Lambda_2"][0])
    model = fs.SVGP(covariance_of(v, meta), v["in.Z"], posterior, likelihood_of(v, meta))
    for step in range(6):
        if f"out.elbo_{step}" in v:
            value, grad = fs.elbo_and_grad(model, X, Y, jitter=jitter)
            close(value, v[f"out.elbo_{step}"])
            close(fs.bounds.kl_term_and_grad(model, jitter=jitter)[0], v[f"out.kl_{step}"])
            close(model.posterior.lambda1, v[f"out.lambda_1_{step}"][:, 0])
            close(model.posterior.lambda2, v[f"out.Lambda_2_{step}"][0])
            marginal = fs.posteriors.convert(model, fs.Marginal, jitter=jitter).posterior
            close(marginal.mean, v[f"out.m_{step}"][:, 0])
            close(marginal.scale_tril @ marginal.scale_tril.T, v[f"out.S_{step}"][0])
        if step < 5:
            model, _ = fs.natural_step(model, X, Y, step_size=float(v["in.lr"]), jitter=jitter)
    close(grad.covariance.variance, v["grad.kernel.variance"])
    close(grad.covariance.lengthscales, v["grad.kernel.lengthscales"])
    close(grad.likelihood.variance, v["grad.likelihood.variance"])
    close(grad.inducing, v["grad.Z"])
    mean, var = fs.predict_f(model, v["in.Xnew"], jitter=jitter)
    close(mean, v["out.pred_mean_5"][:, 0])
    close(var, v["out.pred_var_5"][:, 0])


def test_predictions():
    v, meta = read("predict_whitened_rbf_gaussian")
    model, Xs, jitter = svgp_of(v, meta), v["in.Xnew"], float(v["in.jitter"])
    mean, var = fs.predict_f(model, Xs, jitter=jitter)
    close(mean, v["out.pred_mean"][:, 0])
    close(var, v["out.pred_var"][:, 0])
    close(fs.predict_f(model, Xs, full_cov=True, jitter=jitter)[1], v["out.pred_cov"][0])
    y_mean, y_var = fs.predict_y(model, Xs, jitter=jitter)
    close(y_mean, v["out.y_mean"][:, 0])
    close(y_var, v["out.y_var"][:, 0])
    close(
        fs.predict_log_density(model, Xs, v["in.Ynew"][:, 0], jitter=jitter), v["out.log_density"]
    )


def test_collapsed_bound_and_its_optimal_posterior():
    v, meta = read("sgpr_rbf")
    sgpr = fs.SGPR(
        covariance=covariance_of(v, meta),
        inducing=v["in.Z"],
        noise_variance=v["in.likelihood.variance"],
    )
    X, Y, Xs, jitter = v["in.X"], v["in.Y"][:, 0], v["in.Xnew"], float(v["in.jitter"])
    value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=jitter)
    close(value, v["out.elbo"])
    close(grad.covariance.variance, v["grad.kernel.variance"])
    close(grad.covariance.lengthscales, v["grad.kernel.lengthscales"])
    close(grad.inducing, v["grad.Z"])
    close(grad.noise_variance, v["grad.likelihood.variance"])
    model = fs.optimal_svgp(sgpr, X, Y, jitter=jitter)
    mean, var = fs.predict_f(model, Xs, jitter=jitter)
    close(mean, v["out.pred_mean"][:, 0])
    close(var, v["out.pred_var"][:, 0])
    close(fs.predict_f(model, Xs, full_cov=True, jitter=jitter)[1], v["out.pred_cov"][0])
    k = gp.rbf(v["in.kernel.variance"], v["in.kernel.lengthscales"])
    Kuu = k(v["in.Z"], v["in.Z"]) + jitter * np.eye(len(v["in.Z"]))
    q_mean, q_cov = gp.unwhitened(Kuu, model.posterior.mean, np.tril(model.posterior.scale_tril))
    close(q_mean, v["out.qu_mean"][:, 0])
    close(q_cov, v["out.qu_cov"])


def test_natural_step():
    v, meta = read("svgp_natgrad_whitened_rbf_gaussian_g1")
    model, X, Y, jitter = svgp_of(v, meta), v["in.X"], v["in.Y"][:, 0], float(v["in.jitter"])
    close(fs.elbo(model, X, Y, jitter=jitter), v["out.elbo_before"])
    for _ in range(int(v["in.steps"])):
        model, _ = fs.natural_step(model, X, Y, step_size=float(v["in.gamma"]), jitter=jitter)
    close(fs.elbo(model, X, Y, jitter=jitter), v["out.elbo_after"])
    close(model.posterior.mean, v["out.q_mu_after"][:, 0])
    close(np.tril(model.posterior.scale_tril), v["out.q_sqrt_after"][0])
