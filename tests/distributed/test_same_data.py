"""Data that differ between ranks: argument and ranks are named; unused numbers can differ."""

import json

import numpy as np
import pytest
from support.rank_problems import counting, ends, on_ranks

import fastsvgp as fs
from fastsvgp.distributed import same_data
from fastsvgp.distributed.protocol import Disagreement
from fastsvgp.errors import RemoteError

N, D, M = 700, 3, 6  # more rows than a digest at each call reads
CALLS = {
    "elbo": lambda model, X, Y, weights, group: fs.elbo(model, X, Y, weights=weights, group=group),
    "step": lambda model, X, Y, weights, group: fs.natural_step(
        model, X, Y, weights=weights, group=group
    ),
    "collapsed": lambda model, X, Y, weights, group: fs.collapsed_bound_and_grad(
        fs.SGPR(model.covariance, model.inducing, 0.3), X, Y, weights=weights, group=group
    ),
    "fit": lambda model, X, Y, weights, group: fs.fit(
        model, X, Y, weights=weights, steps=2, batch_size=100, rng=0, group=group
    ),
}
every_call = pytest.mark.parametrize("call", CALLS)


def problem(rng):
    X = rng.uniform(-2, 2, (N, D))
    q = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, fs.Gaussian(0.1))
    return model, {"X": X, "Y": np.sin(X[:, 0]), "weights": rng.uniform(0.5, 2.0, N)}


@every_call
@pytest.mark.parametrize("name", ["X", "Y", "weights"])
def test_differing_numbers_name_the_argument_and_the_ranks(rng, call, name):
    """Each rank has its own shuffle; or ranks 1 and 3 differ from the others."""
    model, data = problem(rng)

    def shuffled(group):
        mine = data | {name: np.random.default_rng(group.rank).permutation(data[name])}
        return CALLS[call](model, **mine, group=group)

    def two(group):
        mine = data | {name: data[name] * (1 + 1e-6 * (group.rank % 2))}
        return CALLS[call](model, **mine, group=group)

    for work, who in ((shuffled, "ranks 1, 2 and 3"), (two, "ranks 1 and 3")):
        for error in ends(4, work):
            assert isinstance(error, Disagreement)
            assert f"`{name}` holds other numbers on {who} than on rank 0" in str(
                error
            ) and 'rows="own"' in str(error)
    for error in ends(
        7, lambda group: CALLS[call](model, **(data | {name: data[name] + group.rank}), group=group)
    ):
        assert "on ranks 1, 2, 3 and 3 more than" in str(error)


@every_call
@pytest.mark.parametrize("here, there", [(0, 0.5), (0.5, 0)])
def test_weights_that_are_zero_elsewhere_are_named_themselves(rng, call, here, there):
    """Other rows of X and Y count then, although X and Y are the same."""
    model, data = problem(rng)

    def work(group):
        weights = data["weights"].copy()
        weights[0] = there if group.rank else here
        return CALLS[call](model, data["X"], data["Y"], weights, group)

    for error in ends(2, work):
        assert isinstance(
            error, Disagreement
        ) and "`weights` holds other numbers on rank 1 than on rank 0" in str(error)


@every_call
def test_the_same_data_are_taken_wherever_they_lie(rng, tmp_path, call):
    """In memory, in one file or one per rank, with strides, as a list."""
    model, data = problem(rng)
    np.save(tmp_path / "x0.npy", data["X"][:300])
    np.save(tmp_path / "x1.npy", data["X"][300:])
    np.save(tmp_path / "x.npy", data["X"])
    kinds = [
        data["X"].copy(),
        np.load(tmp_path / "x.npy", mmap_mode="r"),
        fs.records.row_files([tmp_path / "x0.npy", tmp_path / "x1.npy"]),
        np.asfortranarray(data["X"]),
    ]
    expected = CALLS[call](model, **data, group=None)
    found = on_ranks(
        4, lambda group: CALLS[call](model, **(data | {"X": kinds[group.rank]}), group=group)
    )
    value = {"elbo": lambda end: end, "fit": lambda end: end[1].values[-1]}.get(
        call, lambda end: end[0]
    )
    if call != "step":
        assert [value(end) for end in found] == [pytest.approx(value(expected), rel=1e-9)] * 4
    lists = data | {"Y": data["Y"].tolist()}
    assert all(
        not isinstance(end, Exception)
        for end in ends(2, lambda group: CALLS[call](model, **lists, group=group))
    )


@every_call
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_what_counts_nowhere_may_differ(rng, call, outputs):
    """NaN or uninitialised memory at rows and targets of weight 0."""
    model, data = problem(rng)
    Y = np.sin(data["X"][:, :2] if outputs else data["X"][:, 0])
    weights = rng.integers(0, 2, N if call == "collapsed" else Y.shape).astype(float)
    weights[0], weights[-1] = 0, 1
    if outputs:
        model = fs.replace(
            model, posterior=fs.Whitened(np.zeros((2, M)), np.stack([np.eye(M)] * 2))
        )
    absent = weights.reshape(N, -1).max(axis=1) == 0

    def work(group):
        X, mine = data["X"].copy(), Y.copy()
        X[absent], mine[weights == 0] = (
            (np.nan, np.inf, -0.0)[group.rank],
            (7.0, np.nan, 1e9)[group.rank],
        )
        return CALLS[call](model, X, mine, weights, group)

    found = ends(3, work)
    assert not any(isinstance(end, Exception) for end in found), found


