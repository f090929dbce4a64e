"""``bench/first_gpu.sh``: its limits, and what it does when a part fails or takes too long.

``tests/cuda/test_first_gpu_cuda.py`` rehearses its stages over the stand-in driver.
"""

import collections
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "bench" / "first_gpu.sh"
MINUTES = 9  # of a stage, at most
GRACE = 5  # seconds for a part to end after its limit

pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("timeout") is None, reason="needs bash and timeout"
)


def parts():
    """Return ``{stage: [(seconds, name), ...]}``."""
    done = subprocess.run(["bash", SCRIPT, "--list"], capture_output=True, text=True, check=True)
    found = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        stage, seconds, name = line.split(" ", 2)
        found[stage].append((int(seconds), name))
    return found


def test_a_stage_ends_within_nine_minutes():
    found = parts()
    assert sorted(found) == ["1", "2", "3", "4"]
    for stage in found.values():
        assert sum(seconds + GRACE for seconds, _ in stage) <= 60 * MINUTES
    assert f"GRACE={GRACE} " in SCRIPT.read_text(encoding="utf-8")


def test_the_page_names_every_part():
    page = (ROOT / "docs" / "first_gpu.md").read_text(encoding="utf-8")
    for stage in parts().values():
        for _, name in stage:
            assert name.partition(", ")[0] in page, name


@pytest.fixture
def stage(tmp_path):
    """Return a function that runs a stage with a stand-in for Python: status, and lines."""
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()

    def call(text, *arguments, script=SCRIPT):
        python.write_text(f"#!/bin/sh\n{text}\n")
        python.chmod(0o755)
        environment = os.environ | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "FASTSVGP_FIRST_GPU_CACHE": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            ["bash", script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()

    return call


def test_a_part_that_fails_does_not_stop_the_others(stage, tmp_path):
    out = tmp_path / "new" / "out"
    text = 'echo "$FASTSVGP_CACHE_DIR $*"; case "$*" in *peers*) exit 3 ;; esac'
    status, lines = stage(text, "2", str(out))
    assert status == 1
    assert [line for line in lines if line.startswith("=== ")][1::2][:3] == [
        "=== a step and its products: passed in 0 s",
        "=== other programs: FAILED with status 3 in 0 s",
        "=== other kernels: passed in 0 s",
    ]
    assert re.fullmatch("=== stage 2: [0-9]+ s; not passed: other programs", lines[-1])
    called = [line.removeprefix(f"{tmp_path}/cache/cubins ") for line in lines if "bench/" in line]
    assert called[0] == f"bench/first_times.py step products --results {out}"
    sizes = "512,1024 1000,1000 2000,1000"
    assert called[1] == f"bench/peers.py --device cuda --sizes {sizes} --seconds 20"
    assert (out / "stage2.log").read_text().splitlines() == lines


def test_a_part_that_takes_too_long_is_stopped(stage, tmp_path):
    """By Ctrl-C, and by force if it goes on."""
    source = re.sub(r"^  part \d+ ", "  part 1 ", SCRIPT.read_text(encoding="utf-8"), flags=re.M)
    short = tmp_path / "bench" / "first_gpu.sh"
    short.parent.mkdir()
    short.write_text(source.replace(f"GRACE={GRACE} ", "GRACE=1 "))
    text = (
        'case "$*" in *cholesky*) trap "" INT; sleep 20; sleep 20 ;; *slices*) echo started;'
        " exec sleep 20 ;; esac"
    )
    status, lines = stage(text, "4", str(tmp_path), script=short)
    assert status == 1 and "started" in lines
    stopped = [line.partition(": STOPPED")[0] for line in lines if "STOPPED" in line]
    assert stopped == ["=== cut sums", "=== factors"]
    assert lines[-1].endswith("not passed: cut sums; factors")


@pytest.mark.parametrize(
    "arguments", [(), ("1",), ("5", "out"), ("1", "out", "--tiny"), ("0", "out")]
)
def test_wrong_arguments_show_the_usage(stage, arguments):
    status, lines = stage("exit 0", *arguments)
    assert status == 2 and lines[0].startswith("The first half hour on a GPU")
    assert "Usage: bench/first_gpu.sh STAGE OUT [--small]" in "\n".join(lines)
