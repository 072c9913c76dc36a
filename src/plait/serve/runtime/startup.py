"""What would end every process of a server is found here, before the first of them is started: one clear error instead
of the same traceback from each process."""

from __future__ import annotations

import ssl
from pathlib import Path

from plait.errors import ConfigError
from plait.serve.config import ServeConfig
from plait.serve.keys import read_keys
from plait.serve.runtime.tracing import Tracing


def check_startup(config: ServeConfig) -> None:
    """ConfigError for keys, a certificate or telemetry that cannot work."""
    config.check_exposure()
    if config.keys_file is not None:
        read_keys(config.keys_file)
    if config.tls_cert is not None and config.tls_key is not None:
        _check_tls(config.tls_cert, config.tls_key)
    Tracing.check(config.telemetry)


def _check_tls(certificate: Path, key: Path) -> None:
    for file in (certificate, key):
        try:
            file.open("rb").close()
        except OSError as error:
            raise ConfigError(f"the TLS file {file} cannot be read: {error.strerror}") from None
    is_encrypted = False

    def password() -> str:  # without it OpenSSL would ask on the terminal
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password)
    except (ssl.SSLError, ValueError) as error:
        if is_encrypted:
            raise ConfigError(f"the TLS key {key} is encrypted; give a key without a password") from None
        raise ConfigError(
            f"{certificate} and {key} are not a certificate and its key, both in PEM: {_reason(error)}"
        ) from None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).lower().replace("_", " ")
