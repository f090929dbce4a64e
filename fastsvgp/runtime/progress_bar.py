"""Training progress on stderr: a tqdm bar on a terminal, a few lines elsewhere."""

import sys
import threading
import time

LINES = 10  # printed without a terminal
PATIENCE = 3.0  # seconds without a first step before a note about compilation


class Progress:
    """Callback ``(step, value, info)`` that shows a moving average of the ELBO.

    Parameters
    ----------
    total : int
        Number of steps.
    quiet : bool
        Show nothing.

    Attributes
    ----------
    first_step : float
        Seconds until the end of the first step.
    """

    def __init__(self, total, quiet):
        self.total, self._quiet = total, quiet
        self._smooth = self._bar = self._shown = None
        self._last, self._started, self.first_step = 0.0, time.monotonic(), 0.0
        self._waiting = threading.Timer(PATIENCE, self._explain)
        self._waiting.daemon = True
        if not quiet:
            self._waiting.start()
        if not quiet and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                return
            layout = (
                "  training   {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt} [{elapsed},"
                " {remaining} left]{postfix}"
            )
            self._bar = tqdm(total=total, bar_format=layout, mininterval=0.1, dynamic_ncols=True)

    @property
    def has_started(self):
        """Whether a step has been taken."""
        return self._smooth is not None

    def _explain(self):
        print_beside(
            "  note       the first run of each kind compiles its kernels, which takes up to a"
            " minute; later runs do not"
        )

    def __call__(self, step, value, info):
        self._waiting.cancel()
        if self._smooth is None:
            self.first_step = time.monotonic() - self._started
        self._smooth = (
            value if self._smooth is None else self._smooth + 0.1 * (value - self._smooth)
        )
        if self._bar is not None:
            self._bar.update(step - self._bar.n)
            if time.monotonic() - self._last > 0.1:
                self._last = time.monotonic()
                self._bar.set_postfix_str(f"ELBO {self._smooth:.5g}", refresh=False)
        elif not self._quiet and (
            self._shown is None or step - self._shown >= self.total / LINES or step == self.total
        ):
            self._shown = step
            print(
                f"  training   step {step} of {self.total}, ELBO {self._smooth:.5g}",
                file=sys.stderr,
                flush=True,
            )

    def close(self):
        """Close the bar at the current step."""
        self._waiting.cancel()
        if self._bar is not None:
            if self._smooth is not None:
                self._bar.set_postfix_str(f"ELBO {self._smooth:.5g}", refresh=False)
            self._bar.close()


def print_beside(line):
    """Print a line without disturbing a bar."""
    tqdm = sys.modules.get("tqdm")
    if tqdm is not None:
        tqdm.tqdm.write(line, file=sys.stderr)
    else:
        print(line, file=sys.stderr)
