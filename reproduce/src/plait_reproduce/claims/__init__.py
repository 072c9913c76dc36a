"""The experiments, one module for each family of papers."""
