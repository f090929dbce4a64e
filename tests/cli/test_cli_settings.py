"""The settings of a fit: arguments are read once and never written."""

import argparse
import ast
import pathlib
import threading

import pytest

import fastsvgp.cli
from fastsvgp import distributed
from fastsvgp.cli import mpi
from fastsvgp.cli.arguments import parser
from fastsvgp.cli.data.held_out import split
from fastsvgp.cli.data.task import Task, interpret_target
from fastsvgp.cli.errors import UsageError
from fastsvgp.cli.settings.resolve import resolve

CLI = pathlib.Path(fastsvgp.cli.__file__).parent


def task(rng, rows=60):
    X, values = rng.standard_normal((rows, 3)), rng.standard_normal(rows)
    y, likelihood, reason, classes = interpret_target(values, "y")
    columns = {"named": False, "width": 4, "inputs": [0, 1, 2], "target": 3}
    made = Task(X, y, likelihood, reason, classes, ["a", "b", "c"], "y", columns)
    return split(made, fraction=0.1)


def parsed(*given):
    return parser().parse_args(["fit", "data.csv", *given])


@pytest.mark.parametrize("path", sorted(CLI.rglob("*.py")), ids=lambda path: path.name)
def test_no_file_writes_to_the_arguments(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            assert getattr(node.value, "id", "") not in ("args", "settings"), node.lineno
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "vars"):
            # to make modified arguments
            where = path.relative_to(CLI).as_posix()
            assert where in ("mpi.py", "model_search.py", "settings/resolve.py")
            assert ast.unparse(node) == "vars(args)"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((), {"method": "sgpr", "inducing": 54, "ard": True, "jitter": 1e-7, "solver": "lbfgs"}),
        (("--inducing", "300"), {"inducing": 54, "surplus": 300, "method": "sgpr"}),
        (
            ("--method", "svgp", "--jitter", "1e-5"),
            {"inducing": 54, "surplus": 256, "jitter": 1e-5, "solver": "natural"},
        ),
        (("--method", "svgp", "--natural-step", "0"), {"solver": "adam"}),
        (
            ("--method", "odvgp", "--inducing", "9"),
            {"orthogonal": 9, "sampled": 9, "surplus": None},
        ),
        (
            ("--layers", "2"),
            {"method": "svgp", "layers": 2, "width": 3, "inducing": 54, "surplus": 128},
        ),
        (
            ("--layers", "1", "--no-ard"),
            {"method": "svgp", "layers": None, "width": None, "ard": False},
        ),
        (
            ("--method", "qsgp"),
            {
                "features": 100_000,
                "basis_batch": 10_000,
                "control_points": 54,
                "dense_columns": 0,
                "inducing": 0,
            },
        ),
    ],
)
def test_what_is_left_open_the_data_decide(rng, given, found):
    args = parsed(*given)
    before = dict(vars(args))
    settings = resolve(args, task(rng))
    assert {name: getattr(settings, name) for name in found} == found
    assert vars(args) == before


def test_refusals_come_before_anything_is_made(rng):
    for given, said in (
        (("--method", "sgpr", "--batch-size", "9"), "leave out --batch-size"),
        (("--method", "lsvgp", "--e-steps", "2"), "--e-steps is for --method svgp"),
        (("--method", "svgp", "--natural-step", "0", "--e-steps", "2"), "leave one of them out"),
    ):
        with pytest.raises(UsageError, match=said):
            resolve(parsed(*given), task(rng))


def test_a_group_trains_no_qsgp(rng):
    group = object()
    with pytest.raises(UsageError, match="--mpi: one process trains --method qsgp"):
        resolve(parsed("--method", "qsgp"), task(rng), group)
    with pytest.raises(UsageError, match="--mpi: one process trains with --within"):
        resolve(parsed("--within", "0.1"), task(rng), group)
    assert resolve(parsed(), task(rng), group).group is group


@pytest.mark.parametrize("apart", [False, True])
def test_other_ranks_hear_of_an_error_only_before_they_part(monkeypatch, apart):
    """After training no rank waits for an error of another, so none is sent."""
    args = argparse.Namespace(file="data.csv", out="out", resume=False, quiet=False)

    def run(args, group):
        assert args.quiet is bool(group.rank)
        if not apart:
            if group.rank == 0:
                raise ValueError("no such rows")
            mpi.Communicator.of(group).agree({}, None)
        with mpi.ranks_apart():
            if group.rank == 0:
                raise ValueError("no such rows")
        return 0

    groups = {}

    def on_rank(group):
        groups[threading.get_ident()] = group
        try:
            return mpi.run_on_ranks(run, args)
        except ValueError as error:
            return str(error)

    monkeypatch.setattr(mpi, "_mute", lambda stack: None)
    monkeypatch.setattr(mpi.distributed, "mpi", lambda: groups[threading.get_ident()])
    found = distributed.threads(2).run(on_rank)
    assert found == ["no such rows", 0 if apart else mpi.BAD_INPUT]
    assert args.out == "out" and not args.quiet
