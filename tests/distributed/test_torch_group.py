"""A user-defined engine: the recipe of docs/distributed.md on torch.distributed and on threads."""

import importlib.util
import multiprocessing
import pathlib
import re
import types

import numpy as np
import pytest

import fastsvgp as fs

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "distributed.md"
SIZE = 2


def problem():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((41, 2))
    model = fs.SVGP(
        fs.RBF(1.0, np.ones(2)), X[:5].copy(), fs.Whitened(np.zeros(5), np.eye(5)), fs.Gaussian(0.1)
    )
    return model, X, np.sin(X[:, 0])


def recipe(torch):
    names = {"torch": torch}
    exec(
        re.search(r"```py\n(class TorchGroup.*?)```", PAGE.read_text(encoding="utf-8"), re.S)[1],
        names,
    )
    return names["TorchGroup"]()


def trained(group=None):
    model, X, Y = problem()
    return fs.fit(model, X, Y, steps=10, batch_size=12, rng=0, group=group)[0].inducing


def assert_trained(found):
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], trained(), rtol=0, atol=1e-10)


def test_the_recipe_over_calls_of_the_same_names():
    """Threads stand in for the functions of torch."""

    def work(group):
        calls = types.SimpleNamespace(
            get_rank=lambda: group.rank,
            get_world_size=lambda: group.size,
            all_reduce=group.sum,
            broadcast=lambda tensor, src: group.broadcast(tensor),
        )
        return trained(recipe(types.SimpleNamespace(distributed=calls, from_numpy=np.asarray)))

    assert_trained(fs.distributed.threads(SIZE).run(work))


def work(rank, meeting, answers):
    import torch
    import torch.distributed

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=SIZE
    )
    answers.put((rank, trained(recipe(torch))))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_the_recipe_on_processes(tmp_path):
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    workers = [
        spawn.Process(target=work, args=(rank, tmp_path / "meeting", answers))
        for rank in range(SIZE)
    ]
    for worker in workers:
        worker.start()
    try:
        found = dict(answers.get(timeout=60) for _ in workers)
    finally:
        for worker in workers:
            worker.join(10)
            worker.kill()
    assert_trained(found)
