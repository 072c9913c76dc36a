"""The packages that conversion needs; checked before anything imports them."""

from __future__ import annotations

from importlib.util import find_spec

from plait.errors import ConfigError

REQUIRED_PACKAGES = ("torch", "transformers", "safetensors", "onnx", "huggingface_hub")


def check_packages() -> None:
    """ConfigError if a package is missing that conversion needs."""
    missing = [package for package in REQUIRED_PACKAGES if find_spec(package) is None]
    if missing:
        raise ConfigError(f"converting a model needs {', '.join(missing)}; install with: pip install 'plait[convert]'")
