"""QSGP: a GP as a linear model of basis functions, trained on samples of data and functions."""

from . import predict  # noqa: F401, registers the predictions of a QSGP
