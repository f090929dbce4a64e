"""Shared code of the families of CPU kernels."""
