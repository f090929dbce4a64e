"""Bounds on several ranks: gradients in inputs, seeds, failures, and the number of all-reduces."""

import numpy as np
import pytest
from support.deep_problems import JITTER, draws_for
from support.rank_models import ROWS as N, D, M, bound_problem as problem, layers_problem
from support.rank_problems import assert_same_on_all_and_close, counting, ends, on_ranks

import fastsvgp as fs


def test_value_and_gradients_in_inputs_are_those_of_one_process(rng):
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


def test_too_few_rows_and_weights_of_other_rows_are_refused(rng):
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


@pytest.mark.parametrize("kind", ["nothing", "probes", "layers"])
def test_seed_is_that_of_rank_0_if_ranks_have_none(rng, kind):
    """Also for a bound that draws nothing."""
    more = {"probes": 4} if kind == "probes" else {}
    model, X, Y, *_ = (
        layers_problem(rng) if kind == "layers" else problem(rng, "relaxed" if more else "whitened")
    )
    one, two = on_ranks(2, lambda group: fs.elbo(model, X, Y, group=group, **more))
    assert one == two
    seeds = [np.random.default_rng(rank) for rank in range(3)]
    found = on_ranks(
        3,
        lambda group: fs.elbo_and_grad(model, X, Y, rng=seeds[group.rank], group=group, **more),
    )
    seed = int(np.random.default_rng(0).integers(2**53))
    expected = fs.elbo_and_grad(model, X, Y, rng=seed, **more)
    assert_same_on_all_and_close(found, expected, 1e-11 if kind == "layers" else 1e-12)


@pytest.mark.parametrize("rows", ["all", "own"])
def test_given_draws_belong_to_the_given_rows(rng, rows):
    model, X, Y = layers_problem(rng, "three")
    draws = draws_for(rng, model, 3, N)
    options = {"wrt": ("layers.0", "likelihood"), "inputs": True, "jitter": JITTER}
    *expected, X_bar = fs.elbo_and_grad(model, X, Y, draws=draws, **options)
    cuts = [0, 2, 9, N]

    def work(group):
        at = slice(cuts[group.rank], cuts[group.rank + 1]) if rows == "own" else slice(None)
        return fs.elbo_and_grad(
            model, X[at], Y[at], draws=tuple(one[:, at] for one in draws), group=group, **options
        )

    found = on_ranks(3, work, rows)
    assert_same_on_all_and_close([one[:2] for one in found], expected, 1e-12)
    np.testing.assert_allclose(
        np.concatenate([one[2] for one in found]), X_bar, rtol=0, atol=1e-12 * np.abs(X_bar).max()
    )
    with pytest.raises(ValueError, match=r"draws\[0\]. must have shape"):
        on_ranks(
            3,
            lambda group: fs.elbo(
                model, X, Y, draws=tuple(one[:, :-1] for one in draws), group=group
            ),
        )


def test_one_rank_that_fails_ends_all(rng):
    """It fails in each of two all-reduces, or before the first."""
    model, X, Y, _ = problem(rng, "relaxed", likelihood="probit", mean="none")
    covariance, Z = model.covariance, model.inducing
    two = fs.bounds.OrthogonalSGPR(
        covariance, fs.posteriors.InducingPair(Z[: M - 2], Z[M - 2 :]), 0.2
    )
    q = fs.Whitened(np.zeros((D, M)), np.stack([np.eye(M)] * D))
    layers = (
        fs.layers.Layer(covariance, Z, q),
        fs.layers.Layer(covariance, Z, fs.Whitened(q.mean[0], q.scale_tril[0])),
    )
    deep = fs.DeepGP(layers, fs.Gaussian(0.1))
    calls = {
        "collapsed": lambda X, group: fs.collapsed_bound(two, X, Y, group=group),
        "optimum": lambda X, group: fs.optimal_svgp(two, X, Y, group=group),
        "direction": lambda X, group: fs.bounds.lsvgp_direction(model, X, Y, group=group),
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


def test_step_takes_one_all_reduce_of_the_fewest_numbers(rng):
    """The value and each requested leaf, triangular factors packed, after a meeting of the ranks.

    Another meeting comes before each call, to compare it on all ranks. In a training, whose ranks
    have agreed at its start, one comes before each command of L-BFGS, and one at the end.
    """
    model, X, Y, options = problem(rng, likelihood="probit", mean="none")
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.2)
    two = fs.bounds.OrthogonalSGPR(
        model.covariance, fs.posteriors.InducingPair(X[: M - 2].copy(), X[M - 2 : M].copy()), 0.2
    )
    q, (covariance, Z) = (
        fs.Whitened(np.zeros((D, M)), np.stack([np.eye(M)] * D)),
        (
            model.covariance,
            model.inducing,
        ),
    )
    deep = fs.DeepGP(
        (fs.layers.Layer(covariance, Z, q), fs.layers.Layer(covariance, Z, model.posterior)),
        model.likelihood,
    )

    def sent(group):
        group, counts = counting(group), []
        for call in (
            lambda: fs.elbo_and_grad(model, X, Y, group=group, **options),
            lambda: fs.optim.natural_step_and_grad(model, X, Y, group=group, **options),
            lambda: fs.collapsed_bound_and_grad(sgpr, X, Y, group=group),
            lambda: fs.collapsed_bound_and_grad(two, X, Y, group=group),
            lambda: fs.elbo_and_grad(deep, X, Y, group=group, rng=0),
        ):
            call()
            group.sent.clear()
            call()
            counts.append(list(group.sent))
            group.sent.clear()
        fs.fit(model, X, Y, steps=9, rng=0, group=group)
        counts.append(group.sent[-17:])
        fs.fit(sgpr, X, Y, steps=2, group=group)
        counts.append(group.sent[-10:])
        return counts

    triangle, rest = M * (M + 1) // 2, M * D + D + 1
    step, grad = [5, 1 + triangle + M + rest], [5, 1 + rest + 1]
    sums, two_sums = [5, triangle + M + 3], [5, triangle + M]
    optimum = sums  # a call of its own at the end computes the optimal q of the trained SGPR
    due = [
        [5, *step],
        [5, 5, 2 + triangle + M, 5, 1 + rest],
        [5, *sums, *grad],
        [5, *two_sums, *grad],
        [5, 5, 1 + (D + 1) * (triangle + M) + 2 * rest],
        [*step * 8, 5],
        [5, *sums, *grad, 5, 5, 5, *optimum],
    ]
    assert on_ranks(2, sent) == [due, due]
