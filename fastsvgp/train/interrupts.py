"""Ctrl-C, which Python loses now and then."""

import signal
import threading
from contextlib import contextmanager


@contextmanager
def remembered():
    """A list that is empty until Ctrl-C is pressed.

    The ``KeyboardInterrupt`` comes as ever. But where it lands in the callback of a weak reference, such as those by which the
    kernels hand memory on, Python prints it and goes on: once in about fifty times, measured. A loop that looks here after each
    step ends all the same. Only Python's own handler is watched, and only from the main thread, where signals arrive.
    """
    pressed = []

    def remember(number, frame):
        pressed.append(number)
        signal.default_int_handler(number, frame)

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed
        return
    try:
        signal.signal(signal.SIGINT, remember)
        yield pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
