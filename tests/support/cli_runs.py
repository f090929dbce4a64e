"""The command line in tests: a run that ends well, and what it leaves."""

import json
import pathlib

from fastsvgp.cli import main


def run(capsys, *argv):
    """``(out, err)`` of a command that ends well."""
    code = main(list(argv))
    out, err = capsys.readouterr()
    assert code == 0, err
    return out, err


def results(folder):
    """The metrics that a fit has written."""
    return json.loads(pathlib.Path(folder, "metrics.json").read_text())
