"""A fitted model with its scaling, columns and class names, for use on files."""

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import fastsvgp as fs

from .. import DataFileError, check
from ..bounds.predictor import held_predictor
from ..files import as_path
from ..recipes.fitted import scale_to_json
from ..recipes.scaling import Scale
from ..records import load_with_extra
from ..records.inducing_sets import sets_of
from ..records.persistence import COMMAND_LINE
from .data.columns import Encoding
from .data.forms import Form
from .data.tables import FileFormat
from .data.targets import as_list, scale_targets
from .data.task import class_name
from .errors import UsageError, join
from .fitted_files import FORMAT, check_fields, file_of
from .kinds import bottom, options
from .settings.names import kind_of

FEW = 1000  # rows, for which one factorisation costs less than a predictor


@dataclass
class Prediction:
    """Predictions for N rows, in the units of the data.

    Attributes
    ----------
    mean, sd : (N,) arrays, (N, P) for several targets, or None for classes
        Mean and standard deviation of y, including noise. The standard deviation is infinite if
        that of the likelihood is.
    quantiles : (K, N) or (K, N, P) array, or None
        Quantiles of y at the requested levels, under the likelihood.
    probabilities : (N, C) array or None
        Class probabilities.
    """

    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    quantiles: np.ndarray | None = None
    probabilities: np.ndarray | None = None


