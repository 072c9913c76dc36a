"""The version. The build and `plait --version` read it from here."""

__version__ = "0.2.0"
