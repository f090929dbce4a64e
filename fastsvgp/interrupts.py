"""Signals that ask for the end: Ctrl-C, which Python loses now and then; SIGTERM and SIGHUP, at which there is time to save."""

import signal
import threading
from contextlib import contextmanager

HANGUP = getattr(signal, "SIGHUP", None)  # not on Windows
ENDING = tuple(number for number in (signal.SIGTERM, HANGUP) if number is not None)


class _Watch:
    """A handler of signals: notes them in ``asked``, and raises ``KeyboardInterrupt``."""

    def __init__(self, hung_up):
        self.asked, self._hung_up = [], hung_up

    def __call__(self, number, frame):
        first = not self.asked
        self.asked.append(number)
        if number == HANGUP and self._hung_up is not None:
            self._hung_up()
        if first or number == signal.SIGINT:
            raise KeyboardInterrupt


def _outer():
    """The handler of a ``remembered`` that is open already, or None."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, *ENDING)]
    return next((handler for handler in handlers if isinstance(handler, _Watch)), None)


@contextmanager
def remembered(ending=False, hung_up=None):
    """A list that is empty until Ctrl-C is pressed or, with ``ending``, SIGTERM or SIGHUP comes; it holds their numbers.

    The ``KeyboardInterrupt`` of Ctrl-C comes as ever, and one for the others. But where it lands in the callback of a weak
    reference, such as those by which the kernels hand memory on, Python prints it and goes on: once in about fifty times,
    measured. A loop that looks here after each step ends all the same. After a first signal only Ctrl-C raises again: who ends
    a service or closes a terminal may send two at once, and the first is being obeyed.

    Only what nobody else handles is watched, and only from the main thread, where signals arrive; under ``nohup`` SIGHUP stays
    ignored. Inside another ``remembered`` this is the list of that one. At the end all handlers are as they were. ``hung_up`` is
    called first at a SIGHUP.
    """
    outer = _outer()
    if outer is not None or threading.current_thread() is not threading.main_thread():
        yield [] if outer is None else outer.asked
        return
    watch = _Watch(hung_up)
    usual = {signal.SIGINT: signal.default_int_handler} | dict.fromkeys(ENDING if ending else (), signal.SIG_DFL)
    watched = {number: handler for number, handler in usual.items() if signal.getsignal(number) == handler}
    try:
        for number in watched:
            signal.signal(number, watch)
        yield watch.asked
    finally:
        for number, handler in watched.items():
            signal.signal(number, handler)


@contextmanager
def obeyed(ending):
    """``remembered`` for a training: in the end SIGTERM and SIGHUP do what they would have done at once."""
    nested, asked = _outer() is not None, []
    try:
        with remembered(ending) as asked:
            yield asked
    finally:
        for number in asked:
            if number in ENDING and not nested:
                signal.raise_signal(number)
