"""Test ``.ci/run`` with a stand-in for Python that records calls, and its copies."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
from importlib.metadata import version

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = ROOT / ".ci" / "run"
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
RUFF = r'"(ruff[<>=.,\d]+)"'
# A venv is a folder with the same stand-in; each recorded call starts with the environment's name.
STAND_IN = """#!/bin/bash
name="$(basename "$(dirname "$(dirname "$0")")")"
echo "$name: $* ${FASTSVGP_TEST_WORKERS:+workers $FASTSVGP_TEST_WORKERS}" >>"$SEEN"
if [ "$1 $2" = "-m venv" ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
if [[ "$*" == *"$BROKEN"* ]]; then echo "it is broken"; exit 3; fi
if [ "$1" = -c ]; then echo "$0"; fi
"""

pytestmark = pytest.mark.skipif(
    shutil.which("bash") is None or shutil.which("flock") is None, reason="needs bash and flock"
)


@pytest.fixture
def checks(tmp_path):
    """Return a function that runs the script: exit status, its lines, and the calls of Python."""
    (tmp_path / "stand-in").mkdir()
    python = tmp_path / "stand-in" / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)

    def call(*parts, broken="nothing"):
        seen = tmp_path / "seen"
        seen.write_text("")
        environment = os.environ | {
            "PYTHON": str(python),
            "SEEN": str(seen),
            "BROKEN": broken,
            "TMPDIR": str(tmp_path),
            "FASTSVGP_CI_CACHE": str(tmp_path / "cache"),
        }
        environment.pop("FASTSVGP_TEST_WORKERS", None)
        done = subprocess.run(
            ["bash", SCRIPT, *parts], env=environment, capture_output=True, text=True, timeout=120
        )
        return (
            done.returncode,
            (done.stdout + done.stderr).splitlines(),
            seen.read_text().splitlines(),
        )

    return call


def parts():
    return re.search(r'^ALL="(.*)"$', SCRIPT.read_text(encoding="utf-8"), re.M)[1].split()


def test_a_part_alone_makes_only_what_it_needs(checks):
    status, lines, calls = checks("lint")
    assert status == 0 and lines[-1].startswith("passed in ")
    assert [call.split(": ")[1].strip() for call in calls if "ruff" in call.split(": ")[0]] == [
        "-m pip install --quiet ruff>=0.17,<0.18",
        "-m ruff check .",
        "-m ruff format --check .",
    ]
    assert not [call for call in calls if ".[test]" in call]


def test_the_test_command_runs_where_only_its_extra_is_installed(checks):
    _, _, calls = checks("tests", "mpi", "interop")
    readme = [call.strip() for call in calls if call.startswith("readme: ")]
    assert readme[0] == "readme: -m pip install --quiet .[test]"
    assert readme[3:] == ["readme: -m pytest -n 2 --dist worksteal"]
    (installed,) = [call.strip() for call in calls if call.startswith("other: ") and ".[" in call]
    assert installed == "other: -m pip install --quiet .[interop,test,test-mpi] optax"
    assert any("--no-index --no-deps torch" in call for call in calls)


def test_refusals_are_repeated_with_the_kernels_of_another_processor(checks):
    _, _, calls = checks("refusals")
    assert [call.strip() for call in calls if "-m refusal" in call] == [
        "readme: -m pytest -m refusal"
    ]
    assert "OPENBLAS_CORETYPE=Haswell python -m pytest" in SCRIPT.read_text(encoding="utf-8")


def test_the_numba_cache_is_set_before_tests_run(checks):
    _, _, calls = checks("tests")
    made = [i for i, call in enumerate(calls) if ".ci/numba_cache.py" in call]
    ran = [i for i, call in enumerate(calls) if "-m pytest" in call]
    assert len(made) == len(ran) == 1 and made[0] < ran[0]


def test_parts_side_by_side_have_a_process_each(checks):
    _, lines, calls = checks("cuda", "interop")
    tests = [call for call in calls if "-m pytest" in call]
    assert len(tests) == 2 and all("workers -n 0" in call for call in tests)
    assert [line for line in lines if line.startswith("=== cuda: passed")]
    _, _, calls = checks("cuda")
    assert not [call for call in calls if "workers" in call]


def test_what_fails_is_named_and_the_rest_runs(checks):
    status, lines, calls = checks("tests", "mpi", "interop", broken="test_processes.py")
    assert status == 1 and "it is broken" in lines
    assert lines[-1] == "FAILED: mpi; a part alone: .ci/run PART"
    assert any("tests/interop" in call for call in calls)


def test_without_an_environment_no_part_runs(checks):
    status, lines, calls = checks("tests", "mpi", broken=".[test]")
    assert status == 1 and lines[-1].startswith("FAILED: readme_environment tests;")
    assert not [call for call in calls if "worksteal" in call]


def test_unknown_parts_are_refused(checks):
    status, lines, calls = checks("test")
    assert status == 2 and lines == [f"test is no part; there are: {' '.join(parts())}"]
    assert not calls


def test_help_lists_every_part(checks):
    _, lines, _ = checks("--help")
    assert [line.split()[0] for line in lines if line.startswith("  ")] == parts()


def test_the_workflow_runs_the_same_parts():
    text = WORKFLOW.read_text(encoding="utf-8")
    listed = re.search(r"part: \[(.*?)\]", text, re.S)[1].replace(",", " ").split()
    assert sorted([*listed, "tests"]) == sorted(parts())
    assert 'run: bash .ci/run "${{ matrix.part }}"' in text and "run: bash .ci/run tests" in text


def test_every_action_is_pinned_to_a_hash():
    uses = [
        line
        for path in WORKFLOW.parent.glob("*.yml")
        for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    ]
    assert uses
    assert not [line for line in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)]


def test_notes_of_a_release_need_a_dated_section():
    spec = importlib.util.spec_from_file_location("notes", ROOT / "tools" / "release_notes.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    text = "# Changelog\n\n## [0.2.0] - 2030-01-02\n\nnew\n\n## [0.1.0] - unreleased\n\nold\n"
    assert program.notes("v0.2.0", "0.2.0", text) == "new"
    for tag, number in (("v0.2.1", "0.2.0"), ("v0.1.0", "0.1.0"), ("v0.3.0", "0.3.0")):
        with pytest.raises(SystemExit, match="the tag is|needs a section"):
            program.notes(tag, number, text)


def test_one_ruff_formats_everywhere():
    pinned = {
        version
        for path in (SCRIPT, ROOT / ".pre-commit-config.yaml")
        for version in re.findall(RUFF, path.read_text(encoding="utf-8"))
    }
    assert pinned == {"ruff>=0.17,<0.18"}


def test_compiled_code_is_shared_by_copies_of_equal_sources(tmp_path):
    """Two checkouts share the folder of their sources; with a changed source they do not."""
    found = []
    for name, text in (("none", ""), ("one", "x = 1\n"), ("two", "x = 1\n"), ("three", "x = 2\n")):
        (tmp_path / name).mkdir()
        if text:
            kernels = tmp_path / name / "fastsvgp" / "kernels" / "cpu"
            (kernels / "common").mkdir(parents=True)
            (kernels / "common" / "simd.py").write_text(text)
        links = tmp_path / f"links-{name}"
        subprocess.run(
            [sys.executable, ROOT / ".ci" / "numba_cache.py", tmp_path / "cache", links],
            cwd=tmp_path / name,
            check=True,
        )
        found.append(
            {link.resolve() for link in links.iterdir() if link.name.startswith("common_")}
        )
    installed, one, two, three = found
    if not one:
        pytest.skip("this Numba tells sources by their times")
    one, two, three = one - installed, two - installed, three - installed
    assert one & two and not one & three and not two & three


def test_numba_looks_where_the_links_are(tmp_path):
    """A copy loads the code that another copy has compiled."""
    source = (
        "import numba\n\n\n@numba.njit(cache=True)\ndef twice(x):\n    return 2 * x\n\n\n"
        "twice(1.0)\nprint(sum(twice.stats.cache_hits.values()))\n"
    )
    hits = []
    for name in ("one", "two"):
        kernels = tmp_path / name / "fastsvgp" / "kernels" / "cpu"
        kernels.mkdir(parents=True)
        (kernels / "twice.py").write_text(source)
        links = tmp_path / f"links-{name}"
        script = [sys.executable, ROOT / ".ci" / "numba_cache.py", tmp_path / "cache", links]
        subprocess.run(script, cwd=tmp_path / name, check=True)
        if not list(links.iterdir()):
            pytest.skip("this Numba tells sources by their times")
        done = subprocess.run(
            [sys.executable, kernels / "twice.py"],
            env=os.environ | {"NUMBA_CACHE_DIR": str(links)},
            capture_output=True,
            text=True,
            check=True,
        )
        hits.append(int(done.stdout))
    assert hits == [0, 1]


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """The program that builds kernels, with a stand-in for the build."""
    spec = importlib.util.spec_from_file_location("kernels", ROOT / ".ci" / "kernels.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    build = tmp_path / "build.py"
    build.write_text(
        "import pathlib, sys\nout, level = sys.argv[1:]\n"
        "pathlib.Path(out, f'_kernels_{level}.so').write_text('built')\n"
        "with open(pathlib.Path(__file__).with_name('builds'), 'a') as file: file.write(level)\n"
    )
    (tmp_path / "checkout").mkdir()
    monkeypatch.setattr(program, "BUILD", build)
    monkeypatch.setattr(program, "KERNELS", tmp_path / "checkout")
    monkeypatch.setattr(program.ahead, "fitting", lambda: ["x86_64_v9", "x86_64_v8"])
    return program


def test_kernels_are_built_once_and_put_beside_the_sources(kernels, tmp_path):
    old = tmp_path / "checkout" / "_kernels_x86_64_v8.so"
    old.write_text("older")
    for _ in range(2):
        kernels.main(tmp_path / "cache")
        names = [file.name for file in (tmp_path / "checkout").iterdir()]
        assert names == ["_kernels_x86_64_v9.so"]
    assert (tmp_path / "builds").read_text() == "x86_64_v9"


def test_kernels_are_built_before_tests_run(checks):
    _, _, calls = checks("tests")
    made = [i for i, call in enumerate(calls) if ".ci/kernels.py" in call]
    ran = [i for i, call in enumerate(calls) if "-m pytest" in call]
    assert len(made) == len(ran) == 1 and made[0] < ran[0]


def test_the_fallback_and_the_wheel_are_tested(checks):
    _, _, calls = checks("fallback")
    assert [call.strip() for call in calls if "-m pytest" in call] == [
        "readme: -m pytest tests/kernels"
    ]
    text = SCRIPT.read_text(encoding="utf-8")
    assert "FASTSVGP_KERNELS=none python -m pytest" in text
    assert 'pip install --quiet --no-deps "$work"/compiled/*.whl' in text


def test_a_build_with_kernels_sees_its_requirements_and_the_sources_built(tmp_path):
    """Installers put what a build requires on the path, and the kernels are those of the wheel."""
    pytest.importorskip("setuptools")
    if not version("numba").startswith("0.68."):
        pytest.skip("setuptools would fetch the Numba that the build requires")
    for folder in ("fastsvgp", "tools", "required"):
        (tmp_path / folder).mkdir()
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "fastsvgp" / "__init__.py").write_text("")
    (tmp_path / "required" / "only_here.py").write_text("")
    (tmp_path / "tools" / "build_kernels.py").write_text(
        "import only_here, fastsvgp, pathlib, sys\n"
        "built = pathlib.Path(sys.argv[1]).parents[1]\n"
        "assert pathlib.Path(fastsvgp.__file__).parent == built\n"
        "(built / 'built').touch()\n"
    )
    build = [
        sys.executable, "-c",
        "import sys; sys.path.append('required'); sys.argv = ['setup.py', '-q', 'build_py'];"
        " exec(open('setup.py').read())",
    ]  # fmt: skip
    (tmp_path / "setup.cfg").write_text(
        "[metadata]\nname = fastsvgp\n[options]\npackages = fastsvgp\n"
    )
    for asked in ("0", "1"):
        environment = os.environ | {"FASTSVGP_BUILD_KERNELS": asked}
        subprocess.run(build, cwd=tmp_path, env=environment, check=True, capture_output=True)
        assert bool(list(tmp_path.glob("build/lib*/fastsvgp/built"))) == (asked == "1")
