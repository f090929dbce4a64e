"""Rehearsals of ``bench/first_gpu.sh``, with tiny arrays, over the stand-in driver."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.test_first_gpu import SCRIPT, parts

# what a process needs before it loads CuPy; Python runs it at its start. The process in which CuPy
# looks for a library, for at most ten seconds, loads none.
BEFORE = """import sys
if "cuda.pathfinder._dynamic_libs.dynamic_lib_subprocess" not in sys.orig_argv:
    import cuda_host.standin
"""
# profilers: a command after options, each with a value
TOOL = '#!/bin/bash\nwhile [[ "$1" == -* ]]; do shift 2; done\nexec "$@"\n'


@pytest.fixture
def environment(real, tmp_path):
    if "fakegpu" not in sys.modules:
        pytest.skip("with a GPU the program itself is run")
    tools = {name: TOOL for name in ("ncu", "compute-sanitizer")}
    for name in ("python", "python3"):
        tools[name] = f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'
    for name, text in tools.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(BEFORE)
    outer = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "FASTSVGP_"))}
    return outer | {
        "FASTSVGP_CHECKOUT": os.environ["FASTSVGP_CHECKOUT"],  # the stand-in reads it
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": f"{tmp_path}:{os.environ['PYTHONPATH']}",
        "FASTSVGP_FIRST_GPU_CACHE": str(tmp_path / "cache"),
    }


@pytest.mark.parametrize("stage", ["1", "2", "3", "4"])
def test_a_stage_passes(environment, tmp_path, stage):
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", SCRIPT, stage, out, "--small"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    passed = [line.partition(": passed in")[0] for line in lines if ": passed in" in line]
    assert passed == [f"=== {name}" for _, name in parts()[stage]]
    assert lines[-1].startswith(f"=== stage {stage}: ") and "not passed" not in lines[-1]
    files = {path.name for path in pathlib.Path(out).iterdir()}
    assert f"stage{stage}.log" in files and len(files) <= 8
    assert "(not captured" not in done.stdout  # a row that waits is marked so, and not captured
    if stage == "2":
        tables = [path.read_text(encoding="utf-8") for path in out.glob("first_times_cuda_*.md")]
        assert len(tables) == 2 and all("Fake H200" in text for text in tables)