@dataclass
class Fitted:
    """A model written by ``fastsvgp fit``, with its scaling; ``load_fitted`` reads it.

    Parameters
    ----------
    model : SVGP, MultiGP, DeepGP or QSGP
        Model of standardised inputs; real-valued targets are standardised too.
    likelihood : str
        Name on the command line.
    classes : list of str or None
        Class names in the order of ``Prediction.probabilities``.
    input_names : list of str
        Names of the columns of X, in order: those of the training file, or as encoded.
    target_name : str, or list of str
        Name of the target column, or of P of them.
    columns : dict
        Layout of the training file: ``named``, ``width``, and positions of the ``inputs`` and of
        the ``target``. ``second``, if there is one, describes the second column of the target:
        ``option``, ``name`` and ``position``. ``target_forms``: of targets with units, how their
        cells are read. ``na``: codes of missing values. ``decimal``: the decimal mark, if given.
    scale : Scale
        Converts to the units of the model: ``scale.X(X)`` and ``scale.y(y)``, with
        ``x_mean``, ``x_scale``, ``y_mean``, ``y_scale``.
    jitter : float
        Jitter at the end of training; predictions use the same.
    encoding : Encoding or None
        Encoding of text columns, dates and missing values; None if the inputs are columns of
        numbers.

    Examples
    --------
    >>> fitted = fs.load_fitted("DATA-fit")  # doctest: +SKIP
    >>> fitted.input_names, fitted.target_name  # doctest: +SKIP
    """

    model: Any
    likelihood: str
    classes: list | None
    input_names: list
    target_name: str | list
    columns: dict
    scale: Scale
    jitter: float
    encoding: Encoding | None = None

    @classmethod
    def from_task(cls, task, model, scale, jitter=0.0):
        """Make it from a model of a task."""
        names, encoding = (task.input_names, task.target_name), task.encoding
        about = task.likelihood, task.classes, *names, task.columns
        return cls(model, *about, scale, jitter, encoding)

    @property
    def kind(self):
        """The kind of targets, such as "regression" or "counts": see ``settings.names.kind_of``."""
        return kind_of(self.likelihood)

    @property
    def several(self):
        """Whether there are several targets."""
        return isinstance(self.target_name, list)

    def _source(self, X):
        """Return what predicts at X: for many rows the predictor, which is made once."""
        return held_predictor(self.model, self.jitter) if len(X) > FEW else self.model

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
        """(H, W, C) if the inputs are images, else None."""
        covariance = getattr(self.model, "covariance", None)
        return (
            covariance.geometry[:3]
            if isinstance(covariance, fs.covariances.Convolutional)
            else None
        )

    def standardise_inputs(self, X):
        """Standardise inputs (N, D) in the units of the data, in the dtype of the model."""
        X = check.inputs("X", X)
        if X.shape[1] != len(self.input_names):
            names = f"{len(self.input_names)}, in this order: {join(self.input_names)}"
            raise ValueError(f"`X` has {X.shape[1]} columns; the model was fitted to {names}")
        return np.ascontiguousarray(self.scale.X(X), dtype=self.dtype)

    def predict(self, X, quantiles=()):
        """Predict y.

        Parameters
        ----------
        X : (N, D) array
            Inputs in the units of the data, with columns as in ``input_names``.
        quantiles : sequence of K numbers
            Levels, strictly between 0 and 1; not for classes.

        Returns
        -------
        Prediction
            Of counts with trials or exposures, that of one trial or one unit of exposure. Noise
            that is known of each row is not part of it.
        """
        X = self.standardise_inputs(X)
        if self.kind == "ordered":
            return Prediction(
                probabilities=fs.recipes.grade_probabilities(self._source(X), X, self.jitter)
            )
        mean, var = fs.predict_y(self._source(X), X, **options(self.model, self.jitter))
        mean = np.asarray(mean, np.float64)
        found = None
        if len(quantiles):
            found = np.asarray(
                fs.predict_quantiles(
                    self._source(X), X, quantiles, **options(self.model, self.jitter)
                ),
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

    def cdf(self, X, y, second=None):
        """Return P(new y <= y), (N,), for numbers y (N,); X and y in the units of the data.

        ``second`` is that of ``model_targets``.
        """
        Xs, ys = self.standardise_inputs(X), self.model_targets(y, second)
        return np.asarray(
            fs.predict_cdf(self._source(Xs), Xs, ys, **options(self.model, self.jitter)), np.float64
        )

    def model_targets(self, y, second=None):
        """Convert targets for the likelihood: standardised values, counts, or integer codes.

        second : (N,) array, optional
            The second column of the targets, such as trials, if the likelihood reads one.
        """
        if self.kind == "multiclass":
            return np.asarray(y, np.int64)
        return np.asarray(scale_targets(self.scale, y, second, self.likelihood), dtype=self.dtype)

    def log_density(self, X, y, second=None):
        """Return the log predictive density (N,) of y, standardised; X is in data units.

        Of several targets it is the sum over those that are not missing (NaN). ``second`` is that
        of ``model_targets``.
        """
        if self.several:
            return np.nansum(self.log_densities(X, y), axis=1)
        Xs, ys = self.standardise_inputs(X), self.model_targets(y, second)
        return np.asarray(
            fs.predict_log_density(self._source(Xs), Xs, ys, **options(self.model, self.jitter)),
            np.float64,
        )

    def log_densities(self, X, y):
        """Return the log predictive densities (N, P) of several targets, NaN where y is."""
        Xs, ys = self.standardise_inputs(X), self.model_targets(y).T
        mean, var = (part.T for part in fs.predict_f(self._source(Xs), Xs, jitter=self.jitter))
        likelihood, P, found = self.model.likelihood, len(ys), np.full(np.shape(y), np.nan)
        for p, target in enumerate(ys):
            there = ~np.isnan(target)
            own = p if likelihood.latents_per_output == 1 else slice(p, None, P)
            f = fs.records.Marginals(mean[own][..., there], var[own][..., there])
            found[there, p] = likelihood.predict_log_density(target[there], f)
        return found

    def codes(self, values):
        """Return class codes of labels from a file; -1 for a label unknown to the model."""
        known = {name: code for code, name in enumerate(self.classes)}
        return np.array([known.get(class_name(value), -1) for value in values])

    # --- files ------------------------------------------------------------------------------------

    def save(self, path):
        """Write the model with its scaling, columns and classes, atomically."""
        description = {
            "format": FORMAT,
            "likelihood": self.likelihood,
            "classes": self.classes,
            "input_names": self.input_names,
            "target_name": self.target_name,
            "columns": self.columns,
            "jitter": self.jitter,
            "scale": scale_to_json(self.scale),
            "encoding": self.encoding and self.encoding.to_json(),
        }
        fs.save(path, self.model, **{COMMAND_LINE: description})

    @classmethod
    def load(cls, path):
        """Read a file written by ``save``, or the folder of a fit; see ``load_fitted``."""
        path = file_of(as_path("load_fitted: `path`", path))
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
                f"{path} is a fastsvgp {type(model).__name__} that `fastsvgp fit` did not write: it"
                " has no scaling or columns; use fastsvgp.load and fastsvgp.predict_y in Python"
            )
        description = extra[COMMAND_LINE]
        found = description.get("format") if isinstance(description, dict) else None
        if found != FORMAT:
            raise DataFileError(
                f"{path} has format {found!r:.60} of `fastsvgp fit`, but this version reads"
                f" {FORMAT}; load it with the version that wrote it, or fit again"
            )
        try:
            return cls(model, **check_fields(cls, model, description))
        except (TypeError, LookupError, ValueError, AttributeError, ArithmeticError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else error
            raise DataFileError(
                f"{path} does not match this version of `fastsvgp fit` ({what}); fit again with"
                " this version"
            ) from error

    # --- columns of a file ------------------------------------------------------------------------

    @property
    def column_names(self):
        """Names of the input columns in a file."""
        return self.input_names if self.encoding is None else self.encoding.names

    def inputs(self, table, positions):
        """Return inputs (N, D) from the columns of a table at ``positions``."""
        if self.encoding is None:
            return table.inputs(
                positions, optional=False, missing="error" if self.image_shape is None else None
            )
        return self.encoding.read(table, positions)

    def table(self, path, file_format):
        """Return the ``Table`` of a file in which every line below the header is a row.

        What marks missing values is as in training; so is the decimal mark, unless given.
        """
        known = {"na": self.columns.get("na", ())}
        if file_format.decimal == "auto":
            known["decimal"] = self.columns.get("decimal", "auto")
        return replace(file_format, **known).read(path, self.image_shape is not None, whole=True)

    def read(self, path, delimiter="auto", header="auto", skip=0):
        """Read inputs from a file, as ``fastsvgp predict`` does, with the encoding of training.

        Parameters
        ----------
        path : path-like
            Table with the columns of the training file, with or without the target.
        delimiter, header, skip : str, str, int
            As ``--delimiter``, ``--header`` and ``--skip`` on the command line.

        Returns
        -------
        (N, D) array
            Inputs for ``predict``.

        Raises
        ------
        DataFileError, ValueError
            The file cannot be read, lacks columns, or has cells that cannot be encoded.
        """
        table = self.table(path, FileFormat(delimiter, header, skip=skip))
        return self.inputs(table, self.find_columns(table)[0])

    def find_columns(self, table):
        """Return positions of the inputs in a table, and of the target or targets, or None.

        Columns are found by name if both files have names, else by position: in the layout of the
        training file, the same without the target, or only the inputs.
        """
        if table.image_shape not in (None, self.image_shape):
            then, now = (
                " x ".join(map(str, shape)) for shape in (self.image_shape, table.image_shape)
            )
            raise UsageError(
                f"{table.path} has images of {now} numbers, but the model was fitted to images of"
                f" {then}; give images of that shape"
            )
        if self.columns["named"] and table.named:
            return self._columns_by_name(table)
        return self._columns_by_position(table)

    def _columns_by_name(self, table):
        names = self.column_names
        lacking = [name for name in names if table.names.count(name) != 1]
        if lacking:
            raise UsageError(
                f"{table.path} {'repeats' if lacking[0] in table.names else 'lacks'} the input"
                f" column{'s'[: len(lacking) > 1]}"
                f" {join(map(repr, lacking))}; it has {join(table.names)}"
            )
        target, wanted = None, as_list(self.target_name)
        if all(name in table.names for name in wanted):
            found = [table.names.index(name) for name in wanted]
            target = found if self.several else found[0]
        return [table.names.index(name) for name in names], target

    def _columns_by_position(self, table):
        inputs, target, width = (
            self.columns["inputs"],
            self.columns["target"],
            self.columns["width"],
        )
        second = self.columns.get("second")
        both = [*as_list(target), *([second["position"]] if second else [])]
        known = width, width - len(as_list(target)), width - len(both), len(inputs)
        table = table.drop_empty_end(known)
        if table.num_columns == width:
            return inputs, target
        for gone in (as_list(target), both):
            if gone and table.num_columns == width - len(gone):
                return [i - sum(i > t for t in gone) for i in inputs], None
        if table.num_columns == len(inputs):
            return list(range(len(inputs))), None
        of_file = f", in a file of {width} columns" if width != len(inputs) else ""
        raise UsageError(
            f"{table.path} has {table.num_columns} column{'s'[: table.num_columns != 1]}, but the"
            f" model was fitted to {len(inputs)} input{'s'[: len(inputs) != 1]}"
            f" ({join(self.column_names)}){of_file}; give a file with these columns"
        )

    def read_targets(self, table, target):
        """Read cells of the targets as ``fit`` did; ``target``: as from ``find_columns``."""
        for i, form in zip(as_list(target), self.columns.get("target_forms", ()), strict=False):
            if form is not None and table.layout is not None:
                table.read_as(i, Form(**form))

    def find_second(self, table):
        """Return the second column (N,) of the target in a table that has it as numbers, or None.

        It is found by name if both files have names, else by its position.
        """
        second = self.columns.get("second")
        if second is None:
            return None
        if self.columns["named"] and table.named:
            position = table.names.index(second["name"]) if second["name"] in table.names else None
        else:
            same = table.num_columns == self.columns["width"]
            position = second["position"] if same else None
        return None if position is None or position in table.text else table.numbers[:, position]


def load_fitted(path: str | os.PathLike[str]) -> Fitted:
    """Load a model written by ``fastsvgp fit``, with its scaling, to predict in data units.

    Parameters
    ----------
    path : path-like
        model.npz, or the folder of the fit.

    Returns
    -------
    Fitted
        ``load_fitted(path).predict(X)`` has ``mean`` and ``sd``, or ``probabilities``. Its
        ``.model`` is the model of standardised data.

    Raises
    ------
    DataFileError
        The file cannot be read, is damaged, or was not written by ``fastsvgp fit``.

    Examples
    --------
    >>> fitted = fs.load_fitted("DATA-fit")  # doctest: +SKIP
    >>> fitted.predict([[0.5, 1.5]]).mean  # doctest: +SKIP
    """
    return Fitted.load(path)
