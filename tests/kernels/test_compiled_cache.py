"""Machine code beside the sources belongs to those sources."""

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
