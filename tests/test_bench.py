"""Test the commands that measure and write tables, and the headers of tables."""

import importlib
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from fastsvgp.kernels.cpu.common import blas_threads

pytest.importorskip("pytest_benchmark")
BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch):
    """Import a module of the benchmarks by its name; their folder is not a package."""
    monkeypatch.syspath_prepend(str(BENCH))
    for variable in (
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "OPENBLAS_THREAD_TIMEOUT",
    ):
        monkeypatch.setenv(variable, "1")  # some of the modules set it
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]


def test_a_table_by_one_command(tmp_path, monkeypatch):
    """Measure the smallest row by the real command."""
    monkeypatch.delenv(
        "PYTEST_XDIST_WORKER", raising=False
    )  # workers of xdist do not measure times
    arguments = [
        "updates",
        "-k",
        "bench_pack_tril and not 1000 and not 2000",
        "--results",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, BENCH / "measure.py", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = tmp_path.iterdir()
    title, _, machine, blas, made, command, _, *legend, header, _, row = table.read_text(
        encoding="utf-8"
    ).splitlines()
    assert table.name == "updates.md" and title == "# updates"
    assert re.search(
        r", \d+ cores visible, .*; Python 3\.\d+\.\d+, numpy [\d.]+, scipy [\d.]+, numba [\d.]+",
        machine,
    )
    assert re.fullmatch(r"BLAS SciPy's: .*\S; threads: \d+ for our kernels .*;", blas)
    # version, kernels and threads; the environment is passed on
    if (facts := blas_threads.facts()) is not None:
        assert blas.startswith(f"BLAS SciPy's: {facts}; threads: ")
    assert re.fullmatch(
        r"commit (unknown|[0-9a-f]{7,}( \(changed since\))?); \d{4}-\d\d-\d\dT\d\d:\d\d UTC\.", made
    )
    assert command.startswith("`python bench/measure.py updates -k 'bench_pack_tril and")
    assert "scipy.linalg.blas" in legend[0] and max(map(len, legend)) <= 130
    assert header.startswith(
        "| benchmark | median | quartiles | best | floor |"
    ) and header.endswith("| error |")
    assert re.fullmatch(r"\| pack_tril\[100\] \|.* 0\.0e\+00 \|", row)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["missing"], "there is no bench_missing.py"),
        (["updates", "-k", "nothing_of_the_kind"], "no table is written"),
    ],
)
def test_no_table_is_written_without_rows(arguments, said, tmp_path):
    command = [sys.executable, BENCH / "measure.py", *arguments, "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode and said in done.stderr and not list(tmp_path.iterdir())


def test_missing_packages_are_named(bench, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *of: None if name == "pytest_benchmark" else find(name, *of),
    )
    with pytest.raises(
        SystemExit, match=r'needs pytest_benchmark: python -m pip install "\.\[bench\]"'
    ):
        bench("measure")


def test_no_device(bench, monkeypatch, capsys):
    monkeypatch.setattr(bench("device"), "REASON", "no CUDA device (for a reason)")
    with pytest.raises(SystemExit):
        bench("measure").main(["updates", "--device"])
    assert "--device: no CUDA device (for a reason)" in capsys.readouterr().err


# --- of a device -------------------------------------------------------------------------------


@pytest.fixture
def gpu(bench, monkeypatch, tmp_path):
    """Replace CuPy by one with one device, and a driver of its release."""
    properties = {
        "name": b"NVIDIA H200",
        "totalGlobalMem": 141 * 2**30,
        "multiProcessorCount": 132,
        "major": 9,
        "minor": 0,
    }
    runtime = types.SimpleNamespace(
        getDevice=lambda: 3,
        getDeviceProperties=lambda number: properties if number == 3 else None,
        driverGetVersion=lambda: 13010,
        runtimeGetVersion=lambda: 13020,
    )
    cuda = types.SimpleNamespace(
        runtime=runtime, nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 2))
    )
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda, __version__="14.2.0"))
    monkeypatch.setattr(bench("device"), "REASON", None)
    monkeypatch.setattr(bench("device"), "RELEASE", tmp_path / "version")
    (tmp_path / "version").write_text("580.65.06\n")


FACTS = (
    "NVIDIA H200, 141 GiB, 132 multiprocessors, compute capability 9.0; driver 580.65.06 (CUDA"
    " 13.1), CUDA runtime 13.2, CuPy 14.2.0, NVRTC 13.2"
)


def test_facts_describe_the_device(gpu, bench, tmp_path):
    assert bench("device").facts() == FACTS
    (tmp_path / "version").unlink()
    assert "; driver of unknown release (CUDA 13.1), " in bench("device").facts()


