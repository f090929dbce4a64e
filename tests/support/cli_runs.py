"""The command line in tests: a successful run, and its metrics."""

import json
import pathlib

from fastsvgp.cli import main


def run(capsys, *argv):
    """Return ``(out, err)`` of a command that must succeed."""
    code = main(list(argv))
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def results(folder):
    """Return the metrics that a fit has written."""
    return json.loads(pathlib.Path(folder, "metrics.json").read_text())
