"""A fitted model with what is needed to use it on files: its scaling, its columns, the names of its classes."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from .. import DataFileError, check, load_with_extra
from ..files import as_path
from ..records.persistence import COMMAND_LINE
from .data.columns import Encoding
from .data.tables import read_table
from .data.task import Standardisation, class_name
from .errors import UsageError, shown
from .fitted_files import FORMAT, NewerFile, checked_fields, describe, of_this_format
from .settings.names import kind_of


@dataclass
class Prediction:
    """Predictions for N rows, in the units of the data.

    Attributes
    ----------
    mean, sd : (N,) arrays, or None for classes
        Of y, noise included. The standard deviation is infinite where that of the likelihood is.
    quantiles : (K, N) array or None
        Of y, at the levels asked for: the likelihood's own.
    probabilities : (N, C) array or None
        Of the classes.
    """

    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    quantiles: np.ndarray | None = None
    probabilities: np.ndarray | None = None


@dataclass
class Fitted:
    """A model that ``fastsvgp fit`` wrote, with the scaling that it works behind; ``load_fitted`` reads one.

    Parameters
    ----------
    model : SVGP, DeepGP or QSGP
        On standardised inputs, and for real-valued targets on standardised targets.
    likelihood : str
        By its name on the command line.
    classes : list of str or None
        In the order of ``Prediction.probabilities``.
    input_names : list of str
        The columns of X, in their order: those of the training file, or what ``encoding`` makes of
        them.
    target_name : str
    columns : dict
        The layout of the training file: ``named``, ``width``, positions of the ``inputs`` and of
        the ``target``.
    scale : Standardisation
        ``scale.inputs(X)`` and ``scale.target(y)`` are what the model wants; ``x_mean``,
        ``x_scale``, ``y_mean``, ``y_scale``.
    jitter : float
        That training ended with; predictions use the same.
    encoding : Encoding or None
        What is made of text columns, dates and missing values; None where inputs are the columns of
        a file as they stand there.

    Examples
    --------
    >>> fitted = fs.load_fitted("DATA-fit")  # doctest: +SKIP
    >>> fitted.input_names, fitted.target_name  # doctest: +SKIP
    """

    model: Any
    likelihood: str
    classes: list | None
    input_names: list
    target_name: str
    columns: dict
    scale: Standardisation
    jitter: float
    encoding: Encoding | None = None

    @property
    def kind(self):
        """ "regression", "counts", "binary" or "multiclass"."""
        return kind_of(self.likelihood)

    @property
    def dtype(self):
        model = self.model
        return np.asarray(
            model.posterior.mean
            if isinstance(model, fs.QSGP)
            else sets_of(bottom(model).inducing)[0]
        ).dtype

    @property
    def image_shape(self):
        """(H, W, C) where the inputs are images, else None."""
        covariance = getattr(self.model, "covariance", None)
        return covariance.geometry[:3] if isinstance(covariance, fs.Convolutional) else None

    def standardised_inputs(self, X):
        """Inputs (N, D) in the units of the data, as the model wants them."""
        X = check.inputs("X", X)
        if X.shape[1] != len(self.input_names):
            names = f"{len(self.input_names)}, in this order: {shown(self.input_names)}"
            raise ValueError(f"`X` has {X.shape[1]} columns; the model was fitted to {names}")
        return np.ascontiguousarray(self.scale.inputs(X), dtype=self.dtype)

    def predict(self, X, quantiles=()):
        """Predict y.

        Parameters
        ----------
        X : (N, D) array
            In the units of the data, columns as in ``input_names``.
        quantiles : sequence of K numbers
            Levels strictly between 0 and 1; not for classes.

        Returns
        -------
        Prediction
        """
        X = self.standardised_inputs(X)
        mean, var = fs.predict_y(self.model, X, **jittered(self.model, self.jitter))
        mean = np.asarray(mean, np.float64)
        found = None
        if len(quantiles):
            found = np.asarray(
                fs.predict_quantiles(self.model, X, quantiles, **jittered(self.model, self.jitter)),
                np.float64,
            )
            found = self.scale.y_mean + self.scale.y_scale * found
        if self.kind == "multiclass":
            return Prediction(probabilities=mean)
        if self.kind == "binary":
            return Prediction(probabilities=np.stack([1 - mean, mean], axis=1))
        sd = np.sqrt(np.asarray(var, np.float64))
        return Prediction(
            self.scale.y_mean + self.scale.y_scale * mean, self.scale.y_scale * sd, found
        )

    def cdf(self, X, y):
        """Predictive distribution function P(new y <= y), (N,), of numbers y (N,); both in the units of the data."""
        Xs, ys = self.standardised_inputs(X), np.asarray(self.scale.target(y), dtype=self.dtype)
        return np.asarray(
            fs.predict_cdf(self.model, Xs, ys, **jittered(self.model, self.jitter)), np.float64
        )

    def model_targets(self, y):
        """Targets as the likelihood wants them: standardised values, counts, or integer codes."""
        if self.kind == "multiclass":
            return np.asarray(y, np.int64)
        return np.asarray(self.scale.target(y), dtype=self.dtype)

    def log_density(self, X, y):
        """Log predictive density (N,) of targets, in the standardised scale; X in original units."""
        Xs, ys = self.standardised_inputs(X), self.model_targets(y)
        return np.asarray(
            fs.predict_log_density(self.model, Xs, ys, **jittered(self.model, self.jitter)),
            np.float64,
        )

    def codes(self, values):
        """Class codes of labels from a file; -1 for a label that the model does not know."""
        known = {name: code for code, name in enumerate(self.classes)}
        return np.array([known.get(class_name(value), -1) for value in values])

    # --- files ------------------------------------------------------------------------------------

    def save(self, path):
        """Write the model and everything beside it, atomically."""
        description = {
            # others are what versions before there were maps of inputs can read
            "format": FORMAT if self.scale.x_map is not None else 3,
            "likelihood": self.likelihood,
            "classes": self.classes,
            "input_names": self.input_names,
            "target_name": self.target_name,
            "columns": self.columns,
            "jitter": self.jitter,
            "standardisation": self.scale.to_json(),
            "encoding": self.encoding and self.encoding.to_json(),
        }
        fs.save(path, self.model, **{COMMAND_LINE: description})

    @classmethod
    def load(cls, path):
        """Read what ``save`` wrote; ``path`` may be the folder of a fit. See ``load_fitted``."""
        path = as_path("load_fitted: `path`", path)
        path = os.path.join(path, "model.npz") if os.path.isdir(path) else path
        try:
            with open(path, "rb") as file:
                if not file.read(2) == b"PK":
                    raise DataFileError(
                        f"{path} is not a fastsvgp model; `fastsvgp fit` writes one as model.npz"
                    )
            model, extra = load_with_extra(path)
        except OSError as error:
            raise DataFileError(
                f"cannot read the model {path}: {error.strerror or error}"
            ) from error
        if COMMAND_LINE not in extra:
            raise DataFileError(
                f"{path} is a fastsvgp {type(model).__name__}, but `fastsvgp fit` did not write it:"
                " it lacks the scaling and the columns; use fastsvgp.load and fastsvgp.predict_y"
                " from Python"
            )
        try:
            return cls(
                model, **checked_fields(cls, model, of_this_format(path, extra[COMMAND_LINE]))
            )
        except NewerFile:
            raise
        except (
            TypeError,
            KeyError,
            ValueError,
            AttributeError,
            IndexError,
            ArithmeticError,
        ) as error:
            raise DataFileError(
                f"{path} does not hold what `fastsvgp fit` of this version writes"
                f" ({describe(error)}); fit again with this one"
            ) from error

    # --- columns of a file ------------------------------------------------------------------------

    @property
    def column_names(self):
        """Of the inputs in a file."""
        return self.input_names if self.encoding is None else self.encoding.names

    def inputs(self, table, positions):
        """Inputs (N, D) made of the columns of a table at some ``positions``."""
        if self.encoding is None:
            return table.inputs(
                positions, optional=False, missing="error" if self.image_shape is None else None
            )
        return self.encoding.read(table, positions)

    def read(self, path, delimiter="auto", header="auto"):
        """Inputs of a file, as ``fastsvgp predict`` makes them: text and missing values as in training.

        Parameters
        ----------
        path : path-like
            A table with the columns of the training file; the target may be among them or not.
        delimiter, header : str
            As ``--delimiter`` and ``--header`` of the command line.

        Returns
        -------
        (N, D) array
            ``predict`` takes it.

        Raises
        ------
        DataFileError, ValueError
            The file cannot be read, lacks columns, or holds what no input can be made of.
        """
        table = read_table(path, delimiter, header, images=self.image_shape is not None)
        return self.inputs(table, self.find_columns(table)[0])

    def find_columns(self, table):
        """Positions of the inputs in a table, and of the target or None.

        By name where both files have names, else by position: the layout of the training file, the
        same without the target, or the inputs alone.
        """
        if table.image_shape not in (None, self.image_shape):
            then, now = (
                " x ".join(map(str, shape)) for shape in (self.image_shape, table.image_shape)
            )
            raise UsageError(
                f"{table.path} has images of {now} numbers, but the model was fitted to {then};"
                " give such images"
            )
        if self.columns["named"] and table.named:
            names = self.column_names
            lacking = [name for name in names if name not in table.names]
            if lacking:
                raise UsageError(
                    f"{table.path} lacks the input column{'s'[: len(lacking) > 1]}"
                    f" {shown(map(repr, lacking))}; it has {shown(table.names)}"
                )
            target = (
                table.names.index(self.target_name) if self.target_name in table.names else None
            )
            return [table.names.index(name) for name in names], target
        inputs, target, width = (
            self.columns["inputs"],
            self.columns["target"],
            self.columns["width"],
        )
        if table.num_columns == width:
            return inputs, target
        if target is not None and table.num_columns == width - 1:
            return [i - (i > target) for i in inputs], None
        if table.num_columns == len(inputs):
            return list(range(len(inputs))), None
        raise UsageError(
            f"{table.path} has {table.num_columns} column{'s'[: table.num_columns != 1]}, but the"
            f" model was fitted to {len(inputs)} input{'s'[: len(inputs) != 1]}"
            f" ({shown(self.column_names)}){f', in a file of {width} columns' if width != len(inputs) else ''};"
            " give a file with these columns"
        )


def load_fitted(path: str | os.PathLike[str]) -> Fitted:
    """Load a model that ``fastsvgp fit`` wrote, with its scaling: it predicts in the units of the data.

    Parameters
    ----------
    path : path-like
        model.npz, or the folder of the fit.

    Returns
    -------
    Fitted
        ``load_fitted(path).predict(X)`` has ``mean`` and ``sd``, or ``probabilities``; ``.model``
        is the SVGP behind the scaling.

    Raises
    ------
    DataFileError
        The file cannot be read, is damaged, or is of no model that ``fastsvgp fit`` wrote.

    Examples
    --------
    >>> fitted = fs.load_fitted("DATA-fit")  # doctest: +SKIP
    >>> fitted.predict([[0.5, 1.5]]).mean  # doctest: +SKIP
    """
    return Fitted.load(path)


def bottom(model):
    """What sees the inputs: the first layer of a deep GP, or the model itself."""
    return model.layers[0] if isinstance(model, fs.DeepGP) else model


def sets_of(inducing):
    """The sets of inducing inputs, one or two."""
    return (inducing.Z, inducing.O) if isinstance(inducing, fs.InducingPair) else (inducing,)


def jittered(model, jitter):
    """The options of a prediction that is to use this jitter: none where no matrix is factorised."""
    return {} if isinstance(model, fs.QSGP) else {"jitter": jitter}
