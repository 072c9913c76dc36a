"""API keys: a file with the hash of each, its scopes, and what it may see.

A key is `plait_ID_SECRET`. The id finds the entry and is no secret; the secret has 256 random bits. The file has a
salted SHA-256 of it. A slow hash such as scrypt protects passwords, which can be guessed; nobody guesses 256 random
bits, and a slow hash would let anybody load the server with wrong keys. The salt hides whether two entries have the
same key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plait.checks import parse_json, shown
from plait.errors import ConfigError, FilterError
from plait.filters import compile_filter
from plait.serve.protocol import INDEX_NAME

SCOPES = ("read", "write", "admin", "metrics")
MAX_FILE_BYTES = 10_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}")
_KEY = re.compile(r"plait_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
_ID = re.compile(r"[a-z0-9]{12}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An entry of the file. `write` includes `read`; `admin` includes all scopes."""

    id: str
    name: str
    scopes: tuple[str, ...]
    salt: str
    digest: str
    created: str
    indexes: tuple[str, ...] | None = None  # None: all
    filter: str | None = None  # its holder sees only documents that this filter accepts, and writes nothing
    expires: str | None = None  # ISO 8601

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id) or not _NAME.fullmatch(self.name):
            raise ConfigError(f"{shown(self.name)} is not a name of a key; use letters, digits, spaces and . _ @ -")
        unknown = [scope for scope in self.scopes if scope not in SCOPES]
        if unknown or not self.scopes:
            raise ConfigError(f"key {self.name} has scopes {shown(self.scopes)}; choose from {', '.join(SCOPES)}")
        for name in self.indexes or ():
            if not re.fullmatch(INDEX_NAME, name):
                raise ConfigError(f"{shown(name)} is not the name of an index")
        if self.indexes == ():
            raise ConfigError(f"key {self.name} names no index; leave out the list to allow all")
        if self.expires is not None:
            _time(self.expires)
        if self.filter is not None:
            self._check_filter(self.filter)

    def _check_filter(self, filter: str) -> None:
        if self.scopes != ("read",):
            raise ConfigError(
                f"key {self.name} has a filter, so its scope must be read alone: ids are shared by all documents of an "
                "index, and a write could replace documents that the filter hides; give a tenant that writes an index"
            )
        try:
            compile_filter(filter)
        except FilterError as error:
            raise ConfigError(f"the filter of key {self.name} is invalid: {error}") from None

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and now >= _time(self.expires)


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        raise ConfigError(f"{shown(text)} is not a time; write it as 2030-01-31T00:00:00+00:00") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def make_key(
    name: str,
    scopes: Sequence[str],
    *,
    indexes: Sequence[str] | None = None,
    filter: str | None = None,
    expires: str | None = None,
) -> tuple[str, Key]:
    """A new key and its entry. The key itself is kept nowhere."""
    id = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    secret, salt = secrets.token_urlsafe(32), secrets.token_hex(16)
    entry = Key(
        id=id,
        name=name,
        scopes=tuple(dict.fromkeys(scopes)),
        salt=salt,
        digest=_digest(salt, secret),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        indexes=None if indexes is None else tuple(dict.fromkeys(indexes)),
        filter=filter,
        expires=expires,
    )
    return f"plait_{id}_{secret}", entry


def _digest(salt: str, secret: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The keys of a server. `secret` signs cursors, so that they tell nothing and are the same for all workers."""

    keys: Mapping[str, Key]
    secret: str

    def find(self, given: str) -> Key | None:
        """The entry of a key; None if there is none or it has expired. Takes the same time for every wrong key."""
        match = _KEY.fullmatch(given)
        id, secret = (match[1], match[2]) if match is not None else ("", "")
        entry = self.keys.get(id)
        salt, digest = (_ABSENT.salt, _ABSENT.digest) if entry is None else (entry.salt, entry.digest)
        is_right = hmac.compare_digest(_digest(salt, secret), digest)
        if entry is None or not is_right or entry.is_expired(datetime.now(UTC)):
            return None
        return entry

    def with_key(self, key: Key) -> KeyFile:
        if any(key.name == other.name for other in self.keys.values()):
            raise ConfigError(f"there is a key named {key.name} already; remove it first, or choose another name")
        return replace(self, keys={**self.keys, key.id: key})

    def without(self, name_or_id: str) -> KeyFile:
        left = {id: key for id, key in self.keys.items() if name_or_id not in (id, key.name)}
        if len(left) == len(self.keys):
            raise ConfigError(f"there is no key {shown(name_or_id)}; plait keys list shows the names")
        return replace(self, keys=left)


_ABSENT = make_key("absent", ["read"])[1]


def new_key_file() -> KeyFile:
    return KeyFile({}, secrets.token_hex(32))


def read_keys(path: Path) -> KeyFile:
    """The keys of a file; ConfigError if it is missing or damaged."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"the keys in {path} cannot be read: {error.strerror}; plait keys add makes the file"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} has more than {MAX_FILE_BYTES:,} bytes; this is not a file of keys")
    try:
        fields = parse_json(content.decode())
        secret, entries = fields["secret"], fields["keys"]
        is_ours = fields["version"] == 1 and re.fullmatch("[0-9a-f]{64}", secret)
        keys = [_entry(entry) for entry in entries] if is_ours else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        keys = None
    if keys is None:
        raise ConfigError(f"{path} is not a file of keys; plait keys add makes one")
    if len({key.id for key in keys}) != len(keys):
        raise ConfigError(f"{path} has two keys with the same id; remove one")
    return KeyFile({key.id: key for key in keys}, secret)


def _entry(fields: Mapping[str, Any]) -> Key:
    texts = ("id", "name", "salt", "digest", "created")
    if not all(isinstance(fields[name], str) for name in texts):
        raise TypeError
    if not re.fullmatch("[0-9a-f]{32}", fields["salt"]) or not re.fullmatch("[0-9a-f]{64}", fields["digest"]):
        raise ValueError
    indexes, filter, expires = fields["indexes"], fields["filter"], fields["expires"]
    if not isinstance(filter, str | None) or not isinstance(expires, str | None):
        raise TypeError
    return Key(
        **{name: fields[name] for name in texts},
        scopes=_texts(fields["scopes"]),
        indexes=None if indexes is None else _texts(indexes),
        filter=filter,
        expires=expires,
    )


def _texts(values: Iterable[object]) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError
    return tuple(values)


def write_keys(path: Path, keys: KeyFile) -> None:
    """Replaces the file at once, so that a server never reads half of it. Only its owner may read it."""
    entries = [{name: getattr(key, name) for name in Key.__dataclass_fields__} for key in keys.keys.values()]
    content = json.dumps({"version": 1, "secret": keys.secret, "keys": entries}, indent=1)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:  # mkstemp makes it readable by its owner alone
                file.write(content + "\n")
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"the keys cannot be written to {path}: {error.strerror}") from None
