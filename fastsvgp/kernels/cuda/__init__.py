"""CUDA twins: CuPy arrays in, CuPy arrays out.

Reached through the front door, ``fastsvgp.kernels``.

CuPy is imported in here alone, and only once a CuPy array has arrived. The CUDA C++ lies in
``kernels_cuda/`` of a checkout, which an installed package holds as ``fastsvgp.kernels.cuda.src``.
"""
