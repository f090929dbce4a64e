"""Machine code beside the sources belongs to those sources."""

import os
import shutil
import subprocess
import sys

import fastsvgp.kernels.cpu as cpu


def test_compiled_files_go_when_any_source_changes(tmp_path):
    package = tmp_path / "cpu"
    package.mkdir()
    shutil.copy(cpu.__file__, package / "__init__.py")
    (package / "callee.py").write_text("x = 1\n")
    cache = package / "__pycache__"
    run = [sys.executable, "-c", "import cpu"]
    subprocess.run(run, cwd=tmp_path, check=True)
    old = cache / "caller.f-1.py311.nbi"
    old.write_bytes(b"machine code")
    subprocess.run(run, cwd=tmp_path, check=True)
    assert old.exists()
    (package / "callee.py").write_text("x = 2\n")
    subprocess.run(run, cwd=tmp_path, check=True)
    assert not old.exists()


def test_blas_is_loaded_with_our_timeout_and_the_environment_stays(tmp_path):
    code = """
import os, sys
import numpy
seen = []
class Watch:
    def find_spec(self, name, *_):
        if name == "scipy.linalg":
            seen.append(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
sys.meta_path.insert(0, Watch())
import fastsvgp.kernels.cpu
print(seen, os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
"""
    clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    for given, expected in (({}, "['20'] None"), ({"OPENBLAS_THREAD_TIMEOUT": "25"}, "['25'] 25")):
        run = subprocess.run([sys.executable, "-c", code], env=clean | given, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == expected
