"""Columns of X that are no numbers, and targets of other shapes: the message names them."""

import datetime

import numpy as np
import pytest
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from support.estimator_data import QUICK, classes, real

from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

N = 60
DAYS = np.datetime64("2024-01-30") + np.arange(N)


class Frame:
    """The parts of a data frame that matter here."""

    def __init__(self, **columns):
        self._columns, self.columns = columns, list(columns)
        self.dtypes = [np.asarray(column).dtype for column in columns.values()]
        self.shape = N, len(columns)

    def __getitem__(self, name):
        return self._columns[name]

    def __len__(self):
        return N

    def __array__(self, dtype=None, copy=None):
        cells = [np.asarray(column).astype(object) for column in self._columns.values()]
        return np.stack(cells, axis=1).astype(dtype or object)


def table(column):
    """A column ``second`` beside one of numbers: as a data frame, an array, and lists."""
    cells = np.empty((N, 2), object)
    cells[:, 0], cells[:, 1] = np.linspace(-2, 2, N), column
    frame = Frame(first=cells[:, 0].astype(float), second=column)
    return {"'second'": frame, "1": cells}, cells.tolist()


@pytest.fixture(params=[SVGPRegressor, SVGPClassifier])
def fitted(rng, request):
    X, y = (real if request.param is SVGPRegressor else classes)(rng)
    return request.param(**QUICK).fit(X, y), y


def refuse(fitted, tables, error, message):
    """The message, of ``fit`` and of ``predict``, from each kind of table."""
    (named, lists), (model, y) = tables, fitted
    for name, X in [*named.items(), ("1", lists)]:
        for call in (lambda X=X: type(model)(**QUICK).fit(X, y), lambda X=X: model.predict(X)):
            with pytest.raises(error) as caught:
                call()
            said = str(caught.value)
            assert said.startswith(message.replace("NAME", name)) and len(said) <= 160, said


