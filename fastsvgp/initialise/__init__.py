"""Where to start: inducing inputs, lengthscales, mean functions."""

from .inducing import (
    check as check,
    greedy_variance_inducing as greedy_variance_inducing,
    kmeans_inducing as kmeans_inducing,
    median_lengthscales as median_lengthscales,
    pca_mean as pca_mean,
)
