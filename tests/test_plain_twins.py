"""Each tuned CPU kernel has a plain twin, which is short, agrees with it, and is slower."""

import ast
import importlib
import pathlib
import sys

import numpy as np
import pytest
from support.source import PACKAGE, parse

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"
PLAIN = BENCH / "plain"
MOST_LINES = 20
TWINS = sorted(path.stem for path in PLAIN.glob("*.py") if path.stem not in ("__init__", "common"))
# compiled code without twins of its own: wrappers, or parts of the kernels named here
PARTS = {
    "blas": "calls of BLAS",
    "thread_pool": "a loop that waits",
    "normal_cdf": "elementwise",
}


@pytest.fixture(scope="module")
def bench():
    """Import the programs of the benchmarks; their folder is not a package."""
    before = sys.path[:]
    sys.path.insert(0, str(BENCH))
    yield importlib.import_module
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]


def compiled_families():
    """Return the CPU families, and common modules, with compiled functions."""
    names = set()
    for path in (PACKAGE / "kernels/cpu").rglob("*.py"):
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(d).startswith(("jit", "njit", "inlined", "kernel"))
                for d in node.decorator_list
            ):
                names.add(path.stem if path.parent.name in ("cpu", "common") else path.parent.name)
    return names


def test_each_family_has_plain_twins():
    assert compiled_families() - {*PARTS} <= {*TWINS}


def length(function):
    """Return the number of lines of a function without its docstring."""
    first, lines = function.body[0], function.end_lineno - function.lineno + 1
    return lines - (first.end_lineno - first.lineno + 1 if ast.get_docstring(function) else 0)


@pytest.mark.parametrize("family", TWINS)
def test_a_plain_twin_is_short(family):
    for node in parse(PLAIN / f"{family}.py").body:
        if isinstance(node, ast.FunctionDef) and node.name != "cases":
            assert length(node) <= MOST_LINES, node.name


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("family", TWINS)
def test_plain_and_tuned_agree(bench, family, dtype):
    """The first case of each kernel, which is its smallest, is enough here."""
    difference, seen = bench("plain.common").difference, set()
    for case in bench(f"plain.{family}").cases(np.dtype(dtype)):
        kernel = case.name.split(",")[0]
        if kernel not in seen:
            assert difference(case) <= case.tolerance, case.name
        seen.add(kernel)


def test_each_tuned_kernel_is_worth_its_lines(bench):
    """The committed table has all twins, and a ratio of at least 1.2 for each kernel."""
    program = bench("plain_twins")
    best = program.best_ratios((BENCH / "results/plain_twins.md").read_text(encoding="utf-8"))
    assert {family for family, _ in best} == {*TWINS}
    for family in TWINS:
        cases = bench(f"plain.{family}").cases(np.dtype(np.float64))
        assert {case.name.split(",")[0] for case in cases} == {k for f, k in best if f == family}
    slow = {kernel: ratio for kernel, ratio in best.items() if ratio < program.WORTH}
    assert not slow, f"their plain twins are as fast: {slow}"
