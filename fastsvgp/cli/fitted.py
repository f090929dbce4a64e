"""A fitted model with what is needed to use it on files: its scaling, its columns, the names of its classes."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from ..errors import DataFileError
from ..records import load_with_extra
from .errors import UsageError, shown
from .names import kind_of
from .task import Standardisation, class_name


@dataclass
class Prediction:
    """Predictions for N rows: ``mean`` and ``sd`` of y in the original scale, or ``probabilities`` (N, C) of the classes."""

    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    probabilities: np.ndarray | None = None


@dataclass
class Fitted:
    """``model`` works on standardised inputs; everything else says how files and original units map to them.

    ``columns`` is the layout of the training file: ``named``, ``width``, positions of the ``inputs`` and of the ``target``.
    ``jitter`` is the one that training ended with; predictions use the same.
    """

    model: Any
    likelihood: str
    classes: list | None
    input_names: list
    target_name: str
    columns: dict
    scale: Standardisation
    jitter: float

    @property
    def kind(self):
        return kind_of(self.likelihood)

    @property
    def dtype(self):
        return np.asarray(self.model.inducing).dtype

    def standardised_inputs(self, X):
        """Inputs (N, D) in original units, as the model wants them."""
        return np.ascontiguousarray(self.scale.inputs(X), dtype=self.dtype)

    def predict(self, X):
        """Predict y at inputs (N, D) in original units."""
        mean, var = fs.predict_y(self.model, self.standardised_inputs(X), jitter=self.jitter)
        if self.kind == "multiclass":
            return Prediction(probabilities=np.asarray(mean, np.float64))
        mean = np.asarray(mean, np.float64)
        if self.kind == "binary":
            return Prediction(probabilities=np.stack([1 - mean, mean], axis=1))
        sd = np.sqrt(np.asarray(var, np.float64))
        return Prediction(mean=self.scale.y_mean + self.scale.y_scale * mean, sd=self.scale.y_scale * sd)

    def model_targets(self, y):
        """Targets as the likelihood wants them: standardised values, counts, or integer codes."""
        if self.kind == "multiclass":
            return np.asarray(y, np.int64)
        return np.asarray(self.scale.target(y), dtype=self.dtype)

    def log_density(self, X, y):
        """Log predictive density (N,) of targets, in the standardised scale; X in original units."""
        Xs, ys = self.standardised_inputs(X), self.model_targets(y)
        return np.asarray(fs.predict_log_density(self.model, Xs, ys, jitter=self.jitter), np.float64)

    def codes(self, values):
        """Class codes of labels from a file; -1 for a label that the model does not know."""
        known = {name: code for code, name in enumerate(self.classes)}
        return np.array([known.get(class_name(value), -1) for value in values])

    # --- files ---------------------------------------------------------------------------------------------------------

    def save(self, path):
        """Write the model and everything beside it, atomically."""
        description = {
            "likelihood": self.likelihood,
            "classes": self.classes,
            "input_names": self.input_names,
            "target_name": self.target_name,
            "columns": self.columns,
            "jitter": self.jitter,
            "standardisation": self.scale.to_json(),
        }
        fs.save(path, self.model, command_line=description)

    @classmethod
    def load(cls, path):
        """Read what ``save`` wrote; ``path`` may be the folder of a fit."""
        path = os.path.join(path, "model.npz") if os.path.isdir(path) else path
        try:
            with open(path, "rb") as file:
                if not file.read(2) == b"PK":
                    raise DataFileError(f"{path} is not a fastsvgp model; `fastsvgp fit` writes one as model.npz")
            model, extra = load_with_extra(path)
        except OSError as error:
            raise DataFileError(f"cannot read the model {path}: {error.strerror or error}") from error
        if "command_line" not in extra:
            raise DataFileError(
                f"{path} is a fastsvgp {type(model).__name__}, but `fastsvgp fit` did not write it: it lacks the "
                "scaling and the columns; use fastsvgp.load and fastsvgp.predict_y from Python"
            )
        try:
            description = dict(extra["command_line"])
            return cls(model, scale=Standardisation.from_json(description.pop("standardisation")), **description)
        except (TypeError, KeyError, ValueError) as error:
            raise DataFileError(f"{path} is of another version of fastsvgp ({error}); fit again with this one") from error

    # --- columns of a file -----------------------------------------------------------------------------------------------

    def find_columns(self, table):
        """Positions of the inputs in a table, and of the target or None.

        By name where both files have names, else by position: the layout of the training file, the same without the
        target, or the inputs alone.
        """
        if self.columns["named"] and table.named:
            lacking = [name for name in self.input_names if name not in table.names]
            if lacking:
                raise UsageError(
                    f"{table.path} lacks the input column{'s'[: len(lacking) > 1]} {shown(map(repr, lacking))}; it has "
                    f"{shown(table.names)}"
                )
            target = table.names.index(self.target_name) if self.target_name in table.names else None
            return [table.names.index(name) for name in self.input_names], target
        inputs, target, width = self.columns["inputs"], self.columns["target"], self.columns["width"]
        if table.num_columns == width:
            return inputs, target
        if target is not None and table.num_columns == width - 1:
            return [i - (i > target) for i in inputs], None
        if table.num_columns == len(inputs):
            return list(range(len(inputs))), None
        raise UsageError(
            f"{table.path} has {table.num_columns} column{'s'[: table.num_columns != 1]}, but the model was fitted to "
            f"{len(inputs)} input{'s'[: len(inputs) != 1]} ({shown(self.input_names)})"
            f"{f', in a file of {width} columns' if width != len(inputs) else ''}; give a file with these columns"
        )
