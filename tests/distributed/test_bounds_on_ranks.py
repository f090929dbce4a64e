"""Bounds and natural steps on several ranks are those of one process, bits equal on all ranks, and one sum is all it takes."""

import numpy as np
import pytest
from support.posterior_problems import EVERY, JITTER, PAIRS
from support.rank_problems import assert_same_on_all_and_close, ends, on_ranks, uneven

import fastsvgp as fs

N, D, M = 23, 2, 6
SIZES = 1, 2, 3, 5
CONJUGATE = [
    name
    for name in EVERY
    if name in ("whitened", "marginal", "absorbed-sites", "dual-sites", *PAIRS)
]
LIKELIHOODS = {  # and outputs
    "gaussian": (fs.Gaussian(0.3), (2,)),
    "probit": (fs.BernoulliProbit(), ()),
    "logit": (fs.BernoulliLogit(), (2,)),
    "poisson": (fs.Poisson(exposure=1.7), (2,)),
    "laplace": (fs.Laplace(0.6), ()),
    "student_t": (fs.StudentT(0.7, df=3.0), ()),
    "robust_max": (fs.RobustMax(num_classes=3), (3,)),
    "softmax": (fs.Softmax(num_classes=3, num_samples=32), (3,)),
}
MEANS = {
    "none": lambda P: None,
    "constant": lambda P: fs.ConstantMean(np.linspace(0.1, 0.3, *P) if P else 0.2),
    "linear": lambda P: fs.LinearMean(np.full((*P, D), 0.3), np.full(P, 0.1) if P else 0.1),
}


def problem(rng, posterior="whitened", likelihood="gaussian", mean="constant", rows=N):
    """``(model, X, Y, options)``."""
    likelihood, P = LIKELIHOODS[likelihood]
    covariance, Z = fs.RBF(1.3, np.array([0.9, 1.2])), rng.uniform(-2, 2, (M, D))
    inducing = fs.InducingPair(Z[: M - 2], Z[M - 2 :]) if posterior in PAIRS else Z
    A = covariance.Kuu(inducing) + JITTER * np.eye(M)
    q = EVERY[posterior].make(rng, A, P)
    model = fs.SVGP(covariance, inducing, q, likelihood, MEANS[mean](P))
    Y = rng.integers(0, 2, (rows, *(() if likelihood.num_latent else P))).astype(float)
    more = (
        {}
        if EVERY[posterior].probes is None
        else {"probes": EVERY[posterior].random(rng, M)["probes"]}
    )
    return model, rng.uniform(-2, 2, (rows, D)), Y, {"jitter": JITTER} | more


@pytest.mark.parametrize("posterior", EVERY)
@pytest.mark.parametrize("size", SIZES)
def test_every_posterior(rng, posterior, size):
    model, X, Y, options = problem(rng, posterior)
    options |= {"num_data": 2.5 * N, "inputs": False}
    expected = fs.elbo_and_grad(model, X, Y, **options)
    found = on_ranks(size, lambda group: fs.elbo_and_grad(model, X, Y, group=group, **options))
    assert_same_on_all_and_close(found, expected, 1e-12)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("mean", MEANS)
def test_every_likelihood_and_mean_on_shards_of_other_sizes(rng, likelihood, mean):
    model, X, Y, options = problem(rng, "whitened", likelihood, mean)
    weights, ends = rng.uniform(0.5, 2, N), uneven(3, N)
    for more in ({}, {"weights": weights}):
        expected = fs.elbo_and_grad(model, X, Y, num_data=70, **options, **more)

        def shard(group, more=more):
            at = slice(ends[group.rank], ends[group.rank + 1])
            own = {name: value[at] for name, value in more.items()}
            return fs.elbo_and_grad(model, X[at], Y[at], num_data=70, group=group, **options, **own)

        assert_same_on_all_and_close(on_ranks(3, shard, "own"), expected, 1e-12)


