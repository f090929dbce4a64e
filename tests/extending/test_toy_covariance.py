"""A user-defined covariance whose inducing inputs are a record: directional slopes of an RBF."""

import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support.trials import (
    assert_bound,
    assert_fits,
    assert_joint_predictions,
    assert_single_precision,
    assert_trains_and_is_kept,
)

import fastsvgp as fs
from fastsvgp.extending import ALL, kernels, matches
from fastsvgp.testing import assert_gradient

HERE = pathlib.Path(__file__).parent


@fs.records.record
class Slopes:
    """Inducing variables v . grad f(z): points z (M, D) and directions v (M, D)."""

    points: Any = fs.records.leaf()
    directions: Any = fs.records.leaf()


@fs.records.record
class SlopedRBF(fs.covariances.Covariance):
    """variance exp(-r^2 / (2 l^2)), with slopes as inducing variables. Both fields: (), positive.

    With d = x - x', g = v . d / l^2 and h = v' . d / l^2 (v at x, v' at x'):

        cov(v . grad f(x), f(x')) = -k g
        cov(v . grad f(x), v' . grad f(x')) = k (v . v' / l^2 - g h).
    """

    variance: Any = fs.records.leaf("positive", default=1.0)
    lengthscale: Any = fs.records.leaf("positive", default=1.0)

    inducing_type = Slopes

    def num_inducing(self, inducing):
        return (len(inducing.points),)

    def num_columns(self, inducing):
        return inducing.points.shape[1]

    # --- values of the function ---

    def matrix(self, X1, X2=None):
        d = X1[:, None] - (X1 if X2 is None else X2)
        return self.variance * np.exp(-0.5 * np.square(d / self.lengthscale).sum(-1))

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        d = X1[:, None] - (X1 if X2 is None else X2)
        T = K_bar * (self.matrix(X1, X2) if K is None else K)
        d_bar = -T[..., None] * d / self.lengthscale**2
        covariance_bar = self._gradient(need, T, -(d_bar * d).sum(-1))
        if X2 is None:
            return covariance_bar, 2 * d_bar.sum(1) if "X1" in need else None, None
        return (
            covariance_bar,
            d_bar.sum(1) if "X1" in need else None,
            -d_bar.sum(0) if "X2" in need else None,
        )

    def _gradient(self, need, by_variance, by_lengthscale):
        """The record, from the derivatives in the logarithms of both fields, to be summed."""
        if not any(matches(f"covariance.{field}", need) for field in ("variance", "lengthscale")):
            return None
        bars = (by_variance, self.variance), (by_lengthscale, self.lengthscale)
        return SlopedRBF(
            *((bar.sum(dtype=np.float64) / field).astype(bar.dtype) for bar, field in bars)
        )

    def diag(self, X):
        return kernels.full(len(X), self.variance, X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        covariance_bar = self._gradient(need, k_bar * self.variance, np.zeros_like(k_bar))
        return covariance_bar, np.zeros_like(X) if "X" in need else None

    # --- slopes ---

    def Kuf(self, inducing, X):
        d = inducing.points[:, None] - X
        return (
            -self.matrix(inducing.points, X)
            * (inducing.directions[:, None] * d).sum(-1)
            / self.lengthscale**2
        )

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        v, d, square = (
            inducing.directions[:, None],
            inducing.points[:, None] - X,
            self.lengthscale**2,
        )
        k, along = self.matrix(inducing.points, X), (v * d).sum(-1)
        T = -K_bar * k / square  # K = -k (v . d) / l^2
        d_bar = T[..., None] * (v - d * (along / square)[..., None])
        covariance_bar = self._gradient(
            need, T * along, T * along * (np.square(d).sum(-1) / square - 2)
        )
        inducing_bar = (
            Slopes(d_bar.sum(1), (T[..., None] * d).sum(1)) if "inducing" in need else None
        )
        return covariance_bar, inducing_bar, -d_bar.sum(0) if "X" in need else None

    def Kuu(self, inducing, other=None):
        other, square = inducing if other is None else other, self.lengthscale**2
        d = (inducing.points[:, None] - other.points) / square
        across = (inducing.directions[:, None] * other.directions).sum(-1) / square
        g, h = (inducing.directions[:, None] * d).sum(-1), (other.directions * d).sum(-1)
        return self.matrix(inducing.points, other.points) * (across - g * h)

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        second, square = inducing if other is None else other, self.lengthscale**2
        v, w, d = (
            inducing.directions[:, None],
            second.directions,
            inducing.points[:, None] - second.points,
        )
        k, g, h = (
            self.matrix(inducing.points, second.points),
            (v * d).sum(-1) / square,
            (w * d).sum(-1) / square,
        )
        across, T = (v * w).sum(-1) / square, K_bar * k
        inner = T * (across - g * h)
        g_bar, h_bar = -T * h / square, -T * g / square  # of v . d and w . d
        d_bar = g_bar[..., None] * v + h_bar[..., None] * w - (inner / square)[..., None] * d
        by_lengthscale = inner * np.square(d).sum(-1) / square + T * (4 * g * h - 2 * across)
        first_bar = Slopes(
            d_bar.sum(1), (g_bar[..., None] * d + (T / square)[..., None] * w).sum(1)
        )
        second_bar = Slopes(
            -d_bar.sum(0), (h_bar[..., None] * d + (T / square)[..., None] * v).sum(0)
        )
        if other is None:
            first_bar, second_bar = fs.records.tree_map(np.add, first_bar, second_bar), None
        return self._gradient(need, inner, by_lengthscale), first_bar, second_bar


def problem(rng, P=None):
    X = rng.uniform(-2, 2, (40, 2))
    grid = np.stack(np.meshgrid([-1.2, 0.0, 1.2], [-1.0, 1.0]), -1).reshape(-1, 2)
    angles = rng.uniform(0, 2 * np.pi, len(grid))
    inducing = Slopes(
        grid + rng.uniform(-0.2, 0.2, grid.shape), np.stack([np.cos(angles), np.sin(angles)], 1)
    )
    lead, M = () if P is None else (P,), len(grid)
    q = fs.Whitened(
        0.5 * rng.standard_normal((*lead, M)),
        np.eye(M) + np.tril(rng.uniform(0, 0.3, (*lead, M, M))),
    )
    Y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(40)
    return (
        fs.SVGP(SlopedRBF(1.3, 1.1), inducing, q, fs.Gaussian(0.2)),
        X,
        Y if P is None else np.stack([Y, -Y], 1),
    )


def test_blocks_are_derivatives_of_the_covariance(rng):
    """Compare covariances of slopes with differences of k; no gradient of a bound tests them."""
    model, X, _ = problem(rng)
    covariance, u = model.covariance, model.inducing
    v = u.directions

    def value(A, B):
        return covariance.matrix(u.points + A * v, X + B)

    assert_gradient(
        lambda a: (value(a, 0.0) * np.cos(X[:, 0])).sum(),
        0.0,
        (covariance.Kuf(u, X) * np.cos(X[:, 0])).sum(),
    )
    weights = np.cos(np.arange(len(v)))[:, None] * np.sin(np.arange(len(v)))
    Kuf = covariance.Kuf(u, u.points)
    assert Kuf.shape == (6, 6)
    exact = (covariance.Kuu(u) * weights).sum()
    assert_gradient(lambda a: (covariance.Kuf(u, u.points + a * v) * weights).sum(), 0.0, exact)
    np.testing.assert_allclose(covariance.Kuu(u, u), covariance.Kuu(u), rtol=1e-12)


def test_rules_of_blocks_with_other_inducing_inputs(rng):
    model, X, _ = problem(rng)
    covariance, u = model.covariance, model.inducing
    other = Slopes(rng.standard_normal((4, 2)), rng.standard_normal((4, 2)))
    bar = rng.standard_normal((6, 4))
    bars = covariance.Kuu_vjp(bar, None, u, other)
    for at, (tree, found) in enumerate(zip((covariance, u, other), bars, strict=True)):

        def objective(moved, at=at):
            one, two, three = (
                moved if i == at else kept for i, kept in enumerate((covariance, u, other))
            )
            return (one.Kuu(two, three) * bar).sum()

        assert_gradient(objective, tree, found, rng=rng)


@pytest.mark.parametrize("P", [None, 2])
def test_bound(rng, P):
    assert_bound(*problem(rng, P), rng)


@pytest.mark.parametrize("posterior", ["Marginal", "LikelihoodForm", "Relaxed"])
def test_bound_of_other_posteriors(rng, posterior):
    model, X, Y = problem(rng)
    q, s = model.posterior, rng.uniform(0.3, 0.6, 6)
    if posterior == "Marginal":
        q = fs.Marginal(q.mean, q.scale_tril)
    else:
        T = np.linalg.cholesky(
            np.linalg.inv(model.covariance.Kuu(model.inducing) + np.diag(s + 1e-2))
        )
        q = (
            fs.posteriors.LikelihoodForm(q.mean, s)
            if posterior == "LikelihoodForm"
            else fs.posteriors.Relaxed(q.mean, s, 0.98 * T)
        )
    assert_bound(fs.replace(model, posterior=q), X, Y, rng)


def test_predictions_training_and_files(rng, tmp_path):
    model, X, Y = problem(rng)
    assert_joint_predictions(model, X)
    trained = assert_trains_and_is_kept(model, X, Y, tmp_path)
    assert isinstance(trained.inducing, Slopes)
    fitted = assert_fits(model, X, Y, natural_step_size=0.3)
    assert not np.array_equal(fitted.inducing.directions, model.inducing.directions)
    held = assert_fits(model, X, Y, fixed="inducing.directions")
    np.testing.assert_array_equal(held.inducing.directions, model.inducing.directions)
    stepped, _ = fs.natural_step(model, X, Y, step_size=1.0)
    assert fs.elbo(stepped, X, Y) > fs.elbo(model, X, Y)


def test_the_collapsed_bound_is_the_one_after_the_best_step(rng):
    model, X, Y = problem(rng)
    best, _ = fs.natural_step(model, X, Y, step_size=1.0)
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    np.testing.assert_allclose(fs.collapsed_bound(sgpr, X, Y), fs.elbo(best, X, Y), rtol=1e-8)
    _, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=1e-2)
    assert_gradient(lambda moved: fs.collapsed_bound(moved, X, Y, jitter=1e-2), sgpr, grad, rng=rng)


