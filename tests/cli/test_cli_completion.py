"""``fastsvgp completion``: the shell accepts the script, and what it proposes."""

import shutil
import subprocess
import sys

import pytest
from support.cli_runs import run

from fastsvgp.cli import main


@pytest.fixture
def bash(tmp_path, capsys):
    """``propose(words...)`` returns what bash proposes for the last word."""
    pytest.importorskip("shtab")
    if (program := shutil.which("bash")) is None:
        pytest.skip("no bash")
    script = tmp_path / "completion.bash"
    script.write_text(run(capsys, "completion", "bash")[0])
    subprocess.run([program, "-n", script], check=True)
    (tmp_path / "data.csv").write_text("")
    (tmp_path / "data-fit").mkdir()
    ask = (
        '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); $(complete -p fastsvgp | sed "s/.*-F'
        ' \\([^ ]*\\) .*/\\1/")'
    )

    def propose(*words):
        code = ask + '; printf "%s\\n" "${COMPREPLY[@]}"'
        found = subprocess.run(
            [program, "-c", code, script, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout.split()

    return propose


def test_bash_completes_commands_options_choices_and_files(bash):
    assert bash("fastsvgp", "fit", "--mis") == ["--missing"]
    assert bash("fastsvgp", "fit", "--missing", "") == ["error", "median"]
    assert bash("fastsvgp", "fit", "--covariance", "matern5") == ["matern52"]
    assert bash("fastsvgp", "comp") == ["completion"]
    assert bash("fastsvgp", "completion", "") == ["bash", "zsh"]
    assert sorted(bash("fastsvgp", "fit", "dat")) == ["data-fit", "data.csv"]
    assert bash("fastsvgp", "fit", "--out", "dat") == ["data-fit"]
    assert bash("fastsvgp", "fit", "--test-mask", "data.") == ["data.csv"]
    assert bash("fastsvgp", "predict", "data-fit", "data.") == ["data.csv"]


def test_zsh_script(tmp_path, capsys):
    pytest.importorskip("shtab")
    out, _ = run(capsys, "completion", "zsh")
    assert out.startswith("#compdef fastsvgp") and "--missing[" in out and "]:FILE:_files" in out
    assert "FILE:COLUMN" not in out  # zsh would run a command COLUMN
    if (program := shutil.which("zsh")) is not None:
        (tmp_path / "_fastsvgp").write_text(out)
        subprocess.run([program, "-n", tmp_path / "_fastsvgp"], check=True)


def test_without_shtab(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(
        "fastsvgp completion: error: completion needs shtab, which is not installed; "
    )
    assert 'python -m pip install "fastsvgp[cli]"' in err and err.count("\n") == 1


def test_another_shell(capsys):
    assert main(["completion", "fish"]) == 2
    assert (
        "argument SHELL: invalid choice: 'fish' (choose from 'bash', 'zsh')"
        in capsys.readouterr().err
    )
