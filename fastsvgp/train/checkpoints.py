"""Writing of checkpoints: when, and how an existing file at the same path is kept."""

import itertools
import json
import logging
import os
import time

import numpy as np

from .. import files
from ..records.persistence import DAMAGED, as_npz

log = logging.getLogger("fastsvgp")
SECONDS = 60.0  # least time between checkpoints
SHARE = 0.02  # largest fraction of the time that writing them takes
PREVIOUS = ".previous"


class Checkpoints:
    """The checkpoints of one call of ``fit``.

    Parameters
    ----------
    path : path or None
        File to write; None for no checkpoints.
    every : int or None
        Steps between checkpoints; None for one per minute.
    resumed : path or None
        The checkpoint that this training continues. Any other file at ``path`` is kept, under a
        name that ``_spare`` finds.

    Attributes
    ----------
    saved : int or None
        Step of the last checkpoint written.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, path, every, resumed):
        self.path, self.saved = path, None
        self._every, self._last, self._cost = every, self.clock(), 0.0
        self._resumed, self._in_the_way = resumed, False
        if path is None:
            return
        self.path = _check_path(path)
        files.clear_leftovers(self.path)
        if os.path.isfile(self.path) and not _same(self.path, resumed):
            self._in_the_way = True
            log.warning(
                "%s is there already: the first checkpoint of this training moves it to %s"
                " (resume=%r would continue from it)",
                self.path,
                _spare(os.path.realpath(self.path), resumed),
                self.path,
            )

    def due(self, step):
        """Return whether to write a checkpoint after this step."""
        if self.path is None:
            return False
        if self._every is not None:
            return step % self._every == 0
        return self.clock() - self._last >= max(SECONDS, self._cost / SHARE)

    def write(self, snapshot):
        """Write the state that ``snapshot()`` returns, unless ``path`` is None.

        A write error does not end the training: the old file stays, and a warning is logged.
        """
        if self.path is None:
            return
        started = self.clock()
        state, kept = snapshot(), []

        def keep(path):
            kept.append(_spare(path, self._resumed))
            return kept[0]

        try:
            files.write_atomically(
                self.path, as_npz(state, {}), keep=keep if self._in_the_way else None
            )
            self.saved, self._in_the_way = state.step, False
            for name in kept:
                log.info("what was at %s is kept as %s", self.path, name)
        except OSError as error:
            log.warning(
                "could not write the checkpoint %s at step %d (%s); an earlier one there is"
                " untouched, and training continues",
                self.path,
                state.step,
                error,
            )
        self._last = self.clock()
        self._cost = self._last - started

    def whereabouts(self, unit, done, total):
        """Return the note for an error that ends a training: steps done and last step saved."""
        note = f"fastsvgp.fit had done {done} of {total} {unit}s"
        if self.saved is None:
            return note
        return (
            f"{note}; {self.path} holds the state after {unit} {self.saved}, from which training"
            " can be resumed"
        )


def _spare(path, resumed):
    """Return where to move the file at ``path``: its name with ``.previous``, ``.previous-2``, ...

    The first usable name is taken. A name is usable if it is free, or if its file is a checkpoint
    with no more steps than the file at ``path``. A longer training is thus never overwritten, and
    repeated calls keep only one older file.
    """
    steps = _steps(path)
    for number in itertools.count(1):
        spare = f"{path}{PREVIOUS}-{number}" if number > 1 else path + PREVIOUS
        if not os.path.lexists(spare):
            return spare
        there = _steps(spare)
        if None not in (steps, there) and there <= steps and not _same(spare, resumed):
            return spare


def _steps(path):
    """Return the number of steps of the checkpoint in a file; None if it is not a checkpoint.

    Only the header is read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            tree = json.loads(str(file["__fastsvgp__"]))["tree"]
        ours = tree["type"] == "TrainingState" and "module" not in tree
        steps = tree["fields"]["step"]["static"] if ours else None
    except DAMAGED:
        return None
    return steps if type(steps) is int else None


def _check_path(path):
    """Return the path as text; refuse a folder, and a path in a folder that does not exist."""
    path = files.as_path("`checkpoint`", path)
    if os.path.isdir(path):
        raise ValueError(f"`checkpoint` {path} is a folder; name a file in it")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(
            f"`checkpoint` is to be written to {folder}, which is not a folder; make it first"
        )
    return path


def _same(path, other):
    return other is not None and os.path.exists(other) and os.path.samefile(path, other)