def test_the_value_alone_and_gradients_in_inputs(rng):
    model, X, Y, options = problem(rng)
    value, grad, X_bar = fs.elbo_and_grad(
        model, X, Y, inputs=True, wrt=("posterior.mean",), **options
    )

    def both(group):
        return (
            fs.elbo(model, X, Y, group=group, **options),
            fs.elbo_and_grad(
                model, X, Y, inputs=True, wrt=("posterior.mean",), group=group, **options
            ),
        )

    found = on_ranks(2, both)
    assert found[0][0] == found[1][0] == pytest.approx(value, rel=1e-12)
    assert found[0][1][1].inducing is None
    np.testing.assert_allclose(found[0][1][1].posterior.mean, grad.posterior.mean, rtol=1e-11)
    np.testing.assert_allclose(np.concatenate([one[1][2] for one in found]), X_bar, rtol=1e-12)


@pytest.mark.parametrize("posterior", CONJUGATE)
@pytest.mark.parametrize("size", SIZES)
def test_natural_steps(rng, posterior, size):
    model, X, Y, options = problem(rng, posterior)
    expected = fs.natural_step(model, X, Y, step_size=0.4, **options)
    found = on_ranks(
        size, lambda group: fs.natural_step(model, X, Y, step_size=0.4, group=group, **options)
    )
    for one in found:
        assert one[1].negative == expected[1].negative and one[1].value == pytest.approx(
            expected[1].value, rel=1e-12
        )
    assert_same_on_all_and_close([one[0] for one in found], expected[0], 1e-11)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_natural_steps_with_a_gradient(rng, likelihood, monotone):
    model, X, Y, options = problem(rng, "whitened", likelihood)
    options |= {"step_size": 0.5, "monotone": monotone, "num_data": 40}
    expected = fs.natural_step_and_grad(model, X, Y, **options)
    found = on_ranks(3, lambda group: fs.natural_step_and_grad(model, X, Y, group=group, **options))
    assert all(one[1].step_size == expected[1].step_size for one in found)
    assert_same_on_all_and_close(
        [(one[0], *one[2:]) for one in found], (expected[0], *expected[2:]), 1e-11
    )


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("size", SIZES)
def test_collapsed_bounds(rng, size, outputs):
    model, X, _, _ = problem(rng)
    Y, weights, ends = rng.standard_normal((N, *outputs)), rng.uniform(0.5, 2, N), uneven(size, N)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2, fs.ConstantMean(0.3))
    calls = fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp
    for more in ({}, {"weights": weights}):
        expected = [call(sgpr, X, Y, **more) for call in calls]

        def shard(group, more=more):
            at = slice(ends[group.rank], ends[group.rank + 1])
            own = {name: value[at] for name, value in more.items()}
            return [call(sgpr, X[at], Y[at], group=group, **own) for call in calls]

        assert_same_on_all_and_close(on_ranks(size, shard, "own"), expected, 1e-10)
        found = on_ranks(
            size, lambda group, more=more: [call(sgpr, X, Y, group=group, **more) for call in calls]
        )
        assert_same_on_all_and_close(found, expected, 1e-10)


GIVEN = {"optimal": (), "mean": ("mean_v",), "mean-and-factor": ("mean_v", "scale_tril_v")}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("size", SIZES)
def test_collapsed_bounds_of_two_sets(rng, size, outputs, given):
    model, X, _, _ = problem(rng, "WhitenedOrthogonal")
    Y, weights, ends = rng.standard_normal((N, *outputs)), rng.uniform(0.5, 2, N), uneven(size, N)
    q = {
        "mean_v": rng.standard_normal((*outputs, 2)),
        "scale_tril_v": np.tril(rng.uniform(0.5, 1, (*outputs, 2, 2))),
    }
    q = {name: q[name] for name in GIVEN[given]}
    two = fs.OrthogonalSGPR(model.covariance, model.inducing, 0.2, mean=fs.ConstantMean(0.3), **q)
    calls = fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp
    for more in ({}, {"weights": weights}):
        expected = [call(two, X, Y, **more) for call in calls]

        def shard(group, more=more):
            at = slice(ends[group.rank], ends[group.rank + 1])
            own = {name: value[at] for name, value in more.items()}
            return [call(two, X[at], Y[at], group=group, **own) for call in calls]

        assert_same_on_all_and_close(on_ranks(size, shard, "own"), expected, 1e-10)
        found = on_ranks(
            size, lambda group, more=more: [call(two, X, Y, group=group, **more) for call in calls]
        )
        assert_same_on_all_and_close(found, expected, 1e-10)


