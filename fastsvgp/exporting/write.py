"""The public function: describe a predictor, and print it in the language of a suffix."""

import keyword
import os

import numpy as np

from .. import models
from ..bounds.mixture import Mixture
from ..bounds.protocol import kind_of
from ..bounds.svgp import SVGP
from ..files.atomic import as_path, write_atomically
from ..latents.model import MultiGP
from ..posteriors.locate import posteriors_of
from ..posteriors.predictive import PredictiveWeights
from ..recipes.scaling import Scale
from ..records import replace, tree_map
from ..records.typed import Record
from ..runtime.devices import to_host
from ..runtime.edge import public_call
from . import c_source, onnx_graph, python_source
from .description import describe


@public_call(SVGP)
def export(predictor: Record, path: str | os.PathLike, *, scale: Scale | None = None) -> None:
    """Write a predictor as a file that needs no fastsvgp: C, Python with NumPy alone, or ONNX.

    Parameters
    ----------
    predictor : SVGP, MultiGP or Mixture
        Made by ``fs.predictor``.
    path : path-like
        ``.c`` writes one C99 file, which needs libm alone. ``.py`` writes a Python file, and its
        arrays beside it, with the suffix ``.npz``. ``.onnx`` writes a graph of the input ``X``
        (N, D) and the outputs ``mean`` and ``var``, which needs the package onnx to be written. The
        name without its suffix begins the names of the C functions, so it has letters, digits and
        underscores. Files are replaced.
    scale : Scale, optional
        Of ``fs.recipes``: inputs and predictions are then in the units of the data. Estimators and
        the command line pass theirs (``SVGPRegressor.export``, ``fastsvgp export``).

    Raises
    ------
    TypeError
        A covariance, likelihood or mean has no exported form, or the model is no predictor; the
        message names the part.
    ValueError
        The suffix is unknown, the name cannot begin that of a function, or the scaling does not
        fit.
    ImportError
        A ``.onnx`` file is asked for, and the package onnx is not installed.
    OSError
        The file cannot be written.

    Notes
    -----
    The file has the mean and the variance of new targets, or the class probabilities, and the
    quantiles under Gaussian and Laplace noise, also of a mixture under Gaussian noise. In float64
    they are those of ``predict_y`` and ``predict_quantiles`` up to rounding. A ``.onnx`` file
    computes in the dtype of the predictor, ``fs.predictor(model, dtype=np.float32)``, and the
    others in float64. Its output ``quantiles`` is at the optional input ``levels`` (K,), by default
    0.05, 0.5, 0.95. It has no error codes: rows that the C file refuses are NaN. The arrays take 8
    M^2 bytes, for each output if their q(u) have different covariances, and in C half of it if q(u)
    is narrower than the prior in all directions. A row takes M^2 to 2 M^2 flops for each of these
    matrices.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "gp.c")
    >>> fs.export(fs.predictor(model), path)
    >>> "int gp_predict_y(const double *x" in open(path).read()
    True
    """
    write_source(predictor, path, scale)


models.share(MultiGP, SVGP, "export")
models.share(Mixture, SVGP, "export")


def write_source(predictor, path, scale=None, inputs=(), classes=()):
    """Do the work of ``export``, and return the paths of the files.

    ``inputs`` and ``classes`` are names; a ``ClassScale`` has those of the classes.
    """
    models.serving("export", predictor, "predictor")  # or an error that names the kind
    path = as_path("export: `path`", path)
    stem, suffix = os.path.splitext(os.path.basename(path))
    if suffix not in (".c", ".py", ".onnx"):
        raise ValueError(
            "export: `path` must end in .c (C99), .py (Python with NumPy) or .onnx, got"
            f" {path!r:.80}"
        )
    if not (stem.isascii() and stem.isidentifier()) or keyword.iskeyword(stem):
        raise ValueError(
            f"export: {stem!r:.60} begins the names of functions; give a file name of letters,"
            " digits and underscores, such as gp.c"
        )
    if scale is not None and not isinstance(scale, Scale):
        raise TypeError(
            f"export: `scale` must be a Scale, such as start.scale, got {type(scale).__name__}"
        )
    for q in posteriors_of(predictor).values():
        if not isinstance(q, PredictiveWeights):
            raise TypeError(
                f"export: `predictor` has a posterior of the class {type(q).__name__}; give"
                " fs.predictor(model)"
            )
    model, dtype = _checked(predictor)
    host = tree_map(lambda v: np.asarray(v, np.float64)[()], to_host(model))
    description = describe(host, scale, inputs, classes)
    if suffix == ".c":
        files = {path: c_source.source(description, stem).encode()}
    elif suffix == ".onnx":
        files = {path: onnx_graph.model(description, stem, dtype)}
    else:
        arrays = path.removesuffix(suffix) + ".npz"
        files = {
            arrays: python_source.arrays(description),
            path: python_source.source(description, stem).encode(),
        }
    for name, content in files.items():
        write_atomically(name, lambda file, content=content: file.write(content))
    return tuple(files)


def _checked(predictor):
    """Return a predictor with complete arrays, and their dtype."""
    if not isinstance(predictor, Mixture):
        model, _, _, dtype = kind_of(predictor).checked(predictor)
        return model, dtype
    found = [_checked(one) for one in predictor.models]
    return replace(predictor, models=tuple(one for one, _ in found)), found[0][1]
