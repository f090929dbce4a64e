"""Put the kernels, built ahead of time for this processor, beside the sources of the checkout.

Usage: ``python .ci/kernels.py CACHE``. They are built once for each set of sources and versions,
and kept in CACHE.
"""

import filecmp
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import numba
import numpy

ROOT = pathlib.Path(__file__).resolve().parents[1]
KERNELS = ROOT / "fastsvgp" / "kernels" / "cpu"
BUILD = ROOT / "tools" / "build_kernels.py"
KEPT = 4  # number of modules

sys.path.insert(0, str(ROOT))

from fastsvgp.kernels.cpu.common import ahead  # noqa: E402


def main(cache):
    level = ahead.fitting()[0]
    versions = sys.version, numba.__version__, numpy.__version__, BUILD.read_text(encoding="utf-8")
    key = hashlib.sha256(repr((level, ahead.sources(), *versions)).encode()).hexdigest()[:32]
    store = pathlib.Path(cache, key)
    if not store.is_dir():
        unfinished = store.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700, parents=True)  # its content is executed
        subprocess.run(
            [sys.executable, BUILD, unfinished, level],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            check=True,
        )
        unfinished.rename(store)
    store.touch()
    built = {module.name: module for module in store.iterdir()}
    for old in KERNELS.glob("_kernels_*"):
        # one that is in use by another part stays
        if old.name not in built or not filecmp.cmp(old, built[old.name], shallow=False):
            old.unlink()
    for name, module in built.items():
        if not (KERNELS / name).exists():
            shutil.copy(module, KERNELS)
    stores = sorted((p for p in pathlib.Path(cache).iterdir()), key=lambda p: p.stat().st_mtime)
    for old in stores[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
