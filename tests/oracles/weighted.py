"""Covariances of weighted sums of points by definition: loops over pairs of points; any dtype."""

import numpy as np
from oracles import covariances


def rows(X, points):
    return [row.reshape(points, -1) for row in X]


def Kff(covariance, X, Y):
    out = np.zeros((len(X), len(Y)), np.result_type(X, Y))
    for n, first in enumerate(rows(X, covariance.points)):
        for m, second in enumerate(rows(Y, covariance.points)):
            K = covariances.matrix(covariance.part, first[:, :-1], second[:, :-1])
            out[n, m] = first[:, -1] @ K @ second[:, -1]
    return out


def Kuf(covariance, Z, X):
    columns = [
        covariances.matrix(covariance.part, Z, row[:, :-1]) @ row[:, -1]
        for row in rows(X, covariance.points)
    ]
    return np.stack(columns, 1)
