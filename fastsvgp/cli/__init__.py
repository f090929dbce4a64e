"""The ``fastsvgp`` command: fit, predict, export, demo, info, completion.

Bad input ends with one message on stderr and exit code 2. No traceback is printed unless
``--traceback`` is given, and no half-written file is left. Ctrl-C, SIGTERM and SIGHUP during
training keep the model so far and end with exit codes 130, 143 and 129.
"""

import argparse
import importlib
import os
import signal
import stat
import sys
import traceback

from ..runtime.signals import collect_signals
from .arguments import parser
from .errors import INTERRUPTED, UsageError
from .progress import notes

BAD_INPUT = 2


def main(argv=None):
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; default ``sys.argv[1:]``.

    Returns
    -------
    int
        Exit code: 0 for success, 2 for bad input (with one message on stderr), 130 for Ctrl-C,
        143 for SIGTERM, 129 for SIGHUP.
    """
    try:
        arguments = sys.argv[1:] if argv is None else list(argv)
        args = parser().parse_args(arguments, argparse.Namespace(words=arguments))
    except UsageError as error:
        return _fail("", error)
    with collect_signals(ending=True, hung_up=_mute) as received:
        code = _run(args)
    return 128 + (received[0] if received else signal.SIGINT) if code == INTERRUPTED else code


def _mute():
    """Discard output to a terminal that has gone, so that the model can still be written."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nothing, stream)
    os.close(nothing)


def _run(args):
    try:
        command = importlib.import_module(f"{__name__}.{args.command}")
        with notes(getattr(args, "quiet", False)):
            code = command.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, for example `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (
        MemoryError,
        OSError,
        ValueError,
        ArithmeticError,
    ) as error:  # NotPositiveDefinite is a ValueError
        if getattr(args, "traceback", False):
            traceback.print_exc()
        return _fail(args.command, _describe(error))


def _describe(error):
    if isinstance(error, MemoryError):
        return f"out of memory ({error}); give fewer --inducing points or a smaller --batch-size"
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename else ""
        return f"cannot use{where}: {error.strerror or error}"
    return error


def _fail(command, message):
    text = "; ".join([str(message), *getattr(message, "__notes__", [])])
    print(f"fastsvgp{command and ' '}{command}: error: {text}", file=sys.stderr)
    return BAD_INPUT
