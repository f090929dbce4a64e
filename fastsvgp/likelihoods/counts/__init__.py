"""Likelihoods of counts."""
