"""Updates of factors of inverses on several ranks: failures and ends."""

import pytest
from support.rank_models import TRAINING_ROWS as N, inverse_problem as problem
from support.rank_problems import ends, on_ranks

import fastsvgp as fs
from fastsvgp.optim.inverse import updates as module


@pytest.mark.parametrize("at", [1, 2, 3, 6, 11])
def test_failure_of_one_rank_during_updates_ends_all(rng, monkeypatch, at):
    """The other ranks are in an all-reduce of the update, not of the bound."""
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
def test_read_error_of_one_rank_ends_all(rng, read):
    """The second read is in the first step, whose first all-reduce belongs to an update."""
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
