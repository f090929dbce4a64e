"""Compare models of several latent functions with GPflow and GPyTorch, and with their own layers.

    python bench/latent_peers.py                      # writes results/latent_peers.md
    python bench/latent_peers.py --rounds 40 --results FOLDER
    python bench/latent_peers.py --values FILE        # reference values of GPflow for the tests

Value and all gradients in float64, D = 4, on one thread. Times are CPU seconds of the process, so
other load on the machine matters less; the programs alternate in rounds, and medians are compared.
The problems are in ``latent_models.py``. A program that is not installed is left out.
"""

import argparse
import json
import os
import pathlib
import shlex
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # read once, when the libraries load
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import latent_models  # noqa: E402
import numpy as np  # noqa: E402
import report  # noqa: E402
from latent_models import JITTER, SCALE  # noqa: E402
from peers import agreement  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
SIZES = {
    "lmc": {"M": 200, "B": 500, "P": 10, "L": 3},
    "icm": {"M": 200, "B": 500, "P": 10, "L": 3},
    "separate": {"M": 200, "B": 500, "P": 10},
    "heteroskedastic": {"M": 100, "B": 500},
}
SMALL = {"M": 5, "B": 12, "P": 3, "L": 2, "D": 2}  # of the reference values
NODES = 100  # per latent function, of GPflow's rule for the reference values
PROGRAMS = {
    "fastsvgp": latent_models.ours,
    "GPflow": latent_models.gpflow_step,
    "GPyTorch": latent_models.gpytorch_step,
}
GPFLOW = "numpy", "scipy", "gpflow", "tensorflow", "tensorflow-probability"
PACKAGES = tuple(dict.fromkeys((*report.PACKAGES, *GPFLOW, "torch", "gpytorch")))
BARS = {"GPflow": 0.6, "GPyTorch": 0.3}  # most of the peer's time
LAYERS_BAR, JOINT_BAR, RULE_BAR = 1.1, 2.2, 4e-3
CALLS = 3  # timed calls per round
LEGEND = """\
CPU time of one value with all gradients, one thread. Ours / its: median over median, and the bar
that it must not exceed. Differences are relative to the largest entry, or to 1."""
OWN_LEGEND = """\
Below, `elbo_and_grad` of a model against the sum of its layers as models of their own, each with
Gaussian noise; a natural step of all layers, with means joined by the mixing, against the sum of
the steps of the layers as models of their own; and the expectation of a likelihood of two functions
by its tensor rule, value and gradients of 500 data."""


