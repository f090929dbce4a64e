"""Shared code of the twins of several families, without kernels."""
