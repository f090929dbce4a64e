"""Share compiled code between checkouts of the same sources.

Usage: ``python .ci/numba_cache.py CACHE LINKS``.

Numba names the folder of a module's compiled code by the absolute path of the module. LINKS, for
``NUMBA_CACHE_DIR``, has this name for each folder of CPU kernels, in this checkout and in the
installed package, and all copies of a folder link to one folder of CACHE. Its name contains a
digest of all sources of CPU kernels, and of the versions that compiled code depends on, so code of
other sources is never loaded.
"""

import hashlib
import os
import pathlib
import shutil
import sys
import sysconfig

import llvmlite
import numba
import numpy
import scipy
from numba.core import caching

KEPT = 4  # number of sets of sources whose code is kept


def key(kernels):
    """Return a digest of the sources and of the versions that compile them."""
    versions = [module.__version__ for module in (numba, llvmlite, numpy, scipy)]
    digest = hashlib.sha256(repr([sys.version, *versions]).encode())
    for file in sorted(kernels.rglob("*.py")):
        text = file.read_bytes()
        digest.update(f"{file.relative_to(kernels).as_posix()} {len(text)}\n".encode() + text)
    return digest.hexdigest()[:32]


def link(store, links, kernels):
    """Link the compiled code of each folder of ``kernels`` to ``store``."""
    for folder in {file.parent for file in kernels.rglob("*.py")}:
        target = store / folder.relative_to(kernels)
        target.mkdir(parents=True, exist_ok=True)
        name = caching.UserProvidedCacheLocator.get_suitable_cache_subpath(folder / "x.py")
        (links / name).unlink(missing_ok=True)
        (links / name).symlink_to(target, target_is_directory=True)


def main(cache, links):
    links = pathlib.Path(links)
    links.mkdir(parents=True, exist_ok=True)
    if not hasattr(caching, "_hash_source_file"):
        return  # this Numba identifies sources by their times, which differ between copies
    cache = pathlib.Path(cache).resolve()
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)  # its content is executed
    packages = [
        pathlib.Path(place, "fastsvgp") for place in (os.getcwd(), sysconfig.get_path("purelib"))
    ]
    kernels = [package / "kernels" / "cpu" for package in packages]
    for folder in kernels:
        if folder.is_dir():
            store = cache / key(folder)
            link(store, links, folder)
            os.utime(store)
    stores = sorted((p for p in cache.iterdir() if p.is_dir()), key=lambda p: p.stat().st_mtime)
    for old in stores[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