def test_wrong_answers_are_left_out(bench, monkeypatch, tmp_path):
    """Rows that fail are left out too, and the other rows are written.

    If the tests of the measured code fail, no table is written.
    """
    measure, calls = bench("measure"), []
    rows = [
        {"name": f"bench_step[{dtype}]", "stats": {"median": 1.0}, "extra_info": {"error": e}}
        for dtype, e in (
            ("float64", 1e-12),
            ("float32", 1e-4),
            ("float64-much", 1e-3),
            ("none", float("nan")),
        )
    ]
    monkeypatch.setattr(
        measure,
        "measured",
        lambda *call: ({"benchmarks": rows}, ["step[64]: CUDARuntimeError: no"]),
    )
    monkeypatch.setattr(measure, "test", calls.append)
    with pytest.raises(
        SystemExit,
        match=r"^missing rows: step\[64\]: .* no; step\[float64-much\]: error 1.0e-03, ",
    ):
        measure.main(["step", "--results", str(tmp_path)])
    assert [path.name for path in calls[0]][:2] == ["test_whitening.py", "test_elbo.py"]
    assert all(
        (BENCH.parent / "tests" / name).is_file()
        for names in measure.TESTS.values()
        for name in names
    )
    *_, header, _, one, two, _, failed, _, much, _, nan = (
        (tmp_path / "step.md").read_text(encoding="utf-8").splitlines()
    )
    assert one.startswith("| step[float64] |") and two.startswith("| step[float32] |")
    assert (
        failed == "Missing: step[64]: CUDARuntimeError: no"
        and nan == "Missing: step[none]: error nan, above 1e-06"
    )
    (tmp_path / "step.md").unlink()
    monkeypatch.setattr(measure, "measured", lambda *call: ({"benchmarks": rows[2:]}, []))
    with pytest.raises(SystemExit, match="no row is correct, so no table is written: step"):
        measure.main(["step", "--results", str(tmp_path)])
    monkeypatch.undo()
    monkeypatch.setattr(
        measure.subprocess, "run", lambda *call, **options: types.SimpleNamespace(returncode=1)
    )
    with pytest.raises(
        SystemExit, match="tests of what is measured ended with exit code 1: no table is written"
    ):
        measure.test([BENCH.parent / "tests" / "test_bench.py"])
    assert not list(tmp_path.iterdir())


def test_the_quietest_run_of_each_row(bench, monkeypatch, tmp_path):
    """The floor decides, whatever the time of the row; what failed once is named."""
    measure = bench("measure")

    def run(*floors_and_times):
        rows = [
            {"name": f"bench_{i}", "stats": {"median": time}, "extra_info": {"floor": floor}}
            for i, (floor, time) in enumerate(floors_and_times)
        ]
        return {"benchmarks": rows}, ["2: late"] * (len(rows) == 2)

    runs = [run((1.0, 3.0), (4.0, 8.0)), run((2.0, 2.0), (2.0, 9.0), (1.0, 1.0))]
    monkeypatch.setattr(measure, "measured", lambda *call: runs.pop())
    monkeypatch.setattr(measure, "test", lambda files: None)
    with pytest.raises(SystemExit, match="^missing rows: 2: late$"):
        measure.main(["step", "--runs", "2", "--results", str(tmp_path)])
    text = (tmp_path / "step.md").read_text(encoding="utf-8")
    assert "| 0 | 3 s | 1 s |" in text and "| 1 | 9 s | 2 s |" in text and "| 2 |" not in text
    assert "the one of 2 runs" in " ".join(text.split())


