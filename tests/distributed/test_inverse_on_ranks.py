"""Factors of inverses that several ranks keep up to date: what decides how often is summed, and alike on all of them."""

import numpy as np
import pytest
from support.posterior_problems import EVERY, JITTER
from support.rank_problems import assert_same_on_all_and_close, distance, ends, on_ranks, uneven

import fastsvgp as fs
from fastsvgp.optim.inverse import updates as module

N, D, M = 53, 2, 6
WAYS = {
    "nats": dict(nats=0.01),
    "direction": dict(direction="likelihood"),
    "nats and direction": dict(nats=0.01, direction="likelihood"),
    "a schedule": dict(nats=0.01, step_size=fs.schedules.log_linear(1e-2, 1.0, 5)),
}


def problem(rng, kind=fs.Relaxed):
    """``(model, X, Y)``."""
    X = rng.uniform(-2, 2, (N, D))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    third = np.ones(M) if kind is fs.Relaxed else np.eye(M)
    # not the prior, whose gradient in Z is rounding alone
    q = kind(np.linspace(-0.5, 0.5, M), 0.8 * third, np.eye(M))
    return fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, fs.Gaussian(0.1)), X, Y


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_the_trajectory_is_that_of_one_process(rng, way, size):
    model, X, Y = problem(rng)
    steps = 200 if size == 3 else 40
    options = {
        "steps": steps,
        "batch_size": 17,
        "rng": 5,
        "inverse_updates": fs.inverse_updates(**WAYS[way]),
    }
    updates, slacks = [], []

    def note(step, value, info):
        updates.append(info.inverse.steps)
        slacks.append(info.inverse.gap)

    expected, info = fs.fit(model, X, Y, callback=note, **options)
    found = on_ranks(size, lambda group: fs.fit(model, X, Y, group=group, callback=note, **options))
    assert updates[steps:] == updates[:steps] and max(updates) > 0
    np.testing.assert_allclose(slacks[steps:], slacks[:steps], rtol=1e-10)
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert distance(found[0][0], expected) < 1e-11
    np.testing.assert_allclose(found[-1][1].values, info.values, rtol=1e-11)


def test_nats_of_shards_and_of_another_posterior(rng):
    model, X, Y = problem(rng, fs.InverseFreeWhitened)
    at, options = (
        uneven(3, N),
        {
            "steps": 20,
            "batch_size": N,
            "rng": 5,
            "inverse_updates": fs.inverse_updates(nats=0.01),
        },
    )

    def train(group):
        own = slice(at[group.rank], at[group.rank + 1])
        return fs.fit(model, X[own], Y[own], group=group, **options)[0]

    expected, _ = fs.fit(model, X, Y, **options)
    found = on_ranks(3, train, "own")
    assert all(distance(other, found[0]) == 0 for other in found)
    # a factor of an inverse multiplies rounding by the condition of Kuu
    assert distance(found[0], expected) < 1e-9


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_direction_of_a_likelihood(rng, size, near):
    """Where the factor is far off it is the gradient, with nothing for the factor all the same."""
    model, X, Y = problem(rng)
    q = EVERY["relaxed"].make(rng, model.covariance.Kuu(model.inducing) + JITTER * np.eye(M), ())
    model = fs.replace(
        model, posterior=fs.replace(q, inverse_tril=q.inverse_tril if near else 0.01 * np.eye(M))
    )
    options = {"num_data": 80, "jitter": JITTER}
    value, direction = fs.likelihood_direction(model, X, Y, **options)
    assert (direction.posterior.inverse_tril is None) == near
    expected = value, fs.replace_at(direction, "posterior.inverse_tril", None)
    found = on_ranks(
        size, lambda group: fs.likelihood_direction(model, X, Y, group=group, **options)
    )
    assert all(one[1].posterior.inverse_tril is None for one in found)
    assert_same_on_all_and_close(found, expected, 1e-12)


@pytest.mark.parametrize("at", [1, 2, 3, 6, 11])
def test_one_rank_that_fails_amid_updates_ends_all(rng, monkeypatch, at):
    """Where the others are in a sum that the bound knows nothing of."""
    model, X, Y = problem(rng)
    plain, calls = module.variance_gap, []

    def hungry(*arguments, **options):
        calls.append(0)
        if len(calls) == at:
            raise MemoryError("8 GiB")
        return plain(*arguments, **options)

    monkeypatch.setattr(module, "variance_gap", hungry)
    options = {
        "steps": 10,
        "batch_size": 17,
        "rng": 0,
        "inverse_updates": fs.inverse_updates(nats=0.01),
    }
    errors = ends(2, lambda group: fs.fit(model, X, Y, group=group, **options))
    assert sorted(type(error).__name__ for error in errors) == ["MemoryError", "RemoteError"]
    assert all("8 GiB" in str(error) for error in errors)


@pytest.mark.parametrize("read", [2, 3, 4, 5])
def test_rows_that_cannot_be_read_once(rng, read):
    """The second time is amid the first step, whose first sum is that of an update; others begin with a bound."""
    model, X, Y = problem(rng)

    class Failing:
        shape, dtype, reads = X.shape, X.dtype, 0

        def __len__(self):
            return N

        def __getitem__(self, rows):
            self.reads += 1
            if self.reads == read:
                raise OSError("gone")
            return X[rows]

    options = {
        "steps": 10,
        "batch_size": 18,
        "rng": 0,
        "inverse_updates": fs.inverse_updates(nats=0.01),
    }
    first, second = ends(
        2, lambda group: fs.fit(model, Failing() if group.rank else X, Y, group=group, **options)
    )
    assert isinstance(first, fs.RemoteError) and (first.rank, first.message) == (1, "OSError: gone")
    assert isinstance(second, OSError)


def test_a_callback_ends_all_after_the_same_step(rng):
    model, X, Y = problem(rng)
    options = {
        "steps": 10,
        "batch_size": 17,
        "rng": 0,
        "inverse_updates": fs.inverse_updates(nats=0.01),
    }
    found = on_ranks(
        2,
        lambda group: fs.fit(
            model, X, Y, group=group, callback=lambda step, *_: step == 3, **options
        ),
    )
    assert [(one[1].reason, one[1].steps) for one in found] == [("callback", 3)] * 2
