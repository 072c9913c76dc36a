"""The error for a framework that is not installed."""

from __future__ import annotations

from plait.errors import ConfigError


class MissingExtraError(ConfigError, ImportError):
    """A framework is not installed; the message names the extra of plait that installs it."""


def missing_extra(extra: str, error: ModuleNotFoundError) -> MissingExtraError:
    """The error to raise for an import that failed."""
    return MissingExtraError(
        f"plait.integrations needs {error.name}, which is not installed: pip install 'plait[{extra}]'"
    )
