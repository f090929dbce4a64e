"""``fastsvgp completion``: a script that lets a shell complete commands, options and file names."""

import argparse

from ..runtime.extras import install_hint
from .arguments import parser
from .errors import UsageError

FILES, FOLDERS = ("FILE", "MODEL", "FILE:COLUMN"), ("DIR",)  # metavars


def run(args):
    """Print the script, for ``eval "$(fastsvgp completion bash)"`` or a start-up file."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            f"completion needs shtab, which is not installed; {install_hint('cli')}"
        ) from error
    print(shtab.complete(_mark_paths(parser(), shtab), shell=args.shell))
    return 0


def _mark_paths(parser, shtab):
    """Mark the arguments of all commands that are files or folders for shtab."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _mark_paths(command, shtab)
        elif action.metavar in FILES:
            # a colon is special in zsh
            action.complete, action.metavar = shtab.FILE, action.metavar.partition(":")[0]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY
    return parser