def test_weights_that_leave_out_all_rows_of_a_part(rng):
    model, X, Y, options = problem(rng)
    weights = np.r_[np.zeros(9), np.ones(N - 9)]
    Y[:9], sgpr = np.nan, fs.SGPR(model.covariance, model.inducing, 0.2)
    two = fs.OrthogonalSGPR(model.covariance, fs.InducingPair(X[:3].copy(), X[3:5].copy()), 0.2)
    for call in (
        lambda **g: fs.elbo_and_grad(model, X, Y, weights=weights, num_data=40, **options, **g),
        lambda **g: fs.collapsed_bound_and_grad(sgpr, X, Y, weights=weights, **g),
        lambda **g: fs.collapsed_bound_and_grad(two, X, Y, weights=weights, **g),
    ):
        assert_same_on_all_and_close(
            on_ranks(3, lambda group, call=call: call(group=group)), call(), 1e-11
        )


def test_fewer_rows_that_count_than_ranks_and_weights_of_other_rows(rng):
    model, X, Y, options = problem(rng)
    cases = (
        (np.eye(N)[3], "3 ranks, and 1 rows that count"),
        (
            np.ones(N - 1),
            "same number of rows, got 23 and 22",
        ),
    )
    for weights, message in cases:
        for error in ends(
            3,
            lambda group, weights=weights: fs.elbo(
                model, X, Y, weights=weights, **options, group=group
            ),
        ):
            assert isinstance(error, ValueError) and message in str(error)


def test_float32_stays_float32(rng):
    model, X, Y, options = problem(rng)
    model = fs.tree_map(np.float32, model)
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    expected = fs.elbo_and_grad(model, X, Y, **options)
    assert_same_on_all_and_close(
        on_ranks(3, lambda group: fs.elbo_and_grad(model, X, Y, group=group, **options)),
        expected,
        1e-4,
    )
    sgpr = fs.SGPR(model.covariance, model.inducing, np.float32(0.2))
    expected = fs.collapsed_bound_and_grad(sgpr, X, Y)
    found = on_ranks(3, lambda group: fs.collapsed_bound_and_grad(sgpr, X, Y, group=group))
    assert_same_on_all_and_close(found, expected, 1e-3)
    pair = fs.InducingPair(sgpr.inducing[:4].copy(), sgpr.inducing[4:].copy())
    two = fs.OrthogonalSGPR(
        sgpr.covariance, pair, np.float32(0.2), np.full((2, 2), 0.3, np.float32)
    )
    expected = fs.collapsed_bound_and_grad(two, X, Y)
    found = on_ranks(3, lambda group: fs.collapsed_bound_and_grad(two, X, Y, group=group))
    assert_same_on_all_and_close(found, expected, 1e-4)


def test_drawn_probes_are_the_same_on_all_ranks(rng):
    model, X, Y, _ = problem(rng, "relaxed")
    found = on_ranks(
        3,
        lambda group: fs.elbo_and_grad(
            model, X, Y, probes=4, rng=np.random.default_rng(group.rank), group=group
        ),
    )
    expected = fs.elbo_and_grad(
        model, X, Y, probes=4, rng=int(np.random.default_rng(0).integers(2**53))
    )
    assert_same_on_all_and_close(found, expected, 1e-12)


