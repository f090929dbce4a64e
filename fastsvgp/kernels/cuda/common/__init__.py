"""Shared code of the families of CUDA kernels."""
