"""``DecoupledWeights``: sampled columns of K_vv, runs of rows, sizes.

Values and gradients by definition are tested with the other posteriors of two sets."""

import itertools

import numpy as np
import pytest
from oracles import linear_algebra
from support import definitions
from support.budgets import assert_within_budget, by_name
from support.derivatives import assert_gradient
from support.gp_problems import lower_factor
from support.posterior_problems import JITTER

import fastsvgp as fs

M, M2, N, D = 5, 4, 13, 2


def problem(rng, P=None, M2=M2, covariance=None, likelihood=None):
    """``(model, X, Y)``."""
    batch = () if P is None else (P,)
    pair = fs.posteriors.InducingPair(rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (M2, D)))
    q = fs.posteriors.DecoupledWeights(
        rng.standard_normal((*batch, M)),
        lower_factor(rng, *batch, M, off=0.2),
        rng.standard_normal((*batch, M2)),
    )
    covariance = covariance or fs.Matern52(1.1, np.array([0.9, 1.3])) + fs.Linear(0.3)
    model = fs.SVGP(covariance, pair, q, likelihood or fs.Gaussian(0.3), fs.means.ConstantMean(0.2))
    return model, rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))


def flat(model, grad):
    return fs.ravel(model)[1].pullback(fs.ravel(model)[0], grad)


@pytest.mark.parametrize("S", [1, 2, 4])
@pytest.mark.parametrize("P", [None, 2])
def test_sampled_columns_are_unbiased(rng, P, S):
    """Over all sets of S columns: value and gradient, of the bound and of the KL term."""
    model, X, Y = problem(rng, P)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=40, jitter=JITTER)
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER)
    found = []
    for J in itertools.combinations(range(M2), S):
        J = np.array(J)
        one, one_grad = fs.elbo_and_grad(model, X, Y, num_data=40, jitter=JITTER, sampled=J)
        other, other_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER, sampled=J)
        assert fs.elbo(model, X, Y, num_data=40, jitter=JITTER, sampled=J) == pytest.approx(
            one, rel=1e-12
        )
        found.append(
            [np.append(flat(model, one_grad), one), np.append(flat(model, other_grad), other)]
        )
    mean = np.mean(found, axis=0)
    np.testing.assert_allclose(mean[0], np.append(flat(model, grad), value), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(mean[1], np.append(flat(model, kl_grad), kl), rtol=1e-10, atol=1e-10)
    assert S == M2 or np.ptp([f[0][-1] for f in found]) > 0.01


@pytest.mark.parametrize("sampled", [np.array([1, 3, 1, 1]), np.array([2], np.uint8), 3], ids=str)
def test_gradients_are_those_of_the_estimate(rng, sampled):
    """Repeated rows of a given array count repeatedly."""
    model, X, Y = problem(rng)
    J = sampled if np.ndim(sampled) else np.random.default_rng(5).choice(M2, sampled, replace=False)

    def definition(m):
        stack = np.concatenate([m.inducing.Z, m.inducing.O])
        whole = definitions.elbo(fs.replace(m, inducing=stack), X, Y, 2.0, JITTER)
        K, w = definitions.blocks(m.covariance, stack, X, JITTER).Kuu, m.posterior.weights_v
        C = K[M:, M:] - K[M:, :M] @ linear_algebra.solve(K[:M, :M], K[:M, M:])
        return whole + 0.5 * (w @ C @ w) - 0.5 * M2 / len(J) * (w[J] @ (C @ w)[J])

    value, grad = fs.elbo_and_grad(
        model, X, Y, num_data=2 * N, jitter=JITTER, sampled=sampled, rng=5
    )
    assert value == pytest.approx(float(definition(model).real), rel=1e-10)
    assert_gradient(definition, model, grad, rng)


@pytest.mark.parametrize("P", [None, 2])
def test_only_what_Z_leaves_is_estimated(rng, P):
    """Where Z has all rows of O, C_vv is zero, so every choice of columns gives the same."""
    model, X, Y = problem(rng, P, covariance=fs.Matern52(1.1, 0.7))
    model = fs.records.replace_at(model, "inducing.O", model.inducing.Z[:M2].copy())
    exact, exact_grad = fs.elbo_and_grad(model, X, Y, jitter=1e-9, wrt=("posterior",))
    for J in range(M2):
        one, grad = fs.elbo_and_grad(
            model, X, Y, jitter=1e-9, wrt=("posterior",), sampled=np.array([J])
        )
        assert one == pytest.approx(exact, rel=1e-6)
        np.testing.assert_allclose(
            grad.posterior.weights_v, exact_grad.posterior.weights_v, rtol=1e-6, atol=1e-6
        )


@pytest.mark.parametrize("P", [None, 2])
def test_runs_of_rows_add_up(rng, tune, P):
    model, X, Y = problem(rng, P, M2=11)
    whole = [
        fs.elbo_and_grad(model, X, Y, jitter=JITTER, sampled=sampled)
        for sampled in (None, np.arange(7))
    ]
    tune(decoupled_run_numbers=3 * N, decoupled_form_rows=4)
    for (value, grad), sampled in zip(whole, (None, np.arange(7)), strict=True):
        again, again_grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER, sampled=sampled)
        assert again == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(
            flat(model, again_grad), flat(model, grad), rtol=1e-9, atol=1e-10
        )


