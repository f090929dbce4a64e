"""Signals that ask for the end: Ctrl-C, which Python loses now and then; SIGTERM and SIGHUP, at which there is time to save."""

import signal
import threading
from contextlib import contextmanager

HANGUP = getattr(signal, "SIGHUP", None)  # not on Windows
ENDING = tuple(number for number in (signal.SIGTERM, HANGUP) if number is not None)


class _Watch:
    """A handler of signals: notes them in ``asked`` and raises ``KeyboardInterrupt``, but for the first while it ``waits``."""

    def __init__(self, hung_up):
        self.asked, self.waits, self._hung_up = [], False, hung_up

    def __call__(self, number, frame):
        first = not self.asked
        self.asked.append(number)
        if number == HANGUP and self._hung_up is not None:
            self._hung_up()
        if first and self.waits:
            return
        if first or number == signal.SIGINT:
            raise KeyboardInterrupt


def _watch():
    """The handler of the ``collect_signals`` that is open, or None."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, *ENDING)]
    return next((handler for handler in handlers if isinstance(handler, _Watch)), None)


def _in_main_thread():
    return threading.current_thread() is threading.main_thread()


@contextmanager
def collect_signals(ending=False, hung_up=None):
    """A list that is empty until Ctrl-C is pressed or, with ``ending``, SIGTERM or SIGHUP comes; it holds their numbers.

    The ``KeyboardInterrupt`` of Ctrl-C comes as ever, and one for the others. But where it lands in
    the callback of a weak reference, such as those by which the kernels hand memory on, Python
    prints it and goes on: once in about fifty times, measured. A loop that looks here after each
    step ends all the same. After a first signal only Ctrl-C raises again: who ends a service or
    closes a terminal may send two at once, and the first is being obeyed.

    Only what nobody else handles is watched, and only from the main thread, where signals arrive;
    under ``nohup`` SIGHUP stays ignored. Inside another ``collect_signals`` this is the list of that
    one. At the end all handlers are as they were. ``hung_up`` is called first at a SIGHUP.
    """
    outer = _watch()
    if outer is not None or not _in_main_thread():
        yield [] if outer is None else outer.asked
        return
    watch = _Watch(hung_up)
    usual = {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(
        ENDING if ending else (), signal.SIG_DFL
    )
    watched = {
        number: handler for number, handler in usual.items() if signal.getsignal(number) == handler
    }
    try:
        for number in watched:
            signal.signal(number, watch)
        yield watch.asked
    finally:
        for number, handler in watched.items():
            signal.signal(number, handler)


@contextmanager
def stop_after_step(ending):
    """``collect_signals`` for a training: the first signal waits; SIGTERM and SIGHUP are raised again at the end.

    The first is noted and no more: a loop that looks at the list after each step ends with all of
    that step done. From the second signal on Ctrl-C raises, wherever it lands. Inside a
    ``collect_signals`` the first signal waits for as long as this is open.
    """
    nested, asked = _watch() is not None, []
    try:
        with collect_signals(ending) as asked:
            # one of no signal where others handle them all, and in threads that get none
            watch = (_watch() if _in_main_thread() else None) or _Watch(None)
            before, watch.waits = watch.waits, True
            try:
                yield asked
            finally:
                watch.waits = before
    finally:
        for number in asked:
            if number in ENDING and not nested:
                signal.raise_signal(number)
