"""Likelihoods of counts beside ``poisson``."""
