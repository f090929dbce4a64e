"""Run one cell: its checkpoint, the CPU seconds that it takes, and its result."""

import contextlib
import json
import logging
import math
import time

import numpy as np

import fastsvgp as fs

from .cells import few

EVERY = 30.0  # CPU seconds between writes of the notes
LOCK = ".lock"
SMALL = 100  # most numbers of a hyperparameter that a result lists


class Unfinished(Exception):
    """The time is over, or Ctrl-C: the cell goes on from its checkpoint."""

    def __init__(self, interrupted=False):
        super().__init__("unfinished")
        self.interrupted = interrupted


class Skipped(Exception):
    """The cell needs what is not here."""


def needs(there, what):
    """Skip the cell unless ``there``."""
    if not there:
        raise Skipped(what)


class Checkpoint:
    """The state of a cell: the checkpoint of ``fs.fit``, CPU seconds, and scores at some steps.

    Parameters
    ----------
    path : pathlib.Path
        File of the checkpoint; the notes are in a file beside it.
    until : float
        CPU seconds of this process after which a training stops.
    """

    def __init__(self, path, until=math.inf, clock=time.process_time):
        self.path, self.notes, self.until = path, path.with_suffix(".notes.json"), until
        self._clock, self._started = clock, clock()
        self.trace, self._before = {}, 0.0
        if self.notes.is_file():
            said = json.loads(self.notes.read_text(encoding="utf-8"))
            self._before = said["seconds"]
            self.trace = {int(step): scores for step, scores in said["trace"].items()}
        self._written = self.seconds

    @property
    def seconds(self):
        """CPU seconds of the cell so far, without those of scores at some steps."""
        return self._before + self._clock() - self._started

    def start(self, make):
        """Return the model of the checkpoint, or that which ``make()`` returns."""
        return fs.load(self.path).model if self.path.is_file() else make()

    def options(self, look=None):
        """Return the options of ``fs.fit`` by which a training goes on, and stops in time.

        ``look(step, model)`` is called after each step.
        """

        def watch(step, value, info):
            return self._watch(step, info.model, look)

        return self._files() | {"callback": watch}

    def options_of_blocks(self, look=None):
        """Return the same for ``fs.qsgp.optimal_weights`` by blocks."""

        def watch(model, info):
            return self._watch(info.iterations, model, look)

        return self._files() | {"callback": watch}

    def _files(self):
        resume = self.path if self.path.is_file() else None
        return {"checkpoint": self.path, "resume": resume}

    def _watch(self, step, model, look):
        if look is not None:
            look(step, model)
        self.keep()
        return self.over

    def finish(self, info):
        """Raise ``Unfinished`` if a training by ``fs.fit`` ended early."""
        if info.reason in ("interrupted", "callback"):
            self.stop(info.interrupted)

    def stop(self, interrupted=False):
        """Raise ``Unfinished``."""
        self.keep(now=True)
        raise Unfinished(interrupted)

    @property
    def over(self):
        """Whether the time is over."""
        return self._clock() > self.until

    def look(self, steps, scores):
        """Return a ``look`` that keeps ``scores(model)``, a dict, at these steps."""

        def at(step, model):
            if step in steps:
                before = self._clock()
                self.trace[step] = {"seconds": round(self.seconds, 1), **scores(model)}
                self._started += self._clock() - before
                self.keep(now=True)

        return at

    def keep(self, now=False):
        """Write seconds and scores, if it is time to."""
        if now or self.seconds > self._written + EVERY:
            said = {"seconds": self.seconds, "trace": self.trace}
            self.notes.write_text(json.dumps(said), encoding="utf-8")
            self._written = self.seconds

    def remove(self):
        """Remove the files of a finished cell."""
        for path in (self.path, self.notes, self.path.with_suffix(LOCK)):
            path.unlink(missing_ok=True)


def hyperparameters(model):
    """Return covariance and likelihood of a model as numbers and lists, by path."""
    found = {}
    for path, _, value in fs.records.leaves(model):
        ours = "covariance" in path or path.startswith("likelihood")
        if ours and value is not None and np.size(value) <= SMALL:
            found[path] = np.asarray(value).tolist()
    return found


def outcome(model, info, data, scores):
    """Return the result of a training by ``fs.fit``."""
    return {
        "scores": scores,
        "bound a datum": float(info.smoothed / len(data.X)),
        "hyperparameters": hyperparameters(model),
        "steps": info.steps,
    }


@contextlib.contextmanager
def claimed(path):
    """Yield whether this process alone works on the cell of a checkpoint.

    The lock ends with the process. ``Checkpoint.remove`` removes its file.
    """
    import fcntl

    with open(path.with_suffix(LOCK), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


@contextlib.contextmanager
def without_warnings():
    """Keep what the package logs below errors from the output."""
    log = logging.getLogger("fastsvgp")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def run(cell, split, steps, checkpoint, quick=False, part="test"):
    """Return the result of a cell, without what identifies it."""
    data = cell.data(split, part)
    with without_warnings():
        found = cell.program(few(data) if quick else data, split, steps, checkpoint)
    found.setdefault("steps", steps)
    if checkpoint.trace:
        found["trace"] = [{"step": k, **v} for k, v in sorted(checkpoint.trace.items())]
    return found | {"CPU seconds": round(checkpoint.seconds, 1)}
