"""Speed of the native kernels."""
