"""``fastsvgp completion``: a script by which a shell completes commands, options and file names."""

import argparse

from ..runtime.extras import install_hint
from .arguments import parser
from .errors import UsageError

FILES, FOLDERS = ("FILE", "MODEL", "FILE:COLUMN"), ("DIR",)  # metavars


def run(args):
    """Print the script, for ``eval "$(fastsvgp completion bash)"`` or a file that the shell reads at its start."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            f"the script is made by shtab, which is not installed; {install_hint('cli')}"
        ) from error
    print(shtab.complete(_with_paths(parser(), shtab), shell=args.shell))
    return 0


def _with_paths(parser, shtab):
    """Tell shtab which arguments are files and which are folders; of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _with_paths(command, shtab)
        elif action.metavar in FILES:
            # zsh has a meaning of its own for it
            action.complete, action.metavar = shtab.FILE, action.metavar.partition(":")[0]
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY
    return parser
