"""CUDA twins: CuPy arrays in, CuPy arrays out.

Call them through the front door, ``fastsvgp.kernels``.

CuPy is imported only here, and only once a CuPy array has arrived. The CUDA C++ sources are in
``kernels_cuda/`` of a checkout; an installed package holds them as ``fastsvgp.kernels.cuda.src``.
"""
