"""Signal handlers: which signals are collected, which are not, and that handlers are restored."""

import os
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

from fastsvgp.runtime import signals
from fastsvgp.runtime.signals import collect_signals, stop_after_step

ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def usual():
    """Return the handlers of a program that sets none."""
    before = {number: signal.getsignal(number) for number in ALL}
    for number in ALL:
        signal.signal(
            number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        )
    yield {number: signal.getsignal(number) for number in ALL}
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers():
    return {number: signal.getsignal(number) for number in ALL}


@pytest.mark.parametrize("number", ALL)
def test_signal_raises_and_is_collected_and_handlers_return(usual, number):
    with pytest.raises(KeyboardInterrupt), collect_signals(ending=True) as received:
        signal.raise_signal(number)
    assert received == [number] and handlers() == usual


def test_without_ending_only_ctrl_c_is_watched(usual):
    with collect_signals():
        assert signal.getsignal(signal.SIGINT) != usual[signal.SIGINT]
        assert handlers() | {signal.SIGINT: None} == usual | {signal.SIGINT: None}


def test_after_the_first_only_ctrl_c_raises_again(usual):
    with collect_signals(ending=True) as received:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGTERM, signal.SIGHUP, signal.SIGINT] and handlers() == usual


def test_what_others_handle_or_ignore_is_left_to_them(usual):
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    with collect_signals(ending=True) as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    assert seen == [signal.SIGTERM] and received == []


@pytest.mark.parametrize("number", ALL)
def test_first_signal_waits_in_a_training_and_second_raises(usual, monkeypatch, number):
    delivered = []
    with stop_after_step(ending=True) as received:
        monkeypatch.setattr(signals.signal, "raise_signal", delivered.append)
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [number, signal.SIGTERM]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert delivered == [] and handlers() != usual
    assert received == [number, signal.SIGTERM, signal.SIGINT] and handlers() == usual
    assert delivered == [n for n in (number, signal.SIGTERM) if n != signal.SIGINT]


def test_nested_collector_shares_the_list_of_the_outer_one(usual, monkeypatch):
    delivered = []
    with collect_signals(ending=True) as outer:
        monkeypatch.setattr(signals.signal, "raise_signal", delivered.append)
        with stop_after_step(ending=True) as inner:
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    assert (
        inner is outer
        and outer == [signal.SIGTERM, signal.SIGINT]
        and delivered == []
        and handlers() == usual
    )


def test_first_signal_raises_again_after_a_nested_training(usual):
    with pytest.raises(KeyboardInterrupt), collect_signals(ending=True) as received:
        with stop_after_step(ending=True):
            with stop_after_step(ending=True):  # a callback that trains another model
                pass
            waited = signal.getsignal(signal.SIGTERM).waits
        assert waited and received == []
        os.kill(os.getpid(), signal.SIGTERM)
    assert received == [signal.SIGTERM] and handlers() == usual


def test_in_another_thread_nothing_is_touched(usual):
    found = []

    def look(which):
        with which(ending=True) as received:
            found.append((received, handlers()))
            waits.append(getattr(signal.getsignal(signal.SIGINT), "waits", None))

    def elsewhere(which):
        thread = threading.Thread(target=look, args=(which,))
        thread.start()
        thread.join()

    waits = []
    elsewhere(collect_signals)
    elsewhere(stop_after_step)
    assert found == [([], usual)] * 2 and waits == [None, None]
    with collect_signals():
        elsewhere(stop_after_step)
    # signals come to the main thread, which does not train: they do not wait
    assert waits[-1] is False


def test_a_closed_terminal_is_reported_first(usual):
    calls = []
    with collect_signals(ending=True, hung_up=lambda: calls.append("gone")):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
    assert calls == ["gone"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_training_obeys_when_it_is_done(number):
    """The signal ends the process, as its parent expects, but only after the work is done."""
    program = f"""
import os, signal
from fastsvgp.runtime.signals import stop_after_step
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with stop_after_step(ending=True) as received:
    os.kill(os.getpid(), {int(number)})
    while not received:
        pass
    print("saved", flush=True)
print("never", flush=True)
"""
    root = pathlib.Path(signals.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert done.returncode == -number and done.stdout.splitlines() == ["saved"], done
