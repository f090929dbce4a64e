"""Resolve arguments to the settings of a model and its training."""
