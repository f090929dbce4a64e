"""Inducing inputs and lengthscales on ranks, and invalid groups."""

import dataclasses
import gc
import signal
import threading
import weakref

import numpy as np
import pytest
from support.rank_problems import Changed, ends, on_ranks

import fastsvgp as fs
from fastsvgp.distributed.protocol import Communicator

N, M = 61, 7


CHOICES = (
    lambda X, **g: fs.inducing.kmeans(X, M, rng=4, **g),
    lambda X, **g: fs.inducing.median_lengthscales(X, rng=4, **g),
)


@pytest.mark.parametrize("choose", CHOICES)
def test_of_all_rows_it_is_what_one_process_chooses(rng, choose):
    X = rng.standard_normal((N, 2))
    for found in on_ranks(3, lambda group: choose(X, group=group)):
        np.testing.assert_array_equal(found, choose(X))


def test_of_rows_of_their_own_ranks_choose_together(rng):
    """Each rank has its own cluster; all get the centres and the distances of all clusters."""
    clusters = [rng.uniform(-1, 1, (20, 2)) + [10 * r, 0] for r in range(3)]

    def choose(group):
        X = clusters[group.rank]
        return fs.inducing.kmeans(X, 9, rng=0, group=group), fs.inducing.median_lengthscales(
            X, group=group
        )

    found = on_ranks(3, choose, "own")
    for Z, lengthscales in found:
        np.testing.assert_array_equal(Z, found[0][0])
        np.testing.assert_array_equal(lengthscales, found[0][1])
        assert set(np.round(Z[:, 0] / 10)) == {0, 1, 2}
        assert lengthscales[0] > 5


def test_both_sets_of_a_pair(rng):
    X = rng.standard_normal((N, 2))
    found = on_ranks(2, lambda group: fs.inducing.kmeans(X, (4, 3), rng=0, group=group))
    np.testing.assert_array_equal(found[0].O, found[1].O)
    np.testing.assert_array_equal(found[1].Z, fs.inducing.kmeans(X, (4, 3), rng=0).Z)


def test_what_rank_0_can_not_choose_ends_all(rng):
    X = rng.standard_normal((5, 2))

    def choose(group):
        with pytest.raises((ValueError, fs.RemoteError), match="5") as caught:
            fs.inducing.kmeans(X, 9, rng=0, group=group)
        return caught.type

    assert ValueError in on_ranks(2, choose)


def nothing(buffer):
    pass


@pytest.mark.parametrize("changes, message", [
    ({"sum": nothing}, "`group.sum` does not sum"),
    ({"rows": "some"}, 'must be "all" or "own"'),
])  # fmt: skip
def test_groups_that_are_none(rng, changes, message):
    X, Y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    model = fs.SVGP(
        fs.RBF(1.0, 1.0), X[:3].copy(), fs.Whitened(np.zeros(3), np.eye(3)), fs.Gaussian(0.1)
    )

    def call(group):
        with pytest.raises(ValueError, match=message):
            fs.elbo(model, X, Y, group=Changed(group, **changes))

    on_ranks(2, call)
    one = fs.distributed.threads(1)[0]
    with pytest.raises(ValueError, match="`group.broadcast` must give each rank"):
        fs.elbo(model, X, Y, group=Changed(one, broadcast=lambda buffer: buffer.fill(2)))
    with pytest.raises(TypeError, match="lacks rank, size, rows, sum, broadcast"):
        fs.elbo(model, X, Y, group=3)


def test_threads_refuse_what_is_no_number():
    for n in (0, -1, 1.5, True, "2"):
        with pytest.raises(ValueError, match="`n` must be"):
            fs.distributed.threads(n)
    with pytest.raises(ValueError, match="`rows` must be"):
        fs.distributed.threads(2, "some")


def test_a_rank_that_leaves_ends_the_wait_of_the_others():
    def work(group):
        if group.rank == 1:
            raise KeyError("gone")
        group.sum(np.zeros(3))

    with pytest.raises(KeyError, match="gone"):
        on_ranks(3, work)


def test_a_group_that_a_rank_has_left_can_be_used_again():
    groups = fs.distributed.threads(2)
    with pytest.raises(ZeroDivisionError):
        groups.run(lambda group: 1 / group.rank)
    assert groups.run(lambda group: group.sum(np.zeros(3))) == [None] * 2


def test_ctrl_c_ends_the_threads_too():
    alive = []

    def work(group):
        alive.append(threading.current_thread())
        if group.rank == 0:
            signal.raise_signal(signal.SIGINT)  # the main thread gets it
        while True:
            group.sum(np.zeros(3))

    with pytest.raises(KeyboardInterrupt):
        on_ranks(2, work)
    assert not any(thread.is_alive() for thread in alive)


def test_ranks_in_other_calls_are_reported():
    def work(group):
        with pytest.raises(ValueError, match=r"exchange \[3, 4\] numbers"):
            group.sum(np.zeros(3 + group.rank))

    on_ranks(2, work)