@every_call
def test_shards_are_not_compared(rng, call):
    model, data = problem(rng)
    parts = [
        {name: np.array_split(array, 2)[rank] for name, array in data.items()} for rank in range(2)
    ]
    found = ends(2, lambda group: CALLS[call](model, **parts[group.rank], group=group), "own")
    assert not any(isinstance(end, Exception) for end in found), found


def test_a_cell_is_seen_as_a_training_begins(rng):
    """A training compares all numbers in memory; a bound compares 256 rows."""
    model, data = problem(rng)
    other = data["X"].copy()
    rows = np.arange(same_data.ROWS) * (N - 1) // (same_data.ROWS - 1)
    unread = int(rng.choice(np.setdiff1d(np.arange(N), rows)))
    other[unread, 1] += 1e-9

    def work(call, group):
        return CALLS[call](model, **(data | {"X": other if group.rank else data["X"]}), group=group)

    assert all(
        "`X` holds other numbers on rank 1 than" in str(error)
        for error in ends(2, lambda group: work("fit", group))
    )
    assert not any(isinstance(end, Exception) for end in ends(2, lambda group: work("elbo", group)))
    other[rows[rng.integers(len(rows))], 0] += 1e-9
    assert all(
        "`X` holds other numbers on rank 1 than" in str(error)
        for error in ends(2, lambda group: work("elbo", group))
    )


def test_digests_add_no_sum_and_no_number(rng):
    """The facts of a bound are 32 bits, whatever they contain."""
    model, data = problem(rng)

    def work(group):
        group = counting(group)
        fs.elbo(model, data["X"], data["Y"], group=group)
        first = len(group.sent)
        fs.elbo(model, data["X"], data["Y"], group=group)
        return group.sent[first:]

    assert on_ranks(2, work) == [[5, 5, 1]] * 2  # two meetings, and the value


def test_no_more_rows_are_read_than_said():
    class Noted:
        shape, dtype, read = (10**7, 2), np.dtype(float), 0

        def __len__(self):
            return 10**7

        def __getitem__(self, rows):
            assert (
                isinstance(rows, np.ndarray)
                and rows[0] == 0
                and rows[-1] == 10**7 - 1
                and (np.diff(rows) > 0).all()
            )
            self.read += len(rows)
            return np.zeros((len(rows), 2))

    for function in (same_data.digest_rows, same_data.digest_all):
        X = Noted()
        function(X, np.zeros(10**7, np.int8), None)
        assert X.read == same_data.ROWS


@pytest.mark.parametrize("rows", [1, 2, 255, 256, 257, 1000])
def test_a_digest_tells_shape_dtype_order_and_names(rng, rows):
    """For any number of rows; and JSON can hold it."""
    X, Y = rng.standard_normal((rows, 2)), rng.standard_normal(rows)
    plain = same_data.digest_all(X, Y, None)
    assert (
        json.loads(json.dumps(plain))
        == plain
        == same_data.digest_all(np.asfortranarray(X), Y.astype(">f8"), None)
    )
    others = {
        "X": [X.reshape(rows * 2, 1), X.astype(np.float32), X[:, ::-1], X + 1e-12],
        "Y": [Y[:, None], Y.astype(np.float32), Y + 1e-12, np.concatenate([Y[1:], Y[:1]])],
    }
    for name, arrays in others.items():
        for array in arrays[: None if rows > 1 else 3]:
            found = same_data.digest_all(**({"X": X, "Y": Y} | {name: array}), weights=None)
            assert same_data.differing([plain, found]) == (name, [1]), array.shape
    assert same_data.differing([plain] * 3) is None


def test_arrays_beyond_64_mib_are_not_read_as_a_whole(rng, monkeypatch):
    X, Y = rng.standard_normal((1000, 2)), rng.standard_normal(1000)
    monkeypatch.setattr(same_data, "WHOLE", X.nbytes - 1)
    found = same_data.digest_all(X, Y, None)
    assert list(found["X"]) == ["rows"] and list(found["Y"]) == ["rows", "host"]


def test_bad_arguments_keep_their_messages(rng):
    """Digests come first, and refuse nothing that the call itself names better."""
    model, data = problem(rng)
    bad = [
        ({"weights": data["weights"][:-1]}, "same number of rows"),
        ({"Y": data["Y"][:-1]}, "same number of rows"),
        ({"Y": np.array(["a"] * N)}, "`Y` must hold real numbers"),
        ({"X": data["X"][:, 0]}, "`X`"),
        ({"X": 3.0}, "`X` must have rows, got a single value"),
        ({"Y": 3.0}, "`Y` must have rows, got a single value"),
        ({"weights": -data["weights"]}, "`weights`"),
        ({"X": np.ma.masked_array(data["X"])}, "masked"),
    ]
    for change, message in bad:
        for error in ends(
            2, lambda group, change=change: fs.elbo(model, **(data | change), group=group)
        ):
            assert isinstance(error, (ValueError, TypeError, RemoteError)) and message in str(
                error
            ), (message, error)
