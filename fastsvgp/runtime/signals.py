"""Signals that end a run: Ctrl-C, which Python can lose, and SIGTERM and SIGHUP, to save first."""

import signal
import threading
from contextlib import contextmanager

HANGUP = getattr(signal, "SIGHUP", None)  # not on Windows
ENDING = tuple(number for number in (signal.SIGTERM, HANGUP) if number is not None)


class _Watch:
    """Signal handler that records signals in ``received`` and raises ``KeyboardInterrupt``.

    While ``waits`` is true, the first signal is only recorded.
    """

    def __init__(self, hung_up):
        self.received, self.waits, self._hung_up = [], False, hung_up

    def __call__(self, number, frame):
        first = not self.received
        self.received.append(number)
        if number == HANGUP and self._hung_up is not None:
            self._hung_up()
        if first and self.waits:
            return
        if first or number == signal.SIGINT:
            raise KeyboardInterrupt


def _watch():
    """Return the handler of the open ``collect_signals``, or None."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, *ENDING)]
    return next((handler for handler in handlers if isinstance(handler, _Watch)), None)


def _is_main_thread():
    return threading.current_thread() is threading.main_thread()


@contextmanager
def collect_signals(ending=False, hung_up=None):
    """Collect signals in a list: Ctrl-C and, with ``ending``, SIGTERM and SIGHUP.

    Each also raises ``KeyboardInterrupt``. But if that exception lands in the callback of a weak
    reference, for example one with which the kernels recycle memory, Python prints it and
    continues: about once in fifty times, measured. A loop that checks the list after each step
    still ends. After the first signal only Ctrl-C raises again, because closing a terminal or
    stopping a service can send two signals at once.

    Only signals with their default handler are watched, and only from the main thread, which
    receives them; under ``nohup`` SIGHUP stays ignored. Inside another ``collect_signals`` the list
    is that of the outer one. At the end all handlers are restored. ``hung_up`` is called first at a
    SIGHUP.
    """
    outer = _watch()
    if outer is not None or not _is_main_thread():
        yield [] if outer is None else outer.received
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
        yield watch.received
    finally:
        for number, handler in watched.items():
            signal.signal(number, handler)


@contextmanager
def stop_after_step(ending):
    """``collect_signals`` for training: the first signal only waits in the list.

    A loop that checks the list after each step thus ends with a complete step. From the second
    signal on Ctrl-C raises immediately. At the end, SIGTERM and SIGHUP are raised again with their
    usual effect, unless this is inside a ``collect_signals``.
    """
    nested, received = _watch() is not None, []
    try:
        with collect_signals(ending) as received:
            # without effect if others handle all signals, and in threads that receive none
            watch = (_watch() if _is_main_thread() else None) or _Watch(None)
            before, watch.waits = watch.waits, True
            try:
                yield received
            finally:
                watch.waits = before
    finally:
        for number in received:
            if number in ENDING and not nested:
                signal.raise_signal(number)
