"""Scores that hold on what comes: new patients, and the days after a drift."""

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

import fastsvgp as fs

SECONDS, SEED = 3.0, 0


def patients(rng, number):
    """25 visits of each of 60 patients, and of others: X, y, and the patient of each row."""
    age, bmi, lab = (
        rng.normal(55, 12, number),
        rng.normal(27, 4, number),
        rng.lognormal(size=number),
    )
    effect = 1.2 * rng.standard_normal(number) + 0.03 * (age - 55) + 0.05 * (bmi - 27)
    who, day = np.repeat(np.arange(number), 25), rng.uniform(0, 10, 25 * number)
    y = effect[who] + 0.6 * np.sin(day) + 0.05 * day + 0.3 * rng.standard_normal(len(day))
    return np.c_[age[who], bmi[who], lab[who], day], y, who


def drift(rng, number):
    """A level that drifts, a year, and two inputs."""
    t, a, b = np.arange(float(number)), rng.standard_normal(number), rng.uniform(0, 1, number)
    level = np.cumsum(0.03 * rng.standard_normal(number)) + 0.004 * t
    year = 1.5 * np.sin(2 * np.pi * t / 365.25)
    noise = 0.5 * rng.standard_normal(number)
    return np.c_[t, a, b], level + year + 0.8 * np.sin(3 * b) + 0.5 * a + noise


def scores(X, y, train, split):
    """Return the NLPD that the search reports, and RMSE and NLPD of what comes; RMSE of trees."""
    found = fs.search(X[train], y[train], SECONDS, by_work=True, rng=0, split=split)
    new, targets = X[~train], y[~train]
    mean, var = found.scale.back(*fs.predict_y(found.model, found.scale.X(new)))
    nlpd = 0.5 * np.mean(np.log(2 * np.pi * var) + np.square(targets - mean) / var)
    trees = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train]).predict(new)
    reported = float(found.holds.partition("NLPD ")[2].split()[0])
    rmse, other = (np.sqrt(np.mean(np.square(one - targets))) for one in (mean, trees))
    return reported, rmse, nlpd, other


def test_scores_hold_for_new_patients():
    X, y, who = patients(np.random.default_rng(SEED), 160)
    split = fs.recipes.Split(groups=who[who < 60])
    reported, rmse, nlpd, trees = scores(X, y, who < 60, split)
    assert abs(reported - nlpd) < 0.3
    assert rmse < 1.05 * trees


def test_scores_hold_for_the_days_after():
    X, y = drift(np.random.default_rng(SEED), 1650)
    reported, rmse, nlpd, trees = scores(X, y, np.arange(1650) < 1500, fs.recipes.Split(time=0))
    assert abs(reported - nlpd) < 0.3
    assert rmse < 1.05 * trees