def test_only_gradients_in_wrt_are_returned(rng):
    model, X, Y = problem(rng)
    _, whole, X_bar = fs.elbo_and_grad(model, X, Y, jitter=JITTER, inputs=True)
    paths = [path for path, _, _ in fs.records.leaves(model)]
    for wrt in (
        *((path,) for path in paths),
        ("inducing",),
        ("posterior",),
        ("covariance", "posterior.weights_v"),
        (),
    ):
        value, some, bar = fs.elbo_and_grad(model, X, Y, jitter=JITTER, wrt=wrt, inputs=True)
        np.testing.assert_allclose(bar, X_bar, rtol=1e-11, atol=1e-12)
        found = {path: bar for path, _, bar in fs.records.leaves(some) if bar is not None}
        assert set(found) == {
            path for path in paths if any(f"{path}.".startswith(f"{name}.") for name in wrt)
        }
        for path, _, exact in fs.records.leaves(whole):
            if path in found:
                np.testing.assert_allclose(found[path], exact, rtol=1e-10, atol=1e-11, err_msg=path)


def test_data_terms_of_shards_and_the_kl_term_make_the_bound(rng):
    model, X, Y = problem(rng)
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER)
    shards = [
        fs.bounds.data_term_and_grad(model, X[at], Y[at], jitter=JITTER)
        for at in (slice(0, 5), slice(5, N))
    ]
    assert sum(data for data, _ in shards) - kl == pytest.approx(value, rel=1e-12)
    total = sum(flat(model, one) for _, one in shards) - flat(model, kl_grad)
    np.testing.assert_allclose(total, flat(model, grad), rtol=1e-10, atol=1e-11)


def test_nothing_is_as_large_as_the_square_of_the_second_set(rng, tune):
    largest = []

    class Watched(fs.RBF):
        def matrix(self, X1, X2=None):
            K = super().matrix(X1, X2)
            largest.append(K.size)
            return K

    size = 300
    model, X, Y = problem(rng, M2=size, covariance=fs.records.record(Watched)(1.0, 0.8))
    tune(decoupled_form_rows=16)
    fs.elbo_and_grad(model, X, Y)
    fs.natural_step(model, X, Y, sampled=4, rng=0)
    fs.predict_f(model, X)
    fs.predict_f(model, X, full_cov=True)
    assert len(largest) > 30 and max(largest) == 16 * size
    largest.clear()
    fs.elbo_and_grad(model, X, Y, sampled=7, rng=0)
    assert max(largest) == N * size


def test_bound_is_that_of_decoupled_at_the_weights_of_its_mean(rng):
    """``Orthogonal`` with the prior covariance of v also has the same bound and predictions."""
    model, X, Y = problem(rng)
    K = model.covariance.Kuu(model.inducing) + JITTER * np.eye(M + M2)
    L, C = np.linalg.cholesky(K), K[M:, M:] - K[M:, :M] @ np.linalg.solve(K[:M, :M], K[:M, M:])
    q = model.posterior
    u = L[:M, :M] @ q.mean_u, L[:M, :M] @ np.tril(q.scale_tril_u)
    for same in (
        fs.posteriors.Decoupled(*u, C @ q.weights_v),
        fs.posteriors.Orthogonal(*u, C @ q.weights_v, np.linalg.cholesky(C)),
    ):
        other = fs.replace(model, posterior=same)
        for bound in (fs.elbo, fs.predict_log_density):
            np.testing.assert_allclose(
                bound(other, X, Y, jitter=JITTER), bound(model, X, Y, jitter=JITTER), rtol=1e-9
            )
        grads = [
            fs.elbo_and_grad(m, X, Y, jitter=JITTER)[1].likelihood.variance for m in (model, other)
        ]
        assert grads[0] == pytest.approx(grads[1], rel=1e-9)


@pytest.mark.parametrize("natural", [None, 0.3])
def test_training_draws_new_columns_at_each_step(rng, natural, tmp_path):
    model, X, Y = problem(rng, M2=9)
    trained, info = fs.fit(
        model, X, Y, steps=60, batch_size=6, rng=0, sampled=3, natural_step_size=natural
    )
    assert np.mean(info.values[-10:]) > np.mean(info.values[:10])
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(trained), fs.records.leaves(model), strict=True
    ):
        assert (np.asarray(a) != b).any(), path
    path, options = (
        tmp_path / "c.npz",
        {
            "batch_size": 6,
            "sampled": 3,
            "natural_step_size": natural,
        },
    )
    half, _ = fs.fit(model, X, Y, steps=30, rng=0, checkpoint=path, **options)
    again, _ = fs.fit(half, X, Y, steps=60, resume=path, **options)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(again), fs.records.leaves(trained), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)


