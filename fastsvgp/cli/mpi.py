"""``--mpi``: run a command on every rank of an MPI job. Only rank 0 prints and writes."""

import argparse
import contextlib
import os
import tempfile
import time

import numpy as np

from .. import RemoteError, distributed, get_num_threads
from ..distributed.broadcast import broadcast_file
from ..distributed.groups.mpi import library
from ..distributed.protocol import Communicator, is_reported, mark_reported
from .data.source import STANDARD_INPUT
from .errors import UsageError
from .report.outputs import CHECKPOINT, default_folder

# environment variables in which launchers pass the number of ranks
LAUNCHED = "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"
BAD_INPUT = 2
NUMBERS = 2**19  # in the timed all-reduce: 4 MiB, the factor of 1000 inducing inputs
ROUNDS = 20


def refuse_copies(instead="give --mpi to train one model on all of them"):
    """Refuse to run as one of several independent copies: they would write the same files."""
    for name in LAUNCHED:
        if os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 1:
            raise UsageError(
                f"a launcher started {os.environ[name]} copies of this command ({name}), which"
                f" would write the same files; {instead}"
            )


def run_on_ranks(run, args):
    """Run ``run(args, group)`` on every rank and return the exit code.

    All ranks learn of an error before training here, and of an error in training from ``fit``. Any
    other exception ends the job. Errors after training come out of ``ranks_apart``: no rank waits
    for them.
    """
    if args.file == STANDARD_INPUT:
        raise UsageError(
            "--mpi: every rank reads FILE, but standard input can be read only once; give a file"
        )
    group = distributed.mpi()
    with contextlib.ExitStack() as stack:
        if group.rank:
            _mute(stack)
        try:
            return run(_own_place(stack, group, args), group)
        except Exception as error:
            if not is_reported(error):
                try:
                    Communicator.of(group).agree(None, error)
                except RemoteError as other:
                    error = other
                except Exception as own:
                    error = own
            if group.rank:
                return BAD_INPUT  # rank 0 prints the message
            if isinstance(error, RemoteError):
                raise UsageError(str(error)) from error
            raise error from None
        except BaseException:
            group.abort(130)
            raise


@contextlib.contextmanager
def ranks_apart():
    """Mark errors after training as errors of one rank, for which no other rank waits."""
    try:
        yield
    except Exception as error:
        mark_reported(error)
        raise


def _mute(stack):
    nothing = stack.enter_context(open(os.devnull, "w"))
    stack.enter_context(contextlib.redirect_stdout(nothing))
    stack.enter_context(contextlib.redirect_stderr(nothing))


def _own_place(stack, group, args):
    """Return the arguments of this rank.

    Ranks other than 0 are quiet and write to a temporary folder. To resume, it receives the
    checkpoint of rank 0.
    """
    folder = args.out or default_folder(args.file)
    path, communicator = os.path.join(folder, CHECKPOINT), Communicator.of(group)
    if group.rank:
        own = stack.enter_context(tempfile.TemporaryDirectory())
        args = argparse.Namespace(**vars(args) | {"out": own, "quiet": True})
    if not args.resume:
        return args
    (there, *_) = communicator.gather({"_there": os.path.isfile(path)})
    if there["_there"]:
        content = broadcast_file(communicator, path)
        if group.rank:
            with open(os.path.join(args.out, CHECKPOINT), "wb") as file:
                file.write(content)
    return args


def info_rows():
    """Yield ``(name, value)`` pairs about the job, on every rank."""
    MPI, group = library(), distributed.mpi()
    hosts = sorted(set(group.comm.allgather(MPI.Get_processor_name())))
    threads = sorted(set(group.comm.allgather(get_num_threads())))
    yield "MPI", MPI.Get_library_version().splitlines()[0].strip("\0 ")
    yield "ranks", f"{group.size} on {len(hosts)} host{'s'[: len(hosts) != 1]}: {', '.join(hosts)}"
    yield "per rank", f"{' or '.join(map(str, threads))} thread{'s'[: threads != [1]]}"
    buffer, times = np.ones(NUMBERS), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        group.sum(buffer)
        times.append(time.perf_counter() - start)
        buffer[:] = 1
    yield (
        "all-reduce",
        (
            f"{1e3 * float(np.median(times)):.2f} ms for {buffer.nbytes / 2**20:.0f} MiB over the"
            " ranks"
        ),
    )


def rank():
    """Return the rank of this process in the job."""
    return library().COMM_WORLD.Get_rank()
