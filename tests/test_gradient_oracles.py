"""Compare the plain gradient formulas of other tests and benchmarks with their definitions."""

from functools import partial

import numpy as np
import pytest
from oracles import (
    covariances,
    gp,
    gp_gradients,
    inverse_free,
    inverse_free_whitened,
    likelihood_gradients,
    linear_algebra,
)
from support import definitions
from support.derivatives import along, assert_derivative, extended
from support.gp_problems import COVARIANCES, lower_factor
from support.numerics import assert_adjoint, five_point
from support.posterior_problems import ROWS, problem

import fastsvgp as fs

# keeps the condition of Kuu, by which the formulas round in float64, below a thousand
JITTER = 1e-2
M, N, D = 5, 9, 2


def judge(definition, arguments, bars, rng):
    """Check ``bars``, the derivatives of ``definition(**arguments)``, along random directions."""
    exact = {name: extended(value) for name, value in arguments.items()}
    for name, bar in bars.items():
        d = rng.standard_normal(np.shape(arguments[name]))
        d = np.tril(d) if name == "scale_tril" else d + d.T if name == "Kuu" else d
        assert_derivative(
            lambda x, name=name: definition(**exact | {name: x}), exact[name], bar, d, name=name
        )


# --- the tools ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 20])
def test_plain_linear_algebra_is_that_of_lapack(size, rng):
    A, B = rng.standard_normal((size, 2 * size)), rng.standard_normal((size, 3))
    A = A @ A.T + 0.1 * np.eye(size)
    L, tolerance = np.linalg.cholesky(A), 1e3 * np.finfo(float).eps * np.linalg.cond(A)
    for ours, theirs in (
        (linear_algebra.cholesky(A), L),
        (linear_algebra.solve_lower(L, B), np.linalg.solve(L, B)),
        (linear_algebra.solve(A, B), np.linalg.solve(A, B)),
        (linear_algebra.solve(A, B[:, 0]), np.linalg.solve(A, B[:, 0])),
        (linear_algebra.inverse(A), np.linalg.inv(A)),
        (linear_algebra.log_det(A), np.linalg.slogdet(A)[1]),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())


def test_linear_algebra_keeps_extended_precision(rng):
    A = rng.standard_normal((6, 20)).astype(np.longdouble)
    A = A @ A.T
    error, eps = (
        np.abs(A @ linear_algebra.inverse(A) - np.eye(6)).max(),
        np.finfo(np.longdouble).eps,
    )
    assert error <= 1e3 * eps * np.linalg.cond(A.astype(float))


def test_a_complex_step_is_the_limit_of_differences(rng):
    A, S = rng.standard_normal((6, 12)).astype(np.longdouble), rng.standard_normal((6, 6))
    A, S = A @ A.T / 12 + np.eye(6), (S + S.T) / 12
    value, derivative = along(linear_algebra.log_det, A, S)
    eps, h = np.finfo(np.longdouble).eps, 1e-3
    assert abs(value - linear_algebra.log_det(A)) <= 1e3 * eps
    assert abs(derivative - np.trace(linear_algebra.solve(A, S))) <= 1e3 * eps
    differences = five_point(lambda s: linear_algebra.log_det(A + s * S), h)
    assert abs(derivative - differences) <= 100 * h**4 + 50 * eps * abs(value) / h


# --- bounds -------------------------------------------------------------------------------------


def rbf_bound(name, scale, Z, X, y, variance, lengthscales, noise, mean=None, scale_tril=None):
    k = gp.rbf(variance, lengthscales)
    Kuu, Kuf, kff = k(Z, Z) + JITTER * np.eye(M), k(Z, X), gp.diagonal(k, X)
    if name == "collapsed":
        return gp.titsias_bound(Kuu, Kuf, kff, y, noise)
    m, S = (
        (mean, scale_tril @ scale_tril.T)
        if name == "marginal"
        else gp.unwhitened(Kuu, mean, scale_tril)
    )
    return gp.elbo(Kuu, Kuf, kff, m, S, partial(gp.gaussian_expectation, y, noise), scale)