def test_failing_rows_are_reported(bench, tmp_path, monkeypatch):
    """Run a real file with one correct row and one wrong row."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    lines = (
        "def bench_right(benchmark): benchmark.pedantic(int)",
        "def bench_wrong(benchmark): raise ValueError('no device')",
    )
    (tmp_path / "bench_two.py").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npython_functions = bench_*\npython_files = bench_*.py\n", encoding="utf-8"
    )
    files = tmp_path / "bench_two.py", f"--rootdir={tmp_path}", f"-c{tmp_path}/pytest.ini"
    data, failed = bench("measure").measured(files, "", None)
    assert [row["name"] for row in data["benchmarks"]] == ["bench_right"]
    assert failed == ["wrong: ValueError: no device"]


def test_a_table_of_a_device(gpu, bench, monkeypatch, tmp_path):
    calls, row = (
        [],
        {
            "name": "bench_solve",
            "stats": {"median": 2e-3},
            "extra_info": {"floor": 1e-3},
        },
    )
    monkeypatch.setattr(
        bench("measure"),
        "measured",
        lambda *call: calls.append(call) or ({"benchmarks": [row]}, []),
    )
    monkeypatch.setattr(bench("measure"), "test", lambda files: calls.append("tests of the CPU"))
    bench("measure").main(["triangular", "--device", "--results", str(tmp_path)])
    assert calls == [([BENCH / "bench_triangular.py"], "on_device", None)]
    text = (tmp_path / "triangular_cuda.md").read_text(encoding="utf-8")
    assert text.startswith("# triangular_cuda\n") and f"\n{FACTS};\ncommit " in text
    assert "`python bench/measure.py triangular --device" in text
    assert "cuBLAS" in text and "cudaMemset" in text and "scipy.linalg.blas" not in text
    assert "| solve | 2 ms | 1 ms |" in text


def test_peers_on_a_device_say_which(gpu, bench, monkeypatch, capsys):
    peers = bench("peers")
    monkeypatch.setattr(peers, "compare", lambda *call: (1e9, []))
    peers.main(["--device", "cuda", "--sizes", "1,1"])
    printed = capsys.readouterr().out
    assert re.search(rf"\nBLAS SciPy's: .*\n{re.escape(FACTS)};\ncommit ", printed)
    assert "`python bench/peers.py --device cuda --sizes 1,1`" in printed
    peers.main(["--sizes", "1,1"])
    assert "NVIDIA" not in capsys.readouterr().out


def test_natural_steps_beside_those_of_peers(bench, capsys):
    """All steps of fastsvgp reach the same q; peers that are not installed are named."""
    bench("peers").main(["--step", "natural", "--sizes", "20,30,3,2", "--seconds", "0"])
    rows = [
        line.split(" | ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| 20, 30, 3, 2 | fastsvgp")
    ]
    assert [row[1] for row in rows] == ["fastsvgp", "fastsvgp, each of 10", "fastsvgp, Whitened"]
    assert all(float(row[6]) < 1e-10 and float(row[7].strip(" |")) < 1e-8 for row in rows)


def test_several_latent_functions_beside_peers_and_layers(bench, monkeypatch, tmp_path):
    """The table has a row per problem of fastsvgp, and the rows without peers."""
    latent_peers = bench("latent_peers")
    small = {kind: {"M": 5, "B": 12, "P": 3, "L": 2} for kind in latent_peers.SIZES}
    monkeypatch.setattr(latent_peers, "SIZES", small)
    monkeypatch.setattr(latent_peers, "PROGRAMS", {"fastsvgp": latent_peers.PROGRAMS["fastsvgp"]})
    latent_peers.main(["--rounds", "1", "--results", str(tmp_path)])
    lines = (tmp_path / "latent_peers.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    ours = [row for row in rows if row[1] == "fastsvgp"]
    assert [row[0].partition(",")[0] for row in ours] == list(small)
    assert all(row[-2:] == ["0.0e+00", "0.0e+00"] for row in ours)
    assert len([row for row in rows if row[0].startswith("elbo_and_grad")]) == len(small)
    assert lines[0] == "# latent_peers" and "`python bench/latent_peers.py --rounds 1" in lines[5]


def test_exported_files(bench, monkeypatch, tmp_path):
    """The table has a row for a triangle and one for a full factor; errors are rounding."""
    for tool in ("gcc", "size"):
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool}")
    export_files = bench("export_files")
    monkeypatch.setattr(export_files, "SAMPLES", 1)
    export_files.main(["--sizes", "8", "--results", str(tmp_path)])
    lines = (tmp_path / "export.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# export" and any("export_files.py --sizes 8" in line for line in lines)
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| 8, ")]
    assert [row[0] for row in rows] == ["8, narrow", "8, wide"]
    assert all(float(row[-1]) < 1e-13 for row in rows)


def test_pairs_of_ways(bench, monkeypatch, tmp_path):
    """The table has a row per size, with and without each way, and leaves the ways as they were."""
    pairs = bench("pairs")
    sizes = {way: ((4, 30, 1 if way == "compiled" else 3),) for way in pairs.SIZES}
    monkeypatch.setattr(pairs, "SIZES", sizes)
    settings = [getattr(module, name) for module, name, _ in pairs.SWITCHES.values()]
    pairs.main(["--repeats", "1", "--out", str(tmp_path / "pairs.md")])
    lines = (tmp_path / "pairs.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# pairs"
    assert any(line.startswith("`python bench/pairs.py --repeats 1") for line in lines)
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| 4, 30")]
    assert len(rows) == len(pairs.SWITCHES)
    assert all(float(row[3]) > 0 for row in rows)
    assert settings == [getattr(module, name) for module, name, _ in pairs.SWITCHES.values()]


def test_a_certificate_on_a_table(bench, monkeypatch, rng):
    """A row for each number of inducing inputs; distances from the exact evidence are positive."""
    certificate = bench("certificate")
    monkeypatch.setattr(certificate, "NUMBERS", (4, 8, 99))
    monkeypatch.setattr(certificate, "TRAINED_AT", 8)
    X = rng.uniform(-2, 2, (40, 1))
    lines = certificate.table("airfoil", X, np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(40))
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith(("| 4", "| 8"))]
    assert [row[0] for row in rows] == ["4", "8"] and lines[0].startswith("## airfoil: 40 rows")
    assert all(float(cell) >= 0 for row in rows for cell in row)


def test_a_step_in_company(bench, monkeypatch, capsys):
    loaded = bench("bench_loaded")
    monkeypatch.setattr(loaded, "OTHERS", 10)
    monkeypatch.setattr(loaded.time, "sleep", lambda seconds: None)
    loaded.main(["--sizes", "10,20", "--seconds", "0"])
    rows = [
        line.split(" | ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| 10, 20")
    ]
    assert [row[1] for row in rows][:4] == [
        "alone",
        "1 busy processes",
        "2 busy processes",
        "in turns with NumPy",
    ]
    assert all(int(row[2]) >= 20 and 0 < float(row[3]) <= float(row[4]) for row in rows)


def test_accuracy_against_time(bench, monkeypatch, tmp_path, capsys):
    """Train all programs of fastsvgp from one start.

    Natural steps in one pass and in two passes give the same trajectory.
    """
    rng, out = np.random.default_rng(0), tmp_path / "out"
    X = rng.uniform(-1, 1, (200, 2))
    np.savetxt(
        tmp_path / "data.csv",
        np.column_stack([X, np.sin(3 * X[:, 0]) + 0.05 * rng.standard_normal(200)]),
        delimiter=",",
    )
    np.savetxt(
        tmp_path / "mask.csv",
        np.repeat([[0, 1]], [1, 1], axis=1) + (np.arange(200) % 10 == 0)[:, None],
        delimiter=",",
    )
    accuracy = bench("time_to_accuracy")
    for name, value in (("INDUCING", 10), ("BATCH", 50), ("STEPS", 30), ("LOOKS", 3)):
        monkeypatch.setattr(accuracy, name, value)
    accuracy.main(
        ["start", str(tmp_path / "data.csv"), str(tmp_path / "mask.csv"), "--out", str(out)]
    )
    with np.load(out / "start.npz") as start:
        assert (
            start["rows"].shape == (30, 50)
            and len(start["yt"]) == 20
            and len(set(start["rows"][:3].ravel())) == 150
        )
    ours = [name for name in bench("accuracy_programs").PROGRAMS if name.startswith("fastsvgp")]
    accuracy.main(["train", *ours, "--out", str(out), "--seconds", "1e9"])
    problem, ends = dict(np.load(out / "start.npz")), {}
    for name in ours:
        program = bench("accuracy_programs").PROGRAMS[name](problem)
        for rows in problem["rows"]:
            program.step(rows)
        ends[name] = accuracy.nlpd(program.parameters(), problem["Xt"], problem["yt"])
    assert ends["fastsvgp, natural + Adam"] < 0.5 and all(value < 1.5 for value in ends.values())
    np.testing.assert_allclose(
        ends["fastsvgp, natural + Adam"], ends["fastsvgp, natural + Adam in two passes"], rtol=1e-6
    )
    accuracy.main(["train", *ours, "--out", str(out), "--seconds", "1e-9"])
    accuracy.main(["table", "--out", str(out), "--picture", str(tmp_path / "picture.png")])
    printed = capsys.readouterr().out
    assert (
        all(f"| {name} |" in printed for name in ours)
        and (tmp_path / "picture.png").stat().st_size > 10_000
    )
    curve = [(1.0, 1, 0.5), (2.0, 2, 0.2), (3.0, 3, 0.3), (4.0, 4, 0.1)]
    # it is below 0.2 at one evaluation, and then above
    times = [accuracy.reached(curve, level) for level in (0.6, 0.35, 0.2, 0.0)]
    np.testing.assert_allclose(times[:3], [1.0, 1.5, 3.5])
    assert times[3] is None


def test_rows_of_devices_are_marked(bench):
    """Both tables together have every row, and no row twice."""
    markers = "on_device", "not on_device"
    program = "import sys, pytest\nfor marker in sys.argv[1:]:\n    print('rows', marker)\n"
    options = "--collect-only", "-p", "no:cacheprovider", "bench", "-m"
    program += f"    assert not pytest.main([*{options}, marker])\n"
    command = [sys.executable, "-c", program, *markers]
    done = subprocess.run(command, cwd=BENCH.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, first, second = re.split("^rows .*$", done.stdout, flags=re.MULTILINE)
    listed = {
        marker: [line for line in part.splitlines() if "::" in line]
        for marker, part in zip(markers, (first, second), strict=True)
    }
    assert (
        all("on_device" in row or "bench_trsm_batched" in row for row in listed["on_device"])
        and listed["on_device"]
    )
    assert listed["not on_device"] and not any(
        "on_device" in row for row in listed["not on_device"]
    )