def seconds_of(calls, rounds):
    """Return CPU seconds of each call, alternating; the first of each round is not timed."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            for _ in range(CALLS):
                start = time.process_time()
                call()
                times[name].append(time.process_time() - start)
    return times


def installed(p):
    for name, build in PROGRAMS.items():
        try:
            yield name, build(p)
        except ModuleNotFoundError as error:
            print(f"(left out: {name}; {error.name} is not installed)", file=sys.stderr)


def described(kind):
    return f"{kind}, " + " ".join(f"{name}={size}" for name, size in SIZES[kind].items())


def against_peers(kind, rounds):
    """Return the rows of one problem, a list of strings per program."""
    p = latent_models.problem(kind, **SIZES[kind])
    steps, truth, differences = dict(installed(p)), None, {}
    for name, step in steps.items():
        result = step.answer(step())
        truth = result if truth is None else truth
        differences[name] = agreement(result, truth)
    times = seconds_of(steps, rounds)
    own, rows = np.median(times["fastsvgp"]), []
    for name, each in times.items():
        ratio = f"{own / np.median(each):.2f}" if name in BARS else ""
        rows.append(
            [
                described(kind),
                name,
                report.duration(np.median(each)),
                report.duration(min(each)),
                ratio,
                f"{BARS[name]}" if name in BARS else "",
                *(f"{difference:.1e}" for difference in differences[name]),
            ]
        )
    return rows


def layers_alone(p, call):
    """Return a function that calls ``call(model, X, Y)`` for each layer as an SVGP."""
    import fastsvgp as fs

    models = []
    for q in latent_models.our_layers(p):
        outputs = q.posterior.mean.shape[:-1]
        Y = np.resize(p["Y"].T, (*(outputs or (1,)), len(p["Y"]))).T
        model = fs.SVGP(q.covariance, q.inducing, q.posterior, fs.Gaussian(0.2))
        models.append((model, p["X"], np.ascontiguousarray(Y) if outputs else Y[:, 0]))
    return lambda: [call(*each) for each in models]


def own_rows(rounds):
    """Return the rows that need no peer."""
    import fastsvgp as fs

    rows = []

    def compare(words, call, reference, bar):
        times = seconds_of({"ours": call, "reference": reference}, rounds)
        ours, other = (np.median(times[name]) for name in ("ours", "reference"))
        rows.append([words, *map(report.duration, (ours, other)), f"{ours / other:.2f}", f"{bar}"])

    for kind in SIZES:
        p = latent_models.problem(kind, **SIZES[kind])
        options = {"num_data": SCALE * len(p["X"]), "jitter": JITTER}
        alone = layers_alone(p, lambda *data, options=options: fs.elbo_and_grad(*data, **options))
        compare(f"elbo_and_grad: {described(kind)}", latent_models.ours(p), alone, LAYERS_BAR)
    p = latent_models.problem("lmc", **SIZES["lmc"])
    options = {"num_data": SCALE * len(p["X"]), "jitter": JITTER, "step_size": 0.5}
    model, Y = latent_models.our_model(p)
    alone = layers_alone(p, lambda *data: fs.natural_step(*data, **options))
    compare(
        f"natural_step: {described('lmc')}",
        lambda: fs.natural_step(model, p["X"], Y, **options),
        alone,
        JOINT_BAR,
    )
    rng = np.random.default_rng(0)
    counts, f = rng.poisson(3.0, 500), rng.uniform(0.1, 1.0, (2, 2, 500))
    likelihood, f = fs.likelihoods.HeteroskedasticNegativeBinomial(), fs.records.Marginals(*f)
    times = seconds_of({"ours": lambda: likelihood.expected_log_prob(counts, f)}, rounds)
    words, took = "expected_log_prob: negative binomial, 500 data", np.median(times["ours"])
    rows.append([words, report.duration(took), "", "", report.duration(RULE_BAR)])
    return rows


def document(rounds, command):
    """Measure, and return the file of the table."""
    import fastsvgp as fs

    names = "problem", "program", "median", "best", "ours / its", "bar"
    table = [[*names, "value differs by", "gradients differ by"]]
    with fs.set_num_threads(1):
        for kind in SIZES:
            table += against_peers(kind, rounds)
        own = [["call", "median", "median of the reference", "ratio", "bar"], *own_rows(rounds)]
        head = report.header(command, PACKAGES, blas=report.computing())
    parts = "# latent_peers", head, LEGEND, report.markdown(table), OWN_LEGEND, report.markdown(own)
    return "\n\n".join(parts) + "\n"


def reference_values():
    """Return bounds, gradients and predictions of GPflow at small problems, as lists."""
    cases = {}
    for kind in latent_models.KINDS:
        p = latent_models.problem(kind, **SMALL)
        step = latent_models.gpflow_step(p, NODES)
        value, grad = step.answer(step())
        model, Xs = step.model, np.random.default_rng(1).standard_normal((4, SMALL["D"]))
        mean, var = model.predict_f(Xs)
        y_mean, y_var = model.predict_y(Xs)
        found = {
            "elbo": value,
            "kl": model.prior_kl(),
            "f_mean": mean,
            "f_var": var,
            "f_cov": model.predict_f(Xs, full_cov=True)[1],
            "f_output_cov": model.predict_f(Xs, full_output_cov=True)[1],
            "y_mean": y_mean,
            "y_var": y_var,
        }
        found = {name: np.asarray(values).tolist() for name, values in found.items()}
        found["grad"] = {name: np.asarray(bar).tolist() for name, bar in sorted(grad.items())}
        cases[kind] = {"problem": as_lists(p), "Xs": Xs.tolist(), "values": found}
    settings = {"jitter": JITTER, "num_data": SCALE * SMALL["B"], "nodes": NODES}
    made_by = f"python bench/latent_peers.py --values; {report.versions(GPFLOW)}"
    return {"made_by": made_by, "settings": settings, "cases": cases}


def as_lists(value):
    if isinstance(value, dict):
        return {name: as_lists(part) for name, part in value.items()}
    if isinstance(value, list):
        return [as_lists(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def lines_of(value, indent=""):
    """Return JSON with a line per array."""
    if not isinstance(value, dict):
        return json.dumps(value, separators=(",", ":"))
    deeper = indent + " "
    parts = [f"{deeper}{json.dumps(k)}: {lines_of(v, deeper)}" for k, v in value.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20, help="alternations per problem")
    parser.add_argument(
        "--results", type=pathlib.Path, default=HERE / "results", help="the folder of the table"
    )
    parser.add_argument("--values", type=pathlib.Path, help="write reference values to this file")
    args = parser.parse_args(arguments)
    if args.values is not None:
        args.values.write_text(lines_of(reference_values()) + "\n", encoding="utf-8")
        return
    command = shlex.join(["python", "bench/latent_peers.py", *arguments])
    path = args.results / "latent_peers.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(document(args.rounds, command), encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
