"""Initial values from data: inducing inputs, lengthscales, mean functions."""

from .inducing import (
    check as check,
    greedy_variance_inducing as greedy_variance_inducing,
    kmeans_inducing as kmeans_inducing,
)
from .lengthscales import median_lengthscales as median_lengthscales
from .principal_components import (
    pca_mean as pca_mean,
    principal_directions as principal_directions,
)
