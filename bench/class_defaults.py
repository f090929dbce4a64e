"""Score ``recipes.search`` for classes, and compare with logistic regression and boosting.

    OPENBLAS_NUM_THREADS=1 python bench/class_defaults.py wine breast_cancer digits --budgets 10 30

The data come with scikit-learn; three tenths of the rows, stratified by class, are held out.
Accuracy and NLPD of held-out rows, the median over the splits. Budgets are seconds at 40 GFLOP/s,
as in ``bench/defaults.py``; with ``--work`` they count operations, so other programs on the machine
change nothing. "default" is ``SVGPClassifier()``. "before" is a classifier with an explicit
setting, which trains for 100 epochs of Adam, as the default did before there was a search.
"""

import argparse
import shlex
import sys
import warnings

import defaults
import numpy as np
import report
from sklearn import datasets, ensemble, linear_model, model_selection, pipeline, preprocessing

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier

NAMES = "wine", "breast_cancer", "digits"
TEST = 0.3


def table_of(name, split):
    """Return ``X, y, X_test, y_test`` of a split."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    splitter = model_selection.StratifiedShuffleSplit(1, test_size=TEST, random_state=split)
    train, test = next(splitter.split(X, y))
    return X[train], y[train], X[test], y[test]


def searched(X, y, X_test, seconds, seed, by_work):
    budget = seconds if by_work else seconds * defaults.RATE / defaults.rate()
    found = fs.search(X, y, budget, likelihood="classes", rng=seed, by_work=by_work)
    p, _ = fs.predict_y(found.model, found.scale.X(X_test))
    return p if p.ndim == 2 else np.stack([1 - p, p], axis=1), found.chosen


def fitted(model):
    """Return a program that trains a classifier of scikit-learn's kind."""

    def program(X, y, X_test, seed):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model(seed).fit(X, y).predict_proba(X_test), ""

    return program


BESIDE = {
    "default": fitted(lambda seed: SVGPClassifier(random_state=seed)),
    "before": fitted(lambda seed: SVGPClassifier(random_state=seed, **defaults.SOLVER)),
    "logistic regression": fitted(
        lambda seed: pipeline.make_pipeline(
            preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=5000)
        )
    ),
    "boosting": fitted(lambda seed: ensemble.HistGradientBoostingClassifier(random_state=seed)),
}


def scores(p, y):
    """Return accuracy and NLPD of class probabilities (N, C)."""
    own = np.clip(p[np.arange(len(y)), y], np.finfo(float).tiny, None)
    return float(np.mean(p.argmax(axis=1) == y)), float(-np.mean(np.log(own)))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=None)
    parser.add_argument("--budgets", type=float, nargs="+", default=[10, 30])
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", action="store_true", help="budgets count operations")
    args = parser.parse_args(arguments)
    programs = {
        f"{T:g} s": (lambda *data, T=T: searched(*data[:3], T, data[3], args.work))
        for T in args.budgets
    }
    programs |= BESIDE
    print("| data | " + " | ".join(programs) + " | chosen |")
    print("| --- " * (len(programs) + 2) + "|")
    for name in args.names or NAMES:
        row, kinds = [], []
        for program in programs.values():
            found = []
            for split in args.splits:
                X, y, X_test, y_test = table_of(name, split)
                p, chosen = program(X, y, X_test, split)
                found.append(scores(p, y_test))
                kinds += [chosen] if chosen else []
            row.append("{:.3f}, {:.4f}".format(*np.median(found, axis=0)))
        print(
            f"| {name} | " + " | ".join(row) + f" | {'; '.join(dict.fromkeys(kinds))} |", flush=True
        )
    print("\n" + report.header("python bench/class_defaults.py " + shlex.join(sys.argv[1:])))


if __name__ == "__main__":
    main()
