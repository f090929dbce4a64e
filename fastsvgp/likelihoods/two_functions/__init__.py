"""Likelihoods of two latent functions per output, such as a mean and a noise level."""
