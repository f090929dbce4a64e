"""Run Python under a sanitizer of g++, in a process that loads its runtime at the start."""

import os
import pathlib
import shutil
import subprocess
import sys

FOUND = 66  # exit status if a sanitizer reports an error
RUNTIME = {"thread": "libtsan.so", "address": "libasan.so"}
TESTS = pathlib.Path(__file__).resolve().parents[1]


def runtime(sanitizer):
    """Return the path of the sanitizer's library, or None if g++ has none."""
    named = subprocess.run(
        ["g++", f"-print-file-name={RUNTIME[sanitizer]}"], capture_output=True, text=True
    ).stdout.strip()
    return named if os.path.isabs(named) else None


def why_not(sanitizer):
    """Return the reason why a sanitizer cannot be used here, or None."""
    if shutil.which("g++") is None or runtime(sanitizer) is None:
        return f"needs g++ and its {RUNTIME[sanitizer]}"


def run(sanitizer, module, *arguments):
    """Run ``python -m module arguments`` under the sanitizer; return the finished process.

    Its output is text.
    """
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(sanitizer),
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
        "TSAN_OPTIONS": f"exitcode={FOUND}:report_signal_unsafe=0",
        "ASAN_OPTIONS": f"exitcode={FOUND}:detect_leaks=0",
        "UBSAN_OPTIONS": f"exitcode={FOUND}:print_stacktrace=1",
        "OPENBLAS_NUM_THREADS": "1",  # more threads would only slow the check down
    }
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
