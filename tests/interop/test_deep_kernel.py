"""The benchmark of deep kernels, on a small data set of the same form."""

import pathlib

import numpy as np
import pytest

torch = pytest.importorskip("torch")
BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def deep_kernel(monkeypatch, tmp_path, rng):
    monkeypatch.syspath_prepend(str(BENCH))
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("FASTSVGP_DATA", str(tmp_path))
    X = rng.uniform(-1, 1, (1500, 3))
    np.savetxt(tmp_path / "kin40k.data.csv.gz", np.c_[X, np.sin(4 * X.sum(axis=1))], delimiter=",")
    np.savetxt(
        tmp_path / "kin40k.test_mask.csv.gz", np.arange(1500)[:, None] % 10 == 0, delimiter=","
    )
    import deep_kernel

    threads = torch.get_num_threads()
    yield deep_kernel
    torch.set_num_threads(threads)
    deep_kernel.fs.set_num_threads(None)


def test_a_table_of_held_out_errors(deep_kernel, tmp_path, capsys):
    deep_kernel.main(["kin40k", "--epochs", "100", "--out", str(tmp_path / "deep_kernel.md")])
    lines = (tmp_path / "deep_kernel.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# deep_kernel" and "torch " in lines[2]
    cells = [line.strip("| ").split(" | ") for line in lines[-2:]]
    assert [row[1] for row in cells] == ["3-100-50-4 ReLU under the process", "the process alone"]
    assert all(row[0] == "kin40k, 1350 × 3" for row in cells) and float(cells[0][2]) < 0.4
    assert capsys.readouterr().out.splitlines() == lines[-2:]


def test_a_step(deep_kernel, rng):
    X, Z = (torch.from_numpy(rng.uniform(-3, 3, (n, 2))) for n in (40, 10))
    step = deep_kernel.our_step(X.requires_grad_(), torch.sin(X[:, 0]).detach(), Z)
    losses = [step() for _ in range(20)]
    assert losses[-1] < losses[0] and X.grad is not None