def test_text(fitted):
    message = "`X` holds text in column NAME, for example Berlin; encode it, for example by OneHot"
    refuse(fitted, table(["Berlin", "Oslo"] * (N // 2)), ValueError, message)
    _, lists = table(["1.5"] * (N - 1) + ["n/a"])  # numbers as text are numbers
    message = "`X` holds text in column 1, for example n/a; encode it"
    with pytest.raises(ValueError, match=message):
        SVGPRegressor(**QUICK).fit(lists, np.zeros(N))
    texts = np.array([["0.5", "1.5"]] * (N - 1) + [["0.5", "high"]])
    with pytest.raises(ValueError, match="text in column 1, for example high;"):
        SVGPRegressor(**QUICK).fit(texts, np.zeros(N))


@pytest.mark.parametrize(
    "column, shown",
    [
        (DAYS, "2024-01-30"),
        (DAYS.astype(object), "2024-01-30"),
        (DAYS.astype("M8[us]").astype(object), "2024-01-30 00:00:00"),
        (np.arange(N) * np.timedelta64(1, "h"), "0 hours"),
        (np.array([datetime.time(h % 24) for h in range(N)]), "00:00:00"),
    ],
)
def test_dates(fitted, column, shown):
    (named, lists), cells = table(column), np.asarray(column)
    message = f"`X` holds dates or times in column NAME, for example {shown}"
    named["1"] = np.stack([np.arange(N), cells.astype(object)], axis=1)
    refuse(fitted, ({"'second'": named["'second'"]}, lists), TypeError, message[:44])


def test_dates_alone(fitted):
    """NumPy would convert them to counts of their unit without a word."""
    model, y = fitted
    for X in (np.stack([DAYS, DAYS], axis=1), Frame(day=DAYS, other=DAYS)):
        name = "'day'" if isinstance(X, Frame) else "0"
        with pytest.raises(TypeError, match=f"dates or times in column {name}, for example 2024-0"):
            type(model)(**QUICK).fit(X, y)


def test_missing_and_infinite_cells(fitted):
    column = np.ones(N)
    column[4] = np.nan
    message = "Input X contains NaN in column NAME, row 4; to fill in missing values, put"
    refuse(fitted, table(column), ValueError, message)
    cells = column.astype(object)
    cells[4] = None
    refuse(fitted, table(cells), ValueError, message)
    column[4] = -np.inf
    message = "Input X contains infinity or a value too large for dtype('float64') in column NAME,"
    refuse(fitted, table(column), ValueError, message)


def test_something_else(fitted):
    column = np.array([{"a": 1}] * N)
    message = "float() argument must be a string or a real number, not 'dict', in column NAME of X"
    refuse(fitted, table(column), TypeError, message)


@pytest.mark.parametrize("X", [DAYS, [[1.0, 2.0], [3.0]], ["a", "b"], "ab", None, np.ones(())])
def test_what_is_no_table_is_left_to_scikit_learn(fitted, X):
    model, y = fitted
    for call in (lambda: type(model)(**QUICK).fit(X, y), lambda: model.predict(X)):
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert "column " not in str(caught.value)


def test_what_is_taken(rng):
    """On the other side: numbers of any kind, and as text."""
    X, y = real(rng)
    expected = SVGPRegressor(**QUICK).fit(X, y).predict(X)
    for same in (X.astype(object), X.tolist(), X.astype(str), Frame(a=X[:, 0], b=X[:, 1])):
        np.testing.assert_allclose(SVGPRegressor(**QUICK).fit(same, y).predict(X), expected)
    flags = Frame(a=X[:, 0] > 0, b=np.arange(N))
    assert SVGPRegressor(**QUICK).fit(flags, y).predict(flags).shape == (N,)


def test_sparse_columns(fitted):
    """Those of a one-hot encoder, which a ColumnTransformer keeps sparse."""
    model, y = fitted
    cells = np.stack([np.arange(N) % 17, np.arange(N) % 19], axis=1).astype(object)
    message = "Sparse data was passed for `X`, which must be dense: give OneHotEncoder"
    for X in (sparse.csr_matrix(np.eye(N)), sparse.csr_array(np.eye(N))):
        with pytest.raises(TypeError, match=message):
            type(model)(**QUICK).fit(X, y)
    columns = [("codes", OneHotEncoder(), [0, 1])]
    with pytest.raises(TypeError, match=r"ColumnTransformer\(sparse_threshold=0\)"):
        make_pipeline(ColumnTransformer(columns), type(model)(**QUICK)).fit(cells, y)
    dense = ColumnTransformer(columns, sparse_threshold=0)
    assert len(make_pipeline(dense, type(model)(**QUICK)).fit(cells, y).predict(cells)) == N


def test_shapes_of_targets(rng, fitted):
    model, y = fitted
    X = rng.standard_normal((N, 2))
    give = r"labels \(N,\)" if isinstance(model, SVGPClassifier) else r"\(N,\), or \(N, P\) for P t"
    for shape in ((N, 1, 1), (N, 1, 1, 1)):
        with pytest.raises(ValueError, match=rf"`y` has shape \({N}, 1, 1.*\); give {give}"):
            type(model)(**QUICK).fit(X, np.reshape(y, shape))
        with pytest.raises(ValueError, match=rf"`y` has shape \({N}, 1, 1.*\); give {give}"):
            model.log_predictive_density(X, np.reshape(y, shape))
    with pytest.raises(TypeError, match="Sparse data was passed for `y`, which must be dense"):
        type(model)(**QUICK).fit(X, sparse.csr_matrix(np.ones((N, 1))))


def test_dates_as_targets(rng):
    X = rng.standard_normal((N, 2))
    for y in (DAYS, DAYS.astype(object)):
        with pytest.raises(ValueError, match="`y` of a regressor must be numbers, got .*2024-01"):
            SVGPRegressor(**QUICK).fit(X, y)
