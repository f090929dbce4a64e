"""
In a scikit-learn pipeline
==========================

The estimators standardise the data themselves and predict in the original units, so a pipeline only
has to encode columns that are not numbers. Here it encodes a column of text, and cross-validation
chooses the covariance.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from fastsvgp.sklearn import SVGPRegressor

rng = np.random.default_rng(12)
hours, day = rng.uniform(0, 24, 800), rng.choice(["work", "rest"], 800)
load = (
    50
    + 20 * np.sin((hours - 6) * np.pi / 12) * np.where(day == "work", 1.0, 0.4)
    + 3 * rng.standard_normal(800)
)
X = np.array([[h, d] for h, d in zip(hours, day, strict=True)], dtype=object)
X_train, X_test, y_train, y_test = train_test_split(X, load, random_state=0)

columns = make_column_transformer((OneHotEncoder(), [1]), remainder="passthrough")
pipeline = make_pipeline(columns, SVGPRegressor(n_inducing=40, random_state=0))
search = GridSearchCV(pipeline, {"svgpregressor__covariance": ["rbf", "matern32"]}, cv=3)
search.fit(X_train, y_train)
print(search.best_params_, f"R2 on the test rows {search.score(X_test, y_test):.3f}")

# %%
# Means and standard deviations for each kind of day.

grid = np.linspace(0, 24, 100)
plt.figure(figsize=(7, 3.5))
for kind, color in (("work", "C0"), ("rest", "C1")):
    plt.plot(hours[day == kind], load[day == kind], ".", color=color, ms=3, alpha=0.4)
    rows = np.array([[h, kind] for h in grid], dtype=object)
    mean, sd = search.best_estimator_.predict(rows, return_std=True)
    plt.fill_between(grid, mean - 2 * sd, mean + 2 * sd, alpha=0.2, color=color)
    plt.plot(grid, mean, label=kind, color=color)
plt.xlabel("hour")
plt.legend()
plt.tight_layout()
plt.show()
