"""When a training writes its checkpoints, and what becomes of a file that was there before."""

import itertools
import json
import logging
import os
import time

import numpy as np

from .. import files
from ..records.persistence import DAMAGED, as_npz

log = logging.getLogger("fastsvgp")
SECONDS = 60.0  # between checkpoints,
SHARE = 0.02  # or so long that writing them takes at most this part of the time
PREVIOUS = ".previous"


class Checkpoints:
    """The checkpoints of one call of ``fit``.

    Parameters
    ----------
    path : path or None
        Where; None for no checkpoints at all.
    every : int or None
        So many steps apart; None for once a minute.
    resumed : path or None
        The checkpoint that this training goes on from. Any other file at ``path`` is kept, under a
        name that ``_spare`` finds.

    Attributes
    ----------
    saved : int or None
        The step of the last one that could be written.
    """

    clock = staticmethod(time.monotonic)

    def __init__(self, path, every, resumed):
        self.path, self.saved = path, None
        self._every, self._last, self._cost = every, self.clock(), 0.0
        self._resumed, self._in_the_way = resumed, False
        if path is None:
            return
        self.path = _checked(path)
        files.clear_leftovers(self.path)
        if os.path.isfile(self.path) and not _same(self.path, resumed):
            self._in_the_way = True
            log.warning(
                "%s is there already: the first checkpoint of this training moves it to %s (resume=%r would go on from it)",
                self.path,
                _spare(os.path.realpath(self.path), resumed),
                self.path,
            )

    def due(self, step):
        """Whether it is time to write one after this step."""
        if self.path is None:
            return False
        if self._every is not None:
            return step % self._every == 0
        return self.clock() - self._last >= max(SECONDS, self._cost / SHARE)

    def write(self, snapshot):
        """Write the state that ``snapshot()`` returns, if there are to be checkpoints.

        A disk that fails does not end the training: the old file stays, and a warning is logged.
        """
        if self.path is None:
            return
        begun = self.clock()
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
                "could not write the checkpoint %s at step %d (%s); an earlier one there is untouched, and training goes on",
                self.path,
                state.step,
                error,
            )
        self._last = self.clock()
        self._cost = self._last - begun

    def whereabouts(self, unit, done, total):
        """What an error that ends a training is told: how many steps were ``done``, and which was the last saved, if any."""
        note = f"fastsvgp.fit had done {done} of {total} {unit}s"
        if self.saved is None:
            return note
        return (
            f"{note}; {self.path} holds the state after {unit} {self.saved}, from which training"
            " can be resumed"
        )


def _spare(path, resumed):
    """Where to keep the file at ``path``: its name with ``.previous``, or the first of ``.previous-2``, ... that may be used.

    A name may be used if it is free, or holds a checkpoint of no more steps than the file that
    takes its place. So a longer training is never overwritten, and a call that is made again and
    again keeps one older file.
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
    """How many steps the checkpoint in a file has; None of a file that is none.

    Only the header is read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            tree = json.loads(str(file["__fastsvgp__"]))["tree"]
        steps = tree["fields"]["step"]["static"] if tree["type"] == "TrainingState" else None
    except DAMAGED:
        return None
    return steps if type(steps) is int else None


def _checked(path):
    """The path as text.

    One that is a folder, or whose folder does not exist, is refused before any work is done.
    """
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