def test_what_one_process_does_says_so(rng):
    group = fs.distributed.threads(1)[0]
    X, covariance, gaussian = rng.standard_normal((9, 1)), fs.RBF(1.0, 1.0), fs.Gaussian(0.1)
    Z, y, sites = X[:3].copy(), X[:, 0], fs.sites.Sites(np.zeros(9), np.ones(9))
    weights = fs.QSGP(
        fs.qsgp.InducingBasis(covariance, Z),
        fs.qsgp.ChevronWeights(np.zeros(3), np.zeros((3, 0)), np.ones(3)),
        gaussian,
    )
    svgp = fs.SVGP(covariance, Z, fs.Whitened(np.zeros(3), np.eye(3)), gaussian)
    for call, model in (
        (fs.bounds.tighter_bound, fs.SGPR(covariance, Z, 0.1)),
        (fs.bounds.tighter_bound_and_grad, fs.SGPR(covariance, Z, 0.1)),
        (fs.sites.bound, fs.sites.SiteSVGP(covariance, Z, sites, gaussian)),
        (fs.natural_step, fs.sites.SiteSVGP(covariance, Z, sites, gaussian)),
        (fs.sites.bound, fs.sites.VGP(covariance, sites, gaussian)),
        (fs.qsgp.bound, weights),
        (fs.sites.natural_steps, svgp),
        (fs.bounds.data_term_and_grad, svgp),
        (fs.em, svgp),
    ):
        with pytest.raises(
            TypeError,
            match=f"{call.__name__} has no option `group` for {type(model).__name__}; it takes",
        ):
            call(model, X, y, group=group)


@pytest.mark.parametrize("seeds", [(3, None), (None, 3), (3, 4), (None, "three"), ("three", 3)])
def test_differing_seeds_are_named_without_a_deadlock(rng, seeds):
    X = rng.standard_normal((30, 2))
    q = fs.Whitened(np.zeros(5), np.eye(5))
    model = fs.SVGP(fs.RBF(1.0, np.ones(2)), X[:5].copy(), q, fs.Gaussian(0.1))
    calls = (
        lambda seed, group: fs.elbo(model, X, X[:, 0], rng=seed, group=group),
        lambda seed, group: fs.inducing.kmeans(X, 5, seed, group=group),
        lambda seed, group: fs.fit(model, X, X[:, 0], steps=2, rng=seed, group=group),
    )
    for call in calls:
        found = ends(2, lambda group, call=call: call(seeds[group.rank], group))
        for one, seed in zip(found, seeds, strict=True):
            assert isinstance(one, (ValueError, TypeError, fs.RemoteError)), one
            said = "three" if "three" in seeds else "`rng`" if "`rng`" in str(one) else "`seed`"
            assert said in str(one) and isinstance(one, fs.RemoteError) == (
                "three" in seeds and seed != "three"
            ), one


@pytest.mark.parametrize("changes, message", [
    ({"rng": None}, "`rng` is None there, and 0 on rank 0"),
    ({"rng": 1}, "`rng` is 1 there, and 0 on rank 0"),
    ({"rng": "a seed"}, "got 'a seed'"),
    ({"M": 3}, "`M` is '3' there, and '2' on rank 0"),
])  # fmt: skip
def test_other_arguments_are_named(rng, changes, message):
    """Before any exchange of another length, and before any rank waits."""
    X = rng.standard_normal((N, 2))
    for error in ends(
        2,
        lambda group: fs.inducing.kmeans(
            X, **{"M": 2, "rng": 0} | (changes if group.rank else {}), group=group
        ),
    ):
        assert isinstance(error, (ValueError, TypeError, fs.RemoteError)) and message in str(error)


def test_shards_may_be_lists_and_have_two_axes(rng):
    X = rng.standard_normal((N, 2))
    lists, arrays = (
        ends(2, lambda group, X=X: fs.inducing.kmeans(X, 3, rng=0, group=group), "own")
        for X in (X.tolist(), X)
    )
    np.testing.assert_array_equal(lists, arrays)
    for error in ends(
        2, lambda group: fs.inducing.median_lengthscales(X[:, 0], rng=0, group=group), "own"
    ):
        assert isinstance(error, ValueError) and "must have shape (N, D), got (61,)" in str(error)


def test_long_facts_and_messages_arrive():
    """The facts of a deep GP of twelve layers are longer than a message can be."""
    assert (
        on_ranks(2, lambda group: Communicator.of(group).gather({"long": "x" * 9000}))[1]
        == [{"long": "x" * 9000}] * 2
    )
    own, other = ends(
        2,
        lambda group: Communicator.of(group).agree(
            {}, None if group.rank else ValueError("y" * 9000)
        ),
    )
    assert (
        isinstance(own, ValueError)
        and isinstance(other, fs.RemoteError)
        and "y" * 3900 in other.message
    )


@dataclasses.dataclass
class Alike:
    """A group that equals other groups, and therefore has no hash."""

    group: object
    rows: str = "all"
    rank = property(lambda self: self.group.rank)
    size = property(lambda self: self.group.size)

    def sum(self, buffer):
        self.group.sum(buffer)

    def broadcast(self, buffer):
        self.group.broadcast(buffer)


def test_a_group_of_any_class_is_freed_with_its_memory(rng):
    X = rng.standard_normal((N, 2))

    def call(group):
        mine = Alike(group)
        Z = fs.inducing.kmeans(X, 3, rng=0, group=mine)
        communicator = weakref.ref(Communicator.of(mine))
        assert communicator() is Communicator.of(mine)
        return Z, weakref.ref(mine), communicator

    for Z, group, communicator in on_ranks(2, call):
        np.testing.assert_array_equal(Z, fs.inducing.kmeans(X, 3, rng=0))
        gc.collect()
        assert group() is None and communicator() is None

    class Closed:
        __slots__ = "rank", "size", "rows", "sum", "broadcast"

        def __init__(self, group):
            self.rank, self.size, self.rows, self.sum, self.broadcast = (
                0,
                1,
                "all",
                group.sum,
                group.broadcast,
            )

    with pytest.raises(TypeError, match='"__weakref__"'):
        fs.inducing.kmeans(X, 3, group=Closed(fs.distributed.threads(1)[0]))
