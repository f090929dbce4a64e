"""Test ``everywhere.sh`` (seeds and BLAS kernels) with a stand-in for Python that records calls."""

import os
import pathlib
import shutil
import subprocess

import pytest

AGAIN = "FASTSVGP_TEST_SEED={} OPENBLAS_CORETYPE={} OPENBLAS_NUM_THREADS=1 python -m pytest "
SCRIPT = pathlib.Path(__file__).with_name("everywhere.sh")
STAND_IN = """#!/bin/sh
run="$FASTSVGP_TEST_SEED $OPENBLAS_CORETYPE"
echo "$run $OPENBLAS_NUM_THREADS $*" >>"$SEEN"
case "$run" in
  "2 Zen")
    echo "FAILED tests/a.py::test_b[c d] - Error: no - no"
    echo "1 failed, 4 passed in 61.00s (0:01:01)"; exit 1 ;;
  "3 Zen") echo "Segmentation fault"; exit 139 ;;
esac
echo "5 passed, 1 skipped in 0.10s"
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.fixture
def everywhere(tmp_path):
    """Return a function that runs it: exit status, lines, and sorted arguments of the runs."""
    (tmp_path / "python").write_text(STAND_IN)
    (tmp_path / "python").chmod(0o755)

    def call(*arguments):
        seen = tmp_path / "seen"
        seen.unlink(missing_ok=True)
        environment = os.environ | {
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "SEEN": str(seen),
            "TMPDIR": str(tmp_path),
        }
        done = subprocess.run(
            [SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=60
        )
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout.splitlines(), sorted(seen.read_text().splitlines())

    return call


def test_every_seed_with_every_kernel(everywhere):
    status, lines, seen = everywhere("1", "4")
    kernels = {line.split()[1] for line in seen}
    assert status == 0 and {"Haswell", "Zen"} <= kernels <= {"Haswell", "Zen", "SkylakeX"}
    assert [line.split()[:3] for line in seen] == sorted(
        [seed, kernel, "1"] for seed in "14" for kernel in kernels
    )
    assert all(
        " tests/kernels " in line and line.endswith("tests/test_gradient_oracles.py")
        for line in seen
    )
    runs = 2 * len(kernels)
    assert lines[-1].startswith(f"{runs} runs of 2 seeds with ") and lines[-1].endswith(
        f"{5 * runs} passed, 0 failed, 0 errors"
    )


def test_ten_seeds_unless_named(everywhere):
    _, _, seen = everywhere()
    assert {line.split()[0] for line in seen} == {str(n) for n in range(1, 11)}


def test_failures_come_with_the_command_that_repeats_them(everywhere):
    status, lines, _ = everywhere("1", "2")
    assert (
        status == 1
        and "seed 2, Zen: exit status 1, 1 failed, 4 passed in 61.00s (0:01:01)" in lines
    )
    assert lines[-2] == AGAIN.format(2, "Zen") + "'tests/a.py::test_b[c d]'" and lines[
        -1
    ].startswith("logs: ")
    assert lines[-3].endswith(", 1 failed, 0 errors")


def test_a_run_that_dies_is_a_failure(everywhere):
    status, lines, _ = everywhere("3")
    assert status == 1 and "Segmentation fault" in lines
    assert lines[-2].startswith(AGAIN.format(3, "Zen") + "tests/kernels ")


def test_one_run_chosen_by_a_hash(everywhere):
    found = {}
    for commit in ("deadbeef0123456789", "deadbee000000000000", "0123456789abcdef"):
        status, lines, seen = everywhere("--one", commit)
        assert status == 0 and len(seen) == 1
        seed, kernel = seen[0].split()[:2]
        assert lines[0].startswith(AGAIN.format(seed, kernel) + "tests/kernels ")
        found[commit] = seed, kernel
        assert everywhere("--one", commit)[2] == seen
    assert [seed for seed, _ in found.values()] == ["233495534", "233495534", "1193046"]
    assert found["deadbee000000000000"][1] == "Haswell"
