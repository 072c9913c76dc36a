"""Cursors of scrolls: where the next page begins, so that a client can send it back but not read or change it.

A cursor holds the number of a document, which tells how many documents an index has had: a tenant must not learn that.
It is encrypted by a stream from HMAC-SHA-256 with a random nonce, and signed together with what it belongs to.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import struct

from plait.serve.errors import ApiError

_NONCE, _NUMBER, _TAG = 8, 8, 16


def write_cursor(secret: str, scroll: str, number: int) -> str:
    """The cursor of a document number in a scroll; `scroll` says which: index, key, filter."""
    nonce = secrets.token_bytes(_NONCE)
    hidden = _xor(struct.pack(">q", number), _mac(secret, b"stream", nonce)[:_NUMBER])
    tag = _mac(secret, b"tag", nonce + hidden + scroll.encode("utf-8", "surrogatepass"))[:_TAG]
    return base64.urlsafe_b64encode(nonce + hidden + tag).decode()


def read_cursor(secret: str, scroll: str, cursor: str) -> int:
    """The document number of a cursor; ApiError 422 if it is not one of this scroll."""
    try:
        content = base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        content = b""
    nonce, hidden, tag = content[:_NONCE], content[_NONCE : _NONCE + _NUMBER], content[_NONCE + _NUMBER :]
    expected = _mac(secret, b"tag", nonce + hidden + scroll.encode("utf-8", "surrogatepass"))[:_TAG]
    if len(content) != _NONCE + _NUMBER + _TAG or not hmac.compare_digest(tag, expected):
        raise ApiError(
            422,
            "invalid_cursor",
            "the cursor is not one of this scroll; send it as it was, with the same filter and key",
        )
    (number,) = struct.unpack(">q", _xor(hidden, _mac(secret, b"stream", nonce)[:_NUMBER]))
    return int(number)


def _mac(secret: str, use: bytes, message: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(secret), use + b"\0" + message, hashlib.sha256)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
