"""The programs that measure first calls in new processes."""

import importlib
import pathlib
import sys
import types

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the benchmarks by its name; children import the same package."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setenv("PYTHONPATH", str(BENCH.parent))
    monkeypatch.delenv("FASTSVGP_KERNELS", raising=False)
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]


@pytest.mark.parametrize("there", [True, False])
def test_a_row_for_each_state(bench, monkeypatch, tmp_path, there):
    """The states are those of the environment of the child; the module only if there is one."""
    first_calls, seen = bench("first_calls"), []
    child = first_calls.child

    def watched(call, folder, cache, *options):
        kernels = first_calls.os.environ.get("FASTSVGP_KERNELS")
        seen.append((kernels, not any(pathlib.Path(cache).iterdir()), *options))
        return child(call, folder, cache, *options)

    monkeypatch.setattr(first_calls, "child", watched)
    monkeypatch.setattr(first_calls, "module_there", lambda: there)
    first_calls.main(["--only", "help", "--repeats", "1", "--results", str(tmp_path)])
    assert seen == [
        ("none", True, "--count"),
        ("none", True),
        ("none", True),  # the help compiles nothing
        *[(None, True)] * there,
    ]
    lines = (tmp_path / "first_calls.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `fastsvgp --")]
    assert [row[1] for row in rows] == list(first_calls.STATES[: 2 + there])
    assert all(0 < float(row[2]) <= float(row[5]) and int(row[6]) > 50 for row in rows)
    assert rows[0][-4:] == ["0"] * 4
    assert "`python bench/first_calls.py --only help --repeats 1" in " ".join(lines)


def test_a_call_that_fails_ends_the_measurement(bench, tmp_path):
    with pytest.raises(SystemExit, match="(?s)^predict: .*exit code 2"):
        bench("first_calls").child("predict", tmp_path, tmp_path)


@pytest.mark.parametrize("said, there", [("module x86_64_v3", True), ("compiled here", False)])
def test_info_says_whether_there_is_a_module(bench, monkeypatch, said, there):
    first_calls = bench("first_calls")
    printed = types.SimpleNamespace(stdout=f"scipy        1.17\nkernels      {said}\nBLAS  x\n")
    monkeypatch.setattr(first_calls.subprocess, "run", lambda *args, **options: printed)
    assert first_calls.module_there() is there


def test_the_least_of_several_processes(bench):
    results = [
        {"cpu": cpu, "wall": 2 * cpu, "process": 3 * cpu, "again": again, "modules": 5, "peak": 9}
        for cpu, again in ((2.0, None), (1.0, None))
    ]
    least = bench("first_calls").least(results)
    assert least == results[0] | {"cpu": 1.0, "wall": 2.0, "process": 3.0}
    row = bench("first_calls").row("help", "cache", least, None)
    assert row[2:6] == ["1.00", "2.00", "", "3.00"]


def test_what_is_compiled_is_counted(bench):
    """Equal functions have equal counts, after the first one, and Numba is as it was."""
    numba = pytest.importorskip("numba")
    from numba.core.codegen import CPUCodeLibrary as Library

    counted, before, found = bench("one_first_call").counted, dict(vars(Library)), []
    for _ in range(3):
        with counted() as counts:
            numba.njit(lambda x: x + 1)(2.0)
        found.append(dict(counts))
    assert found[1] == found[2] and found[2]["functions"] == 1 and min(found[2].values()) > 0
    with counted() as counts:
        pass
    assert not any(counts.values())
    assert dict(vars(Library)) == before


def test_each_call_has_words(bench):
    assert bench("first_calls").WORDS.keys() == bench("one_first_call").CALLS.keys()
