"""A model with most kinds of leaves, and headers of saved files."""

import json

import numpy as np

import fastsvgp as fs
from fastsvgp.records import persistence


def model():
    covariance = fs.covariances.Sum(
        (
            fs.RBF(1.5, np.array([1.0, 2.0])),
            fs.covariances.Product((fs.Linear(), fs.covariances.Constant(0.5))),
        )
    )
    posterior = fs.Whitened(
        np.zeros((3, 4), np.float32), np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    )
    return fs.SVGP(
        covariance,
        np.arange(8.0).reshape(4, 2),
        posterior,
        fs.likelihoods.RobustMax(num_classes=3),
        fs.means.ConstantMean(0.25),
    )


def header_of(path):
    with np.load(path, allow_pickle=False) as file:
        return json.loads(str(file["__fastsvgp__"]))


def write(path, tree, version=persistence.FORMAT, **arrays):
    """Write a file with any header."""
    with open(path, "wb") as file:
        np.savez(
            file,
            __fastsvgp__=np.array(json.dumps({"format": version, "tree": tree, "extra": {}})),
            **arrays,
        )
