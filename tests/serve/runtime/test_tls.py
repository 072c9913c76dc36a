"""HTTPS by flags, and what is wrong at the start is one clear error before a process is started."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest
import trustme

import plait
from plait.errors import ConfigError, ServerError
from plait.serve.config import ServeConfig, Telemetry
from plait.serve.runtime.startup import check_startup
from serve.processes import server


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(authority: trustme.CA, tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for loopback and its key, of an authority that no system trusts."""
    issued = authority.issue_cert("127.0.0.1", "localhost")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return certificate, key


def test_a_server_with_a_certificate_speaks_https_alone(
    fabrics: Path, files: tuple[Path, Path], authority: trustme.CA
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with server(f"fabrics={fabrics}", "--tls-cert", str(files[0]), "--tls-key", str(files[1])) as running:
        assert running.url.startswith("https://")
        with plait.Client(running.url, index="fabrics", verify=trusting) as index:
            assert index.search("warp and weft", k=1)[0].id == "loom"
        with (
            plait.Client(running.url, index="fabrics", retries=4) as index,
            pytest.raises(ServerError, match=r"certificate of the server is not trusted.*verify="),
        ):
            index.search("warp and weft")
        with pytest.raises(httpx.TransportError):
            httpx.get(running.url.replace("https:", "http:") + "/health")


def test_files_that_are_not_a_certificate_and_its_key_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = files
    check_startup(ServeConfig(tls_cert=certificate, tls_key=key))
    other = tmp_path / "other.pem"
    other.write_bytes(trustme.CA().issue_cert("localhost").private_key_pem.bytes())
    for wrong in ((key, key), (certificate, certificate), (certificate, other)):
        with pytest.raises(ConfigError, match="are not a certificate and its key"):
            check_startup(ServeConfig(tls_cert=wrong[0], tls_key=wrong[1]))
    with pytest.raises(ConfigError, match=r"missing\.pem cannot be read: No such file"):
        check_startup(ServeConfig(tls_cert=certificate, tls_key=tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match="both a certificate"):
        ServeConfig(tls_cert=certificate)


def test_a_key_with_a_password_is_refused_instead_of_asked_for(files: tuple[Path, Path]) -> None:
    from cryptography.hazmat.primitives import serialization

    certificate, key = files
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    encrypted = private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a password"),
    )
    key.write_bytes(encrypted)
    with pytest.raises(ConfigError, match="is encrypted; give a key without a password"):
        check_startup(ServeConfig(tls_cert=certificate, tls_key=key))


def test_missing_keys_and_a_wrong_endpoint_are_found_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="plait keys add makes the file"):
        check_startup(ServeConfig(keys_file=tmp_path / "keys.json"))
    with pytest.raises(ConfigError, match="otlp_endpoint is 'localhost:4318'; it must be an address"):
        check_startup(ServeConfig(telemetry=Telemetry(otlp_endpoint="localhost:4318")))
