"""One first call in a new process, for ``first_calls.py``; prints what it took, as JSON.

``python bench/one_first_call.py CALL [--count]``: seconds, modules and peak memory, or instead what
Numba compiles. Nothing is imported that the call does not need.
"""

import contextlib
import os
import sys
import time

SIZES = {"step": (100, 256), "large step": (300, 1024), "bound": (100, 500)}  # (M, B)
COMMANDS = {
    "predict": ["predict", "model.npz", "row.csv"],
    "help": ["--help"],
    "demo": ["demo", "--quiet", "--out", "demo"],
}


def data(N):
    import numpy as np

    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 8))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)


def on_models(call):
    """Return a step of an SVGP, or the bound of an SGPR and its gradient."""
    import numpy as np

    import fastsvgp as fs

    M, B = SIZES[call]
    X, y = data(max(500, B))
    covariance, inducing = fs.RBF(1.0, np.ones(8)), X[:M].copy()
    if call == "bound":
        sgpr = fs.SGPR(covariance, inducing, 0.1)
        return lambda: fs.collapsed_bound_and_grad(sgpr, X, y)
    model = fs.SVGP(
        covariance, inducing, fs.Whitened(np.zeros(M), np.eye(M)), fs.Gaussian(variance=0.1)
    )
    return lambda: fs.elbo_and_grad(model, X[:B], y[:B])


def of_estimator(call):
    """Return a fit; the first call imports the estimator, but not scikit-learn."""
    import sklearn.gaussian_process
    import sklearn.model_selection  # noqa: F401

    X, y = data(500)

    def fit():
        from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

        return SVGPRegressor().fit(X, y) if call == "regressor" else SVGPClassifier().fit(X, y > 0)

    return fit


def of_command(call):
    """Return a run of the command line, without its output."""

    def run():
        from fastsvgp.cli import main

        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            with contextlib.suppress(SystemExit):  # of --help
                if code := main(COMMANDS[call]):
                    raise RuntimeError(f"fastsvgp {call} ended with exit code {code}")

    return run


def imports(call):
    """Return the import of the package and of the names of a model, beyond that of NumPy."""
    import numpy  # noqa: F401

    def run():
        import fastsvgp as fs

        return fs.SVGP, fs.RBF, fs.Whitened, fs.Gaussian

    return run


CALLS = {
    "import": imports,
    **dict.fromkeys(SIZES, on_models),
    "regressor": of_estimator,
    "classifier": of_estimator,
    **dict.fromkeys(COMMANDS, of_command),
}


@contextlib.contextmanager
def counted():
    """Count what Numba compiles: yields a dict of functions, and of instructions of LLVM.

    Instructions are lowered from Python, given to the optimiser, and to the generator of machine
    code; ``distinct`` counts those of a function once that several entries contain. The counts of
    equal sources and versions are equal, whatever the load of the machine.
    """
    from numba.core import event
    from numba.core.codegen import CPUCodeLibrary as Library

    counts = dict.fromkeys(("functions", "lowered", "optimised", "generated", "distinct"), 0)
    seen = set()
    add, optimise = Library.add_ir_module, Library._optimize_final_module

    def size(module):
        return sum(line.startswith("  ") for line in str(module).split("\n"))

    def sizes(module):
        name, found = None, {}
        for line in str(module).split("\n"):
            if line.startswith("define"):
                name = line[line.index("@") : line.index("(", line.index("@"))]
            elif name and line.startswith("  "):
                found[name] = found.get(name, 0) + 1
        return found

    def counted_add(self, module):
        counts["lowered"] += size(module)
        return add(self, module)

    def counted_optimise(self):
        counts["optimised"] += size(self._final_module)
        optimise(self)
        for name, count in sizes(self._final_module).items():
            counts["generated"] += count
            counts["distinct"] += 0 if name in seen else count
            seen.add(name)

    class Listener(event.Listener):
        def on_start(self, event):
            counts["functions"] += 1

        def on_end(self, event):
            pass

    Library.add_ir_module, Library._optimize_final_module = counted_add, counted_optimise
    try:
        with event.install_listener("numba:compile", Listener()):
            yield counts
    finally:
        Library.add_ir_module, Library._optimize_final_module = add, optimise


def timed(run):
    """Return CPU and wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def peak_memory():
    """Return the peak of the resident memory, in bytes.

    ``getrusage`` would count that of the process that started this one.
    """
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def taken(call):
    """Return what the first call took, and the process up to its end."""
    run = CALLS[call](call)
    cpu, wall = timed(run)
    result = {
        "cpu": cpu,
        "wall": wall,
        "process": time.process_time(),
        "modules": len(sys.modules),
        "peak": peak_memory(),
    }
    return result | {"again": None if call in COMMANDS else timed(run)[0]}


if __name__ == "__main__":
    if "--count" in sys.argv:
        with counted() as result:
            CALLS[sys.argv[1]](sys.argv[1])()
    else:
        result = taken(sys.argv[1])
    import json

    print(json.dumps(result))
