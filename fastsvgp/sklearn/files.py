"""Save and load fitted estimators without pickle.

The model is stored as by ``fastsvgp.save``, settings and scaling as JSON.
"""

import numpy as np
from sklearn.gaussian_process import kernels
from sklearn.utils.validation import check_is_fitted

from .. import check
from ..errors import DataFileError
from ..recipes.fitted import (
    array_from_json,
    array_to_json,
    check_scale,
    scale_from_json,
    scale_to_json,
    sizes_of,
)
from ..recipes.scaling import ClassScale
from ..records import is_record, leaves
from ..records.inducing_sets import stack_sets
from ..records.persistence import (
    as_json,
    from_header,
    header_of,
    load_with_extra,
    save as save_record,
)
from .classifier import SVGPClassifier
from .model_search import inducing_of
from .regressor import SVGPRegressor

ESTIMATORS = {kind.__name__: kind for kind in (SVGPRegressor, SVGPClassifier)}
EXTRA, FORMAT = "estimator", 6  # key and format of the description
NUMBERS = "jitter_", "lower_bound_", "n_iter_", "n_features_in_"


def save(path, estimator):
    """Write a fitted estimator to ``path`` as .npz, atomically.

    Parameters
    ----------
    path : path-like
        Used exactly as given; no suffix is added.
    estimator : SVGPRegressor or SVGPClassifier

    Raises
    ------
    NotFittedError
        The estimator is not fitted.
    TypeError
        The estimator is of another class (subclasses included). Or a setting cannot be stored,
        because it is not a number, text, array, record or kernel, but for example a RandomState or
        a schedule.
    OSError
        As in ``fastsvgp.save``.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastsvgp.sklearn import SVGPRegressor, load, save
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> save(path, SVGPRegressor(max_iter=5).fit(X, np.sin(X[:, 0])))
    >>> load(path).predict(X).shape
    (50,)
    """
    if type(estimator) not in ESTIMATORS.values():
        raise TypeError(
            "save: `estimator` must be an SVGPRegressor or SVGPClassifier, got"
            f" {type(estimator).__name__}"
        )
    check_is_fitted(estimator)
    about = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "settings": {
            name: _plain(f"`{name}`", value)
            for name, value in estimator.get_params(deep=False).items()
        },
        "scale": scale_to_json(estimator.scale_),
        "lower_bounds_": estimator.lower_bounds_.tolist(),
        "feature_names_in_": getattr(estimator, "feature_names_in_", np.array([])).tolist(),
        "y_shape": list(getattr(estimator, "_y_shape", ())),
        **{name: getattr(estimator, name) for name in NUMBERS},
        "plan_": estimator.plan_,
        "story_": list(estimator.story_),
    }
    save_record(path, estimator.model_, **{EXTRA: about})


def load(path):
    """Read an estimator written by ``save``.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    SVGPRegressor or SVGPClassifier
        Fitted estimator, with predictions equal to the last bit.

    Raises
    ------
    OSError
        The file does not exist or cannot be opened.
    DataFileError
        The file holds no estimator, is damaged, or has another format.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastsvgp.sklearn import SVGPRegressor, load, save
    >>> X = np.linspace(0, 6, 50)[:, None]
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> save(path, SVGPRegressor(max_iter=5).fit(X, np.sin(X[:, 0])))
    >>> load(path).predict(X).shape
    (50,)
    """
    model, extra = load_with_extra(path)
    if EXTRA not in extra:
        raise DataFileError(
            f"{path} holds a {type(model).__name__}, not an estimator; read it with fastsvgp.load"
        )
    about = extra[EXTRA]
    try:
        if about["format"] != FORMAT:
            raise DataFileError(
                f"{path} has estimator format {about['format']!r:.60}, but this version of fastsvgp"
                f" reads {FORMAT}; load it with the version that wrote it"
            )
        return _estimator(model, about)
    except DataFileError:
        raise
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, RecursionError) as error:
        raise DataFileError(
            f"{path} was not written by fastsvgp.sklearn.save, or it is damaged ({error})"
        ) from error