@pytest.mark.parametrize("name", ["whitened", "marginal", "collapsed"])
def test_gradient_oracle_follows_the_definition(name, rng):
    p = dict(Z=rng.standard_normal((M, D)), X=rng.standard_normal((N, D)), y=rng.standard_normal(N))
    p |= dict(variance=1.3, lengthscales=np.array([0.8, 1.4]), noise=0.2)
    if name != "collapsed":
        p |= dict(mean=rng.standard_normal(M), scale_tril=lower_factor(rng, M))
    scale = {} if name == "collapsed" else {"scale": 2.5}
    value, grad = getattr(gp_gradients, name)(**p, jitter=JITTER, **scale)
    assert value == pytest.approx(rbf_bound(name, 2.5, **p), rel=1e-11)
    fields = {"inducing": "Z", "likelihood.variance": "noise", "noise_variance": "noise"}
    bars = {fields.get(path, path.rsplit(".")[-1]): bar for path, bar in grad.items()}
    assert bars.keys() == p.keys() - {"X", "y"}
    judge(partial(rbf_bound, name, 2.5), p, bars, rng)


def joint_blocks(rng):
    """Of a positive definite joint covariance."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    return dict(Kuu=K[:M, :M].copy(), Kuf=K[:M, M:].copy(), kff=K.diagonal()[M:].copy())


@pytest.mark.parametrize("form", ["likelihood", "relaxed", "probes"])
def test_gaussian_bars_follow_the_definition(form, rng):
    p, held, y, scale = joint_blocks(rng), {}, rng.standard_normal(N), 2.5
    p |= dict(mean=rng.standard_normal(M), variance=rng.uniform(0.2, 1.5, M), noise=0.3)
    if form != "likelihood":
        L = np.linalg.cholesky(np.linalg.inv(p["Kuu"] + np.diag(p["variance"])))
        held["inverse_tril"] = L @ (np.eye(M) + 0.03 * np.tril(rng.standard_normal((M, M))))
    if form == "probes":
        held["probes"] = rng.choice([-1.0, 1.0], (M, 3))

    def definition(Kuu, Kuf, kff, mean, variance, noise):
        m, T = (
            mean[None],
            (
                None
                if form == "likelihood"
                else extended(held["inverse_tril"]) @ extended(held["inverse_tril"]).T
            ),
        )
        f, cov = inverse_free.marginals(Kuu, Kuf, np.diag(kff), m, variance, T=T)
        if form == "likelihood":
            kl = inverse_free.kl(*inverse_free.q_of_u(Kuu, m, variance), Kuu)
        else:
            kl = inverse_free.kl_bound(Kuu, m, variance, T, probes=held.get("probes"))
        return scale * gp.gaussian_expectation(y, noise, f[0], cov.diagonal()) - kl

    value, bars = inverse_free.gaussian_bars(**p, y=y, scale=scale, **held)
    assert value == pytest.approx(float(definition(**p)), rel=1e-11, abs=1e-11)
    assert bars.keys() == p.keys()
    judge(definition, p, bars, rng)


def test_inverse_free_whitened_cotangents_follow_the_definition(rng):
    p = joint_blocks(rng)
    kff, a, b, kappa = p.pop("kff"), rng.standard_normal(N), rng.standard_normal(N), -0.7
    p |= dict(mean=rng.standard_normal(M), scale_tril=lower_factor(rng, M))
    root = np.linalg.cholesky(np.linalg.inv(p["Kuu"])) @ (
        np.eye(M) + 0.03 * np.tril(rng.standard_normal((M, M)))
    )

    def definition(Kuu, Kuf, mean, scale_tril):
        T, S = inverse_free_whitened.implicit_step(Kuu, extended(root)), scale_tril @ scale_tril.T
        f_mean, f_var = inverse_free_whitened.marginals(Kuu, T, mean, S, Kuf, kff)
        return a @ f_mean + b @ f_var + kappa * inverse_free_whitened.kl_bound(Kuu, T, mean, S)

    bars = inverse_free_whitened.cotangents(
        p["Kuu"], root, p["mean"], p["scale_tril"], p["Kuf"], a, b, kappa
    )
    judge(definition, p, dict(zip(("mean", "scale_tril", "Kuu", "Kuf"), bars, strict=True)), rng)


@pytest.mark.parametrize("name", ROWS)
def test_plain_recipes_of_posteriors_follow_the_definition(name, rng):
    q, blocks, _ = problem(rng, name, M, N)
    A, f_bar = blocks.Kuu + JITTER * np.eye(M), fs.records.Marginals(*rng.standard_normal((2, N)))

    def definition(Kuf):
        return definitions.moments(q, fs.records.Blocks(A, Kuf, blocks.kff))[:2]

    plain = ROWS[name].plain(
        A, blocks.Kuf, blocks.kff, fs.records.tree_map(np.nan_to_num, q), f_bar
    )
    for ours, theirs in zip((plain["mean"], plain["var"]), definition(blocks.Kuf), strict=True):
        np.testing.assert_allclose(ours, theirs[0], rtol=1e-11, atol=1e-11)
    value = lambda Kuf: sum(  # noqa: E731
        (bar * x[0]).sum() for bar, x in zip((f_bar.mean, f_bar.var), definition(Kuf), strict=True)
    )
    judge(value, {"Kuf": blocks.Kuf}, {"Kuf": plain["bar.Kuf"]}, rng)


# --- their parts --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COVARIANCES)
def test_covariance_cotangents_follow_the_definition(name, rng):
    covariance, k = COVARIANCES[name](D)
    X1, X2, K_bar = (
        rng.standard_normal((M, D)),
        rng.standard_normal((N, D)),
        rng.standard_normal((M, N)),
    )
    np.testing.assert_allclose(
        covariances.matrix(covariance, X1, X2), k(X1, X2), rtol=1e-12, atol=1e-13
    )
    _, X1_bar, X2_bar = covariances.matrix_vjp(K_bar, covariance, X1, X2)
    judge(
        lambda X1, X2: (K_bar * k(X1, X2)).sum(),
        dict(X1=X1, X2=X2),
        dict(X1=X1_bar, X2=X2_bar),
        rng,
    )


CLASSES = {"robustmax", "softmax"}
LIKELIHOODS = {
    "gaussian": {"variance": 0.3},
    "bernoulliprobit": {"num_nodes": 20},
    "bernoullilogit": {"num_nodes": 20},  # None changes the rule where q(f) is wide: a small jump
    "poisson": {"exposure": 0.7, "num_nodes": 20},
    "laplace": {"scale": 0.4},
    "studentt": {"scale": 0.5, "df": 4.0, "num_nodes": 20},
    "robustmax": {"num_classes": 3, "epsilon": 1e-3, "num_nodes": 20},
    "softmax": {"num_classes": 3, "num_samples": 16},
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_likelihood_gradients_follow_their_value(name, rng):
    """Use differences, because special functions of SciPy have float64 only; the rule is smooth."""
    settings = dict(LIKELIHOODS[name])
    if name == "softmax":
        settings["points"] = rng.standard_normal((16, 3))
    mean, var = rng.standard_normal((3, N)), rng.uniform(0.5, 1.5, (3, N))
    Y = rng.integers(0, 3 if name in CLASSES else 2, N if name in CLASSES else (3, N)).astype(
        int if name in CLASSES else float
    )
    function = getattr(likelihood_gradients, name)
    _, a, b, own = function(Y, mean, var, **settings)

    def value(mean, var, *parameters):
        return np.asarray(
            function(Y, mean, var, **settings | dict(zip(own, parameters, strict=True)))[0]
        )

    arguments = (mean, var, *(np.float64(settings[key]) for key in own))
    directions = [0.1 * rng.standard_normal(np.shape(x)) for x in arguments]
    assert_adjoint(value, arguments, (a, b, *own.values()), 1.0, rng, directions=directions)
