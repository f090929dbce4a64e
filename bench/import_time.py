"""Measure the time of ``import fastsvgp`` beyond ``import numpy``, in interleaved new processes.

Prints medians and minima in milliseconds.
"""

import subprocess
import sys
import time
from statistics import median

STATEMENTS = {
    "python": "pass",
    "numpy": "import numpy",
    "fastsvgp": "import fastsvgp",
    "fastsvgp and the names of a model": (
        "import fastsvgp as fs; fs.SVGP, fs.RBF, fs.Whitened, fs.Gaussian"
    ),
}


def main(rounds=15):
    times = {name: [] for name in STATEMENTS}
    for _ in range(rounds):
        for name, statement in STATEMENTS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True)
            times[name].append(1e3 * (time.perf_counter() - start))
    print("| import | median ms | best ms | best beyond numpy, ms |\n| --- | --- | --- | --- |")
    for name, t in times.items():
        print(f"| {name} | {median(t):.0f} | {min(t):.0f} | {min(t) - min(times['numpy']):.0f} |")


if __name__ == "__main__":
    main()
