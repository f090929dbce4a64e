"""The transformer of latent inputs: scikit-learn's checks, and tables with gaps."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastsvgp.sklearn import GPLVM


@parametrize_with_checks([GPLVM(n_components=1, n_inducing=8, max_iter=15, random_state=0)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def table(rng, N=70):
    t = rng.uniform(-2, 2, N)
    Y = np.stack([np.sin(2 * t), 5 + 10 * np.cos(1.5 * t), t, 100 * t**2], 1)
    return Y + 0.05 * Y.std(0) * rng.standard_normal(Y.shape)


def test_gaps_are_filled_in_the_units_of_the_table(rng):
    whole = table(rng)
    holed = whole.copy()
    gaps = rng.uniform(size=whole.shape) < 0.1
    gaps[:, 0] = False
    holed[gaps] = np.nan
    found = GPLVM(2, n_inducing=20, max_iter=80, random_state=0).fit(holed)
    filled, std = found.impute(holed, return_std=True)
    np.testing.assert_array_equal(filled[~gaps], whole[~gaps])
    assert not std[~gaps].any() and (std[gaps] > 0).all()
    error = ((filled - whole) / whole.std(0))[gaps]
    assert np.sqrt((error**2).mean()) < 0.8  # 1 by means of columns
    codes = found.transform(whole)
    back = found.inverse_transform(codes)
    assert np.sqrt((((back - whole) / whole.std(0)) ** 2).mean()) < 0.5
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.transform(whole), codes)
    assert found.relevance_.max() == 1 and found.inputs_.mean.shape == (70, 2)


def test_bad_tables_are_refused(rng):
    Y = table(rng, 12)
    found = GPLVM(1, n_inducing=5, max_iter=3).fit(Y)
    empty, missing = Y.copy(), Y.copy()
    empty[:, 2], missing[4] = np.nan, np.nan
    for call, text in (
        (lambda: GPLVM(5).fit(Y), "n_features=4"),
        (lambda: GPLVM(0).fit(Y), "n_components=0"),
        (lambda: GPLVM(1).fit(empty), "column 2 of X has no number"),
        (lambda: found.transform(missing), "row 4 of X has no number"),
    ):
        with pytest.raises(ValueError) as caught:
            call()
        assert text in str(caught.value)
