"""QSGP: a GP as a linear model of basis functions, by samples of data and of basis functions."""

from . import predict  # noqa: F401, which registers the predictions of a QSGP
