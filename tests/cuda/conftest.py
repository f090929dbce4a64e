"""Where the tests of CUDA kernels run: on the emulation, in one of three orders of the threads, and on a device if there is one.

Which order is chosen by the name of a test and by the seed, so that those of one kernel take all three between them, and another
seed others.
"""

import functools
import pathlib
import shutil
import zlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from cuda_host import host_module, ptxas, sanitized
from cuda_host.cupy_on_host import cupy_on_host
from cuda_host.emulated import builds, emulated
from cuda_host.host_module import ORDERS
from device_problems import on_host
from numerics import SEED
from real_device import cupy_or_skip, on_device

POOL, LOGS, RUNS, LATER = pytest.StashKey(), pytest.StashKey(), pytest.StashKey(), pytest.StashKey()
DEVICE = pytest.param("device", marks=pytest.mark.on_device)


def pytest_collection_modifyitems(items):
    """Tests that wait for compilers come last: until then those work beside the other tests."""
    items.sort(key=lambda item: getattr(item, "originalname", None) == "test_compiles_within_budget")


def pytest_collection_finish(session):
    """From now on threads make the libraries, runs and compilations that tests here will ask for, in this order."""
    here = [item for item in session.items if pathlib.Path(__file__).parent in item.path.parents]
    if not here or session.config.option.collectonly:
        return
    compiled = [item.callspec.params for item in here if item.originalname == "test_compiles_within_budget"]
    pool = session.config.stash[POOL] = ThreadPoolExecutor(2)
    if shutil.which("g++") and len(here) > len(compiled):
        for job in builds():
            pool.submit(host_module.build, *job)
    sanitized_items = [item.callspec.params for item in here if item.originalname == "test_clean"]
    runs = [(p["sanitizer"], p["family"], p["dtype"]) for p in sanitized_items if not sanitized.why_not(p["sanitizer"])]
    session.config.stash[RUNS] = {
        (name, *run): pool.submit(sanitized.run, name, "cuda_host.small_runs", *run, name) for name, *run in runs
    }
    jobs = [(p["compiler"], p["stem"], p["dtype"], p["architecture"]) for p in compiled if not ptxas.why_not(p["compiler"])]
    # NVRTC compiles in this process, through the loader: not while the tests of the loader replace parts of it
    session.config.stash[LATER] = [job for job in jobs if job[0] == "nvrtc"]
    session.config.stash[LOGS] = {job: pool.submit(ptxas.log_of, *job) for job in jobs if job[0] != "nvrtc"}


def pytest_sessionfinish(session):
    if pool := session.config.stash.get(POOL, None):
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def logs(request):
    """Futures of what compilers and assembler say: (compiler, stem, dtype, architecture) -> log."""
    stash = request.config.stash
    stash[LOGS] |= {job: stash[POOL].submit(ptxas.log_of, *job) for job in stash[LATER]}
    stash[LATER] = []
    return stash[LOGS]


def _order(request):
    """Of the threads, for one test."""
    return ORDERS[zlib.crc32(f"{SEED} {request.node.nodeid}".encode()) % len(ORDERS)]


@pytest.fixture(params=["emulated", DEVICE])
def twin_of(request):
    """A function from the stem of a family to its CUDA twin, which takes NumPy arrays."""
    if request.param == "device":
        yield functools.partial(on_device, cupy_or_skip())
        return
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    with emulated(_order(request)) as twin:
        yield twin


@pytest.fixture(params=["emulated", DEVICE])
def gpu(request):
    """Copies to a device and back, for what calls the front door: the emulation, or a GPU."""
    if request.param == "device":
        yield on_host(cupy_or_skip())
        return
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    with cupy_on_host(_order(request)) as module:
        yield on_host(module)


@pytest.fixture(params=["thread", "address"])
def sanitizer(request):
    if reason := sanitized.why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture
def sanitized_runs(request):
    """Futures of the small runs: (sanitizer, family, dtype) -> finished process."""
    return request.config.stash[RUNS]