def test_another_process_must_import_its_module(rng, tmp_path):
    model, X, Y = problem(rng)
    fs.save(tmp_path / "model.npz", model)
    program = f"""
import sys
import fastsvgp as fs
sys.path[:0] = [{str(HERE.parents[1])!r}, {str(HERE.parent)!r}]
path = {str(tmp_path / "model.npz")!r}
try:
    fs.load(path)
except fs.DataFileError as error:
    print(error)
import {__name__}
print(fs.load(path))
"""
    message, loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert f"'SlopedRBF', which the module '{__name__}' defines; import it first" in message
    assert loaded == repr(model)


def test_single_precision(rng):
    assert_single_precision(*problem(rng))


def test_an_array_is_refused_and_so_are_sums(rng):
    model, X, Y = problem(rng)
    with pytest.raises(
        TypeError,
        match="`inducing` must be a Slopes, which a SlopedRBF covariance takes, got an array",
    ):
        fs.elbo(fs.replace(model, inducing=model.inducing.points), X, Y)
    with pytest.raises(TypeError, match="`inducing` must be an array .* RBF .* got a Slopes"):
        fs.elbo(fs.replace(model, covariance=fs.RBF()), X, Y)
    with pytest.raises(TypeError, match="SlopedRBF has inducing variables of its own"):
        fs.elbo(
            fs.replace(
                model, covariance=model.covariance + fs.RBF(), inducing=model.inducing.points
            ),
            X,
            Y,
        )