def test_one_rank_that_fails_ends_all(rng):
    """In each of two sums, or before the first."""
    model, X, Y, _ = problem(rng, "relaxed", likelihood="probit", mean="none")
    covariance, Z = model.covariance, model.inducing
    two = fs.OrthogonalSGPR(covariance, fs.InducingPair(Z[: M - 2], Z[M - 2 :]), 0.2)
    q = fs.Whitened(np.zeros((D, M)), np.stack([np.eye(M)] * D))
    layers = (
        fs.Layer(covariance, Z, q),
        fs.Layer(covariance, Z, fs.Whitened(q.mean[0], q.scale_tril[0])),
    )
    deep = fs.DeepGP(layers, fs.Gaussian(0.1))
    calls = {
        "collapsed": lambda X, group: fs.collapsed_bound(two, X, Y, group=group),
        "optimum": lambda X, group: fs.optimal_svgp(two, X, Y, group=group),
        "direction": lambda X, group: fs.likelihood_direction(model, X, Y, group=group),
        "layers": lambda X, group: fs.elbo(deep, X, Y, rng=0, group=group),
        "step of layers": lambda X, group: fs.natural_step(
            deep, X, Y, rng=0, monotone=True, group=group
        ),
    }
    for name, call in calls.items():
        bad = X.copy()
        bad[12] = np.nan
        first, second, third = ends(3, lambda group, call=call, bad=bad: call(bad, group))
        assert isinstance(second, ValueError) and "index (12, 0)" in str(second), name
        for other in (first, third):
            assert (
                isinstance(other, fs.RemoteError)
                and other.rank == 1
                and "index (12, 0)" in other.message
            ), name


class Counting:
    """A group that counts what it sends."""

    def __init__(self, group):
        self.group, self.rank, self.size, self.rows, self.sent = (
            group,
            group.rank,
            group.size,
            group.rows,
            [],
        )

    def sum(self, buffer):
        self.sent.append(len(buffer))
        self.group.sum(buffer)

    def broadcast(self, buffer):
        self.group.broadcast(buffer)


def test_one_sum_a_step_of_as_few_numbers_as_there_are(rng):
    """Five words, the value, and each wanted leaf, triangular factors packed.

    Outside of a training, whose ranks have agreed at its start, five words say before that all make
    the same call; in it, before the first two steps.
    """
    model, X, Y, options = problem(rng, likelihood="probit", mean="none")
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2)
    two = fs.OrthogonalSGPR(
        model.covariance, fs.InducingPair(X[: M - 2].copy(), X[M - 2 : M].copy()), 0.2
    )
    q, (covariance, Z) = (
        fs.Whitened(np.zeros((D, M)), np.stack([np.eye(M)] * D)),
        (
            model.covariance,
            model.inducing,
        ),
    )
    deep = fs.DeepGP(
        (fs.Layer(covariance, Z, q), fs.Layer(covariance, Z, model.posterior)), model.likelihood
    )

    def sent(group):
        group, counts = Counting(group), []
        for call in (
            lambda: fs.elbo_and_grad(model, X, Y, group=group, **options),
            lambda: fs.natural_step_and_grad(model, X, Y, group=group, **options),
            lambda: fs.collapsed_bound_and_grad(sgpr, X, Y, group=group),
            lambda: fs.collapsed_bound_and_grad(two, X, Y, group=group),
            lambda: fs.elbo_and_grad(deep, X, Y, group=group, rng=0),
        ):
            call()
            group.sent.clear()
            call()
            assert group.sent[0] == 5
            counts.append(group.sent[1:])
        group.sent.clear()
        fs.fit(model, X, Y, steps=9, rng=0, group=group)
        counts.append(group.sent[-8:])
        fs.fit(sgpr, X, Y, steps=2, group=group)
        counts.append(group.sent[-5:])
        return counts

    triangle, rest = M * (M + 1) // 2, M * D + D + 1
    step, collapsed = 5 + 1 + triangle + M + rest, [5 + triangle + M + 3, 5 + 1 + rest + 1]
    two_sets, layers = (
        [5 + triangle + M, 5 + 1 + rest + 1],
        [5 + 1 + (D + 1) * (triangle + M) + 2 * rest],
    )
    at_the_end = [5, collapsed[0]]  # the optimal q of the trained SGPR: a call of its own
    trained = [*collapsed, collapsed[0], *at_the_end]
    due = [
        [step],
        [5 + 2 + triangle + M, 5 + 1 + rest],
        collapsed,
        two_sets,
        layers,
        [step] * 8,
        trained,
    ]
    assert on_ranks(2, sent) == [due, due]
