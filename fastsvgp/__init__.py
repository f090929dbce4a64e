"""Sparse variational Gaussian processes as fast array functions with closed-form gradients."""
