"""``fastsvgp info``: versions, BLAS, threads and devices of this installation, for bug reports."""

import importlib.metadata
import importlib.util
import os
import pkgutil
import platform
import sys

from ..runtime.extras import install_hint


def run(args):
    """Print versions, BLAS, threads, whether CUDA works, and if not why."""
    if args.mpi:
        from . import mpi

        pairs, mine = [*rows(), *mpi.info_rows()], mpi.rank() == 0
    else:
        pairs, mine = rows(), True
    for name, value in pairs:
        if mine:
            print(f"{name:<12} {value}")
    return 0


def rows():
    """Yield ``(name, value)`` pairs in printing order."""
    yield "fastsvgp", f"{version('fastsvgp')} ({os.path.dirname(os.path.dirname(__file__))})"
    yield (
        "Python",
        (
            f"{platform.python_version()} on {platform.system()} {platform.machine()}"
            f" ({sys.executable})"
        ),
    )
    for package in ("numpy", "scipy", "numba"):
        yield package, version(package)
    for package, use in (
        ("tqdm", "progress bars"),
        ("matplotlib", "plots"),
        ("scikit-learn", "data of the demo"),
        ("shtab", "completion"),
    ):
        yield (
            package,
            (
                version(package)
                if _is_installed(package)
                else f"not installed: no {use}; {install_hint('cli')}"
            ),
        )
    yield "kernels", kernels()
    yield "BLAS", blas()
    yield "threads", threads()
    yield "CUDA", _cuda()


def _is_installed(package):
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def version(package):
    """Return the installed version of a package, or say that there is none."""
    return (
        importlib.metadata.version(package)
        if _is_installed(package)
        else "not installed (running from a checkout)"
    )


def kernels():
    """Say whether the CPU kernels are a module built ahead of time, or compiled here."""
    from ..kernels.cpu.common import ahead

    level, _, reason = ahead.found()
    if level is not None:
        return f"module {level}, built ahead of time"
    compiler = "compiled by Numba when they are called"
    if not _is_installed("numba"):
        return f"none: {reason}, and Numba is not installed"
    from ..kernels.cpu.common import compiled

    compiled.ready()
    from ..kernels.cpu.common import link_once

    return f"{compiler}: {reason}" if link_once.works() else f"{compiler}, one by one: {reason}"


def blas():
    """Describe SciPy's BLAS; for OpenBLAS also the kernels chosen for this CPU and its threads."""
    import scipy

    from ..kernels.cpu.common.blas_threads import facts

    built = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"SciPy's: {facts() or built['name'] + ' ' + built.get('version', '')}".rstrip()


def threads():
    """Describe the thread count and the environment variables that limit BLAS threads."""
    from .. import get_num_threads

    count = get_num_threads()
    text = (
        f"{count} for our kernels (fastsvgp.set_num_threads), {os.cpu_count()} cores in the machine"
    )
    limits = [
        f"{name}={os.environ[name]}"
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
        if name in os.environ
    ]
    return f"{text}; BLAS limited by {', '.join(limits)}" if limits else text


def _cuda():
    """Describe the state of CUDA support, as in the README, and the devices that CuPy finds."""
    state = "no proof on a GPU yet (the CUDA code is compiled and emulated by the tests)"
    return f"{state}; families: {', '.join(_twins())}; {_cupy()}"


def _twins():
    """Return the names of the kernel families that have both implementations."""
    cpu, cuda = ({m.name for m in pkgutil.iter_modules(_folder(room))} for room in ("cpu", "cuda"))
    return sorted(cpu & cuda - {"common"})  # helpers of the families


def _folder(room):
    return importlib.util.find_spec(f"fastsvgp.kernels.{room}").submodule_search_locations


def _cupy():
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is not installed: {install_hint('cuda13', 'cuda12')}"
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
        names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
        return f"CuPy {cupy.__version__} finds {', '.join(names) or 'no device'}"
    except Exception as error:  # a broken driver or a mismatched CuPy can raise anything
        return f"CuPy fails with {type(error).__name__}: {error}"
