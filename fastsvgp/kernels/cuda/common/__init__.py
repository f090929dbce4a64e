"""What serves the families of CUDA kernels."""