def _estimator(model, about):
    """Build an estimator from untrusted JSON; errors are raised here, not in a prediction."""
    kind = ESTIMATORS[about["class"]]
    D, outputs = sizes_of(model, about["n_features_in_"])
    settings = {name: _rebuilt(value) for name, value in about["settings"].items()}
    estimator = kind(**settings)
    estimator.model_, estimator.scale_ = model, scale_from_json(about["scale"])
    estimator.lower_bounds_ = np.array(about["lower_bounds_"], np.float64)
    estimator.inducing_ = inducing_of(model, estimator.scale_)
    estimator.plan_, estimator.story_ = about["plan_"], tuple(about["story_"])
    if about["feature_names_in_"]:
        estimator.feature_names_in_ = np.array(about["feature_names_in_"], object)
    if kind is SVGPRegressor:
        estimator._y_shape = tuple(about["y_shape"])
    for name in NUMBERS:
        setattr(estimator, name, about[name])
    _check(estimator, D, outputs)
    return estimator


def _check(estimator, columns, outputs):
    """Check that the parts of an estimator fit together.

    ``columns`` and ``outputs`` are the sizes of its model.
    """
    if estimator.n_features_in_ != columns:
        raise ValueError("model, scaling and number of features are inconsistent")
    check_scale(estimator.scale_, estimator.model_, columns, outputs)
    check.jitter_amount(estimator.jitter_, stack_sets(estimator.model_.inducing).dtype)
    for name in NUMBERS[1:3]:
        check.scalar(name, getattr(estimator, name))
    classes = isinstance(estimator, SVGPClassifier)
    if classes != isinstance(estimator.scale_, ClassScale):
        raise ValueError("an estimator of classes has classes in its scaling, and no other has")
    if not classes and estimator.model_.likelihood.num_latent is not None:
        raise ValueError("a regressor cannot have a classification likelihood")
    if not classes and estimator._y_shape != outputs and (outputs or estimator._y_shape != (1,)):
        raise ValueError("model, scaling and number of targets are inconsistent")


# --- settings as JSON -----------------------------------------------------------------------------


def _plain(name, value):
    """Convert a setting for JSON: plain values unchanged, others as a dict with their type."""
    if isinstance(value, np.ndarray):
        if value.dtype == object and not all(
            isinstance(item, str | bool | int | float) for item in value.ravel()
        ):
            raise TypeError(f"save: {name} holds objects that are neither numbers nor text")
        return array_to_json(value)
    if is_record(value):
        arrays = {
            path: _plain(name, np.asarray(leaf))
            for path, _, leaf in leaves(value)
            if leaf is not None
        }
        return {"record": header_of(value), "arrays": arrays}
    if isinstance(value, kernels.Kernel):
        if type(value).__module__ != kernels.__name__:
            raise TypeError(
                f"save: {name} is a {type(value).__name__}, which is not a kernel defined by"
                " scikit-learn"
            )
        return {
            "kernel": type(value).__name__,
            "settings": {k: _plain(name, v) for k, v in value.get_params(deep=False).items()},
        }
    if isinstance(value, tuple | list):
        return {
            "tuple" if isinstance(value, tuple) else "list": [_plain(name, item) for item in value]
        }
    return as_json(f"save: the setting {name}", value)


def _rebuilt(plain):
    if not isinstance(plain, dict):
        return plain
    if "array" in plain:
        return array_from_json(plain)
    if "record" in plain:
        return from_header(
            plain["record"], {path: _rebuilt(array) for path, array in plain["arrays"].items()}
        )
    if "kernel" in plain:
        kind = getattr(kernels, plain["kernel"])
        if not issubclass(kind, kernels.Kernel):
            raise ValueError(f"{plain['kernel']} is not a kernel")
        return kind(**{name: _rebuilt(value) for name, value in plain["settings"].items()})
    items = [_rebuilt(item) for item in plain["tuple" if "tuple" in plain else "list"]]
    return tuple(items) if "tuple" in plain else items
