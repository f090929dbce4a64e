"""Groups of processes started by MPI: equal numbers, and failures without hanging ranks."""

import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fastsvgp as fs
from tests.distributed import program

HERE = pathlib.Path(__file__).parent
BESIDE = pathlib.Path(sys.executable).parent / "mpiexec"
MPIEXEC = str(BESIDE) if BESIDE.exists() else shutil.which("mpiexec")
SECONDS = 60

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="needs mpi4py and an mpiexec: pip install mpi4py mpich",
)


def started(size, *arguments, runner=("-m", "mpi4py"), script="program.py", **environment):
    command = [
        MPIEXEC,
        "-n",
        str(size),
        sys.executable,
        *runner,
        str(HERE / script),
        *map(str, arguments),
    ]
    inherited = {
        name: value for name, value in os.environ.items() if name != "COVERAGE_PROCESS_START"
    }
    path = os.pathsep.join([str(HERE.parent.parent), inherited.get("PYTHONPATH", "")])
    inherited |= {
        "PYTHONPATH": path,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    } | environment
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=inherited, start_new_session=True, **streams)


def ended(process):
    """Return ``(code, lines of JSON, stderr)``; a program that hangs fails the test."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"it hangs: {process.communicate()}") from None
    return (
        process.returncode,
        [json.loads(line) for line in out.splitlines() if line.startswith("{")],
        err,
    )


@pytest.mark.parametrize("size", [2, 3])
def test_numbers_are_those_of_one_process(size):
    code, said, err = ended(started(size, "equal"))
    assert code == 0, err
    closes = {
        "fit": 1e-11,
        "bound": 1e-10,
        "step": 1e-12,
        "collapsed": 1e-10,
        "sgpr": 1e-10,
        "own": 1e-11,
        "two sets": 1e-10,
    }
    for name, close in (closes | {"deep": 1e-11}).items():
        found = [one for one in said if one["name"] == name]
        assert len(found) == size and len({one["digest"] for one in found}) == 1, name
        assert max(one["off"] for one in found) < close, name


DUE = {  # what ranks 0 and 1 end in, and what both say
    "nan": ("RemoteError", "BadEntry", "`X` contains nan at index (30, 0)"),
    "callback": ("ZeroDivisionError", "RemoteError", "of our own"),
    "callback at the end": ("ZeroDivisionError", "RemoteError", "of our own"),
    "validate": ("ZeroDivisionError", "RemoteError", "of our own"),
    "disk": ("steps", "steps", None),
    "indefinite on all": ("steps", "steps", None),
    "indefinite on one": ("steps", "steps", None),
    "memory": ("RemoteError", "MemoryError", "8 GiB"),
    "shapes": ("Disagreement", "Disagreement", "`shape of X` is [1] there, and [2] on rank 0"),
    "steps": ("Disagreement", "Disagreement", "`steps` is '11' there, and '10' on rank 0"),
    "model": ("Disagreement", "Disagreement", "`model` is 'SGPR' there, and 'SVGP' on rank 0"),
    "bound of other data": ("Disagreement", "Disagreement", "`shape of X` is [1] there"),
    "another call": (
        "Disagreement",
        "Disagreement",
        "`function` is 'elbo' there, and 'natural_step' on rank 0",
    ),
    "a call during the start": ("Disagreement", "Disagreement", "on rank 0"),
    "a start during a call": (
        "Disagreement",
        "Disagreement",
        "`function` is 'kmeans' there, and 'elbo' on rank 0",
    ),
    "group in a callback": ("RuntimeError", "RemoteError", "this group is in a training"),
    "first step": ("RemoteError", "ZeroDivisionError", "of our own"),
    "middle step": ("RemoteError", "ZeroDivisionError", "of our own"),
    "last step": ("RemoteError", "ZeroDivisionError", "of our own"),
    "in a round": ("RemoteError", "ZeroDivisionError", "of our own"),
    "numbers": (
        "Disagreement",
        "Disagreement",
        "different parameters, or gave different arguments",
    ),
    "fine": ("steps", "steps", None),
}


def test_failures_end_on_all_ranks_and_the_group_lives_on(tmp_path):
    code, said, err = ended(started(2, "failures", tmp_path))
    assert code == 0, err
    for name, (*ends, message) in DUE.items():
        found = sorted((one for one in said if one["name"] == name), key=lambda one: one["rank"])
        assert [one["end"] for one in found] == ends, found
        assert message is None or all(message in one["message"] for one in found), found
        assert "indefinite" not in name or all(one["retries"] == 1 for one in found)
    # rank 0 says it
    assert (
        err.count("could not write the checkpoint") == 1
        and err.count("trying it again with jitter") == 2
    )


def test_an_error_between_calls_ends_the_job():
    before = time.monotonic()
    code, _, err = ended(started(2, "escape"))
    assert code != 0 and err.count("ZeroDivisionError: of our own") == 1
    assert time.monotonic() - before < 40


def running(process, folder):
    """Return the pids of the ranks, by rank, once they train."""
    deadline = time.monotonic() + SECONDS
    while not (folder / "training").exists():
        assert process.poll() is None and time.monotonic() < deadline, ended(process)
        time.sleep(0.02)
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    return [one["pid"] for one in sorted(lines, key=lambda one: one["rank"])]


@pytest.mark.parametrize("who", ["all", "one"])
def test_ctrl_c_ends_all_after_the_same_step(tmp_path, who):
    """``mpiexec`` forwards it to every rank, or only one rank gets it."""
    process = started(2, "long", tmp_path)
    pids = running(process, tmp_path)
    if who == "all":
        process.send_signal(signal.SIGINT)
    else:
        os.kill(pids[1], signal.SIGINT)
    code, said, err = ended(process)
    assert code == 130, err
    assert [one["end"] for one in said] == ["interrupted"] * 2 and len(
        {(one["steps"], one["digest"]) for one in said}
    ) == 1
    assert fs.load(tmp_path / "state.npz").step == said[0]["steps"]


def test_what_ends_a_job_leaves_time_for_the_checkpoint(tmp_path):
    """SIGTERM to one rank: all end after the same step, rank 0 saves it, then the process ends."""
    process = started(2, "long", tmp_path, EVERY=str(10**6))
    os.kill(running(process, tmp_path)[1], signal.SIGTERM)
    code, *_ = ended(process)
    assert code != 0 and fs.load(tmp_path / "state.npz").step >= 60


def test_killed_training_resumes_from_its_checkpoint(tmp_path):
    """Killed five times; the resumed training ends as an uninterrupted one."""
    rng, pauses = np.random.default_rng(), []
    for _ in range(5):
        (tmp_path / "training").unlink(missing_ok=True)
        process = started(2, "long", tmp_path)
        pids = running(process, tmp_path)
        pauses.append(rng.uniform(0, 0.2))
        time.sleep(pauses[-1])
        os.kill(pids[rng.integers(2)], signal.SIGKILL)
        code, *_ = ended(process)
        assert code != 0
    reached = fs.load(tmp_path / "state.npz").step
    assert reached >= 60
    total = str(reached + 100)
    code, said, err = ended(started(2, "long", tmp_path, STEPS=total))
    assert code == 0, err
    model, X, Y = program.problem()
    options = {"steps": int(total), **program.OPTIONS}
    straight, _ = fs.distributed.threads(2).run(
        lambda group: fs.fit(model, X, Y, group=group, **options)[0]
    )
    assert {one["digest"] for one in said if "digest" in one} == {program.digest(straight)}, pauses


def command(size, *arguments, **environment):
    """Run the command line on ranks; return ``(code, out, err)``."""
    inherited = (
        os.environ
        | {"PYTHONPATH": str(HERE.parent.parent), "OPENBLAS_NUM_THREADS": "1"}
        | environment
    )
    launcher = [MPIEXEC, "-n", str(size)] if size else []
    done = subprocess.run(
        [*launcher, sys.executable, "-m", "fastsvgp", *map(str, arguments)],
        capture_output=True, text=True, timeout=SECONDS, env=inherited,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("layers", [1, 2])
def test_the_command_line(tmp_path, layers):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    np.savez(tmp_path / "data.npz", X=X, y=np.sin(X[:, 0]) + 0.1 * rng.standard_normal(300))
    options = (
        "fit",
        tmp_path / "data.npz",
        "--steps",
        20,
        "--inducing",
        10,
        "--method",
        "svgp",
        "--layers",
        layers,
        "--quiet",
    )
    code, out, err = command(2, *options, "--mpi", "--out", tmp_path / "two")
    assert (code, out, err) == (0, "", "")
    code, _, err = command(0, *options, "--out", tmp_path / "one")
    assert code == 0, err
    one, two = (fs.load_fitted(tmp_path / name / "model.npz").model for name in ("one", "two"))
    assert program.distance(two, one) < 1e-9
    assert sorted(os.listdir(tmp_path)) == ["data.npz", "one", "two"]
    code, out, err = command(2, "fit", tmp_path / "nowhere.npz", "--mpi", "--out", tmp_path)
    assert code == 2 and err.count("nowhere.npz") == 1
    code, out, err = command(2, *options[:4], "--method", "qsgp", "--mpi", "--out", tmp_path)
    assert code == 2 and "one process trains" in err
    code, out, err = command(2, *options, "--out", tmp_path)
    assert code == 2 and "give --mpi to train one model on all of them" in err
    code, out, err = command(2, "demo", "--out", tmp_path / "demo")
    assert code == 2 and "without the launcher" in err and not (tmp_path / "demo").exists()
    code, out, err = command(2, "predict", tmp_path / "one" / "model.npz", tmp_path / "data.npz")
    assert (code, out) == (2, "") and "without the launcher" in err
