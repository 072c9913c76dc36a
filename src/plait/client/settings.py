"""What both clients are made with: the address, the key and the limits, checked."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from plait.checks import check_count, check_type, shown
from plait.errors import ConfigError
from plait.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    url: str
    key: str | None = field(repr=False)
    timeout: float
    retries: int
    verify: bool | ssl.SSLContext

    def __post_init__(self) -> None:
        check_type("url", self.url, str, "the address of a server, such as 'http://127.0.0.1:8080'", ConfigError)
        try:
            parts = urlsplit(self.url)
            is_address = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
            _ = parts.port
        except ValueError:
            is_address = False
        if not is_address:
            raise ConfigError(f"{shown(self.url)} is no address of a server; it must look like http://127.0.0.1:8080")
        if parts.username or parts.password:
            raise ConfigError("the address of the server contains a user name or a password; pass key instead")
        if self.key is not None:
            check_type("key", self.key, str, "text", ConfigError)
            if not self.key or not self.key.isascii() or not self.key.isprintable() or " " in self.key:
                raise ConfigError("the key is empty, or has characters that a header cannot have; copy it again")
        check_count("retries", self.retries, least=0)
        seconds = self.timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86400:
            raise ConfigError(f"timeout is {shown(seconds)}; it must be a number of seconds above 0")

    def arguments(self) -> dict[str, Any]:
        """Arguments of `httpx.Client` and `httpx.AsyncClient`.

        The key goes to this server alone: redirects are not followed, and neither proxies nor passwords are taken from
        the environment.
        """
        headers = {"user-agent": f"plait/{__version__}", "accept": "application/json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        return {
            "base_url": self.url,
            "headers": headers,
            "verify": self.verify,
            "follow_redirects": False,
            "trust_env": False,
        }


def missing_extra() -> ConfigError:
    return ConfigError("a client needs httpx; pip install 'plait[client]'")
