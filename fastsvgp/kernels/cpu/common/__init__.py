"""What serves the families of CPU kernels."""
