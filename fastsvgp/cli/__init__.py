"""The ``fastsvgp`` command: fit, predict, demo, info.

Bad input ends in one message on stderr and exit code 2, without a traceback and without a half-written file; Ctrl-C during
training keeps the model so far and ends in exit code 130.
"""

import importlib
import os
import sys

from .arguments import parser
from .errors import UsageError
from .progress import notes

INTERRUPTED = 130
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
        Exit code: 0 done, 2 bad input (one message on stderr), 130 interrupted.
    """
    try:
        args = parser().parse_args(argv)
    except UsageError as error:
        return _fail("", error)
    try:
        command = importlib.import_module(f"{__name__}.{args.command}")
        with notes():
            code = command.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except MemoryError as error:
        return _fail(args.command, f"out of memory ({error}); try fewer --inducing points or a smaller --batch-size")
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        return _fail(args.command, f"cannot use{where}: {error.strerror or error}")
    except (ValueError, ArithmeticError) as error:  # LinAlgError, and so NotPositiveDefinite, is a ValueError
        return _fail(args.command, error)


def _fail(command, message):
    text = "; ".join([str(message), *getattr(message, "__notes__", [])])
    print(f"fastsvgp{command and ' '}{command}: error: {text}", file=sys.stderr)
    return BAD_INPUT
