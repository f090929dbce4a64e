"""Several latent functions with covariances of their own, mixed linearly."""

from . import bound  # noqa: F401, registers the functions of a MultiGP