def test_the_draw_is_without_replacement_and_follows_the_seed(rng):
    q = problem(rng, M2=50)[0].posterior
    first, again, other = (q.draw("sampled", 20, M + 50, np.float64, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (
        len(set(first)) == 20 and set(first) != set(other) and 0 <= min(first) and max(first) < 50
    )


@pytest.mark.parametrize("sampled", [None, 8])
def test_float32_is_as_accurate_as_numpy(rng, sampled):
    """Tolerance from the definition in float32, at a size at which solves matter."""

    def plain(dtype, m, X, Y):
        m, X = fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], m), X.astype(dtype)
        K = definitions.blocks(m.covariance, m.inducing.Z, X, JITTER)
        of_O = definitions.blocks(m.covariance, m.inducing.O, X, JITTER).Kuf
        Kuv = definitions.blocks(m.covariance, m.inducing.Z, m.inducing.O, JITTER).Kuf
        L, q = np.linalg.cholesky(K.Kuu), m.posterior
        Lam, w = np.linalg.solve(L, K.Kuf), q.weights_v
        mean = q.mean_u @ Lam + w @ of_O - np.linalg.solve(L, Kuv @ w) @ Lam + m.mean.value
        return mean, K.kff - (Lam**2).sum(0) + ((np.tril(q.scale_tril_u).T @ Lam) ** 2).sum(0)

    def draw():
        model, X, Y = problem(rng, M2=30, covariance=fs.RBF(1.0, 0.8))
        narrow, X32 = (
            fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model),
            X.astype(np.float32),
        )
        _, grad, X_bar = fs.elbo_and_grad(
            narrow, X32, Y.astype(np.float32), inputs=True, sampled=sampled, rng=0
        )
        assert {a.dtype for a in (X_bar, *(bar for _, _, bar in fs.records.leaves(grad)))} == {
            np.dtype(np.float32)
        }
        found = fs.predict_f(narrow, X32, jitter=JITTER)
        return by_name(
            ("mean", "var"),
            found,
            plain(np.float32, narrow, X32, Y),
            plain(np.float64, narrow, X32, Y),
        )

    assert_within_budget(draw, problems=9)


def test_bad_input(rng):
    model, X, Y = problem(rng)
    blocks = model.covariance.blocks(model.inducing, X)
    whitened = fs.replace(
        model, inducing=model.inducing.Z, posterior=fs.Whitened(np.zeros(M), np.eye(M))
    )
    for call, error, message in (
        (lambda: fs.elbo(model, X, Y, sampled=5), ValueError,
         "`sampled` is 5, but `inducing.O` has 4 rows; give at most that"),
        (lambda: fs.elbo(model, X, Y, sampled=0), ValueError,
         "`sampled` must be a whole number of at least 1, got 0"),
        (lambda: fs.elbo(model, X, Y, sampled=2.5), ValueError, "`sampled` must be a whole number"),
        (lambda: fs.elbo(model, X, Y, sampled=[0, 4]), ValueError,
         r"row numbers of `inducing.O`, 0 to 3, .* from 0 to 4"),
        (lambda: fs.elbo(model, X, Y, sampled=np.zeros((2, 2), int)), ValueError,
         r"an array \(S,\) .* shape \(2, 2\)"),
        (lambda: fs.elbo(model, X, Y, sampled=[0.0, 1.0]), ValueError,
         "got an array of shape .* and dtype float64"),
        (lambda: fs.elbo(model, X, Y, sampled=np.zeros(0, int)), ValueError,
         r"got an array of shape \(0,\)"),
        (lambda: fs.elbo(model, X, Y, probes=3), TypeError,
         "`probes` is no random quantity of a DecoupledWeights posterior"),
        (lambda: fs.fit(model, X, Y, steps=2, sampled=5), ValueError,
         "`sampled` is 5, but `inducing.O` has 4 rows"),
        (lambda: fs.elbo(whitened, X, Y, sampled=2), TypeError,
         "`sampled` is no random quantity of a Whitened posterior"),
        (lambda: fs.natural_step(whitened, X, Y, sampled=2), TypeError,
         "`sampled` is no random quantity of a Whitened"),
        (lambda: fs.fit(whitened, X, Y, steps=2, sampled=2), TypeError,
         "`sampled` is no random quantity of a Whitened"),
        (lambda: fs.bounds.elbo_and_grad_from_blocks(
            blocks, model.posterior, model.likelihood, Y, sampled=2
         ), TypeError,
         "`sampled` avoids computing all columns of K_vv, but blocks already hold them"),
        (lambda: fs.elbo(fs.records.replace_at(model, "inducing.O", model.inducing.O[:3]), X, Y),
         ValueError,
         r"`posterior` has weights_v \(4,\), but that set has 3 inducing inputs"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            call()
