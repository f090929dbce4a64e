"""The number of threads: set by the user, the environment, the cores or the quota."""

import subprocess
import sys

import pytest

import fastsvgp as fs
from fastsvgp.runtime import num_threads


@pytest.fixture
def clean(monkeypatch):
    """No environment variables, no quota, sixteen cores, and an empty cache."""
    for name in num_threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(num_threads, "_cores", lambda: 16)
    monkeypatch.setattr(num_threads, "_quota", lambda: 0)
    num_threads._from_environment.cache_clear()
    yield monkeypatch
    num_threads._from_environment.cache_clear()


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, 16),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"NUMBA_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "3", "NUMBA_NUM_THREADS": "5"}, 3),
        ({"OMP_NUM_THREADS": "20"}, 20),  # more than the cores: a request is obeyed
        ({"OMP_NUM_THREADS": " 4,2"}, 4),  # one number per level of nesting
        ({"OMP_NUM_THREADS": "many", "NUMBA_NUM_THREADS": "5"}, 5),
        ({"OMP_NUM_THREADS": "0"}, 16),
        ({"OMP_NUM_THREADS": "-2"}, 16),
        ({"OMP_NUM_THREADS": ""}, 16),
        ({"OMP_NUM_THREADS": "1000000"}, 1024),
    ],
)
def test_environment_sets_the_number_of_threads(clean, environment, expected):
    for name, value in environment.items():
        clean.setenv(name, value)
    assert fs.get_num_threads() == expected
    fs.set_num_threads(2)
    try:
        assert fs.get_num_threads() == 2
    finally:
        fs.set_num_threads(None)
    assert fs.get_num_threads() == expected


@pytest.mark.parametrize("quota, expected", [(0, 16), (3, 3), (20, 16)])
def test_quota_limits_the_number_of_threads(clean, quota, expected):
    clean.setattr(num_threads, "_quota", lambda: quota)
    assert fs.get_num_threads() == expected
    clean.setenv("OMP_NUM_THREADS", "7")
    num_threads._from_environment.cache_clear()
    assert fs.get_num_threads() == 7


def groups(tmp_path, lines, **files):
    """Emulate the control groups of a process: the list, and files below the mount."""
    (tmp_path / "cgroup").write_text(lines)
    for path, text in files.items():
        file = tmp_path / "fs" / path.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.with_name(file.name.replace("_max", ".max").replace("cpu_", "cpu.")).write_text(text)
    return num_threads.cpu_quota(tmp_path / "cgroup", tmp_path / "fs")


@pytest.mark.parametrize(
    "files, expected",
    [
        ({}, 0),
        ({"a__b__cpu_max": "max 100000\n"}, 0),
        ({"a__b__cpu_max": "200000 100000\n"}, 2),
        ({"a__b__cpu_max": "150000 100000\n"}, 2),  # rounded up
        ({"a__b__cpu_max": "5000 100000\n"}, 1),
        # a parent group limits its children
        ({"a__cpu_max": "300000 100000\n", "a__b__cpu_max": "max 100000\n"}, 3),
        ({"a__cpu_max": "300000 100000\n", "a__b__cpu_max": "400000 100000\n"}, 3),
        ({"cpu_max": "200000 100000\n"}, 2),  # in a container whose path is the host's
        ({"unified__a__b__cpu_max": "200000 100000\n"}, 2),  # beside version 1
        ({"a__b__cpu_max": "rubbish\n"}, 0),
        ({"a__b__cpu_max": ""}, 0),
        ({"a__b__cpu_max": "200000 0\n"}, 0),
    ],
)
def test_control_groups_of_version_2(tmp_path, files, expected):
    assert groups(tmp_path, "0::/a/b\n", **files) == expected


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize("quota, expected", [("-1\n", 0), ("250000\n", 3)])
def test_control_groups_of_version_1(tmp_path, folder, quota, expected):
    lines = "9:name=systemd:/x\n4:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"
    files = {f"{folder}__a__cpu_cfs_quota_us": quota, f"{folder}__a__cpu_cfs_period_us": "100000\n"}
    assert groups(tmp_path, lines, **files) == expected


def test_no_control_groups(tmp_path):
    assert num_threads.cpu_quota(tmp_path / "missing", tmp_path) == 0
    assert groups(tmp_path, "no such line\n") == 0


@pytest.mark.parametrize(
    "bad", [0, -1, 1.5, True, 10**5, float("inf"), float("nan"), "two", [2], 1 + 0j]
)
def test_invalid_number_of_threads_is_refused(bad):
    before = fs.get_num_threads()
    with pytest.raises(
        ValueError,
        match="set_num_threads: `count` must be a positive integer, at most 1024, or None, got",
    ):
        fs.set_num_threads(bad)
    assert fs.get_num_threads() == before


def test_a_block_puts_the_number_back():
    before = fs.get_num_threads()
    with fs.set_num_threads(3):
        with fs.set_num_threads(2):
            assert fs.get_num_threads() == 2
        assert fs.get_num_threads() == 3
        with pytest.raises(KeyError), fs.set_num_threads(1):
            raise KeyError
        assert fs.get_num_threads() == 3
    assert fs.get_num_threads() == before


def test_thread_count_query_loads_no_compiler():
    calls = "fs.set_num_threads(2), fs.get_num_threads()"
    code = f"import sys, fastsvgp as fs; {calls}; print(*{{'numba', 'scipy'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stdout.strip()
