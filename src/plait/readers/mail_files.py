"""E-mail: single messages (.eml) and mailboxes (.mbox)."""

from __future__ import annotations

import email
import email.policy
import re
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any, BinaryIO

from plait.errors import SourceError
from plait.readers.given import Given, checked
from plait.readers.html_files import HtmlText
from plait.records import Document, Section

MAX_MESSAGE = 50_000_000  # bytes
MAX_PARTS = 200
_CONTROL = re.compile(r"[\x00\ud800-\udfff]")


def read_eml(given: Given) -> Iterator[Document]:
    """One message: the subject is the title; sender, recipients and date are metadata."""
    raw = given.read()
    if raw.strip():
        message = _parsed(raw, given.name)
        yield from checked(_document(message, given.id, ()), given.name)


def read_mbox(given: Given) -> Iterator[Document | SourceError]:
    """One document for each message. The id is that of the file with the message's own id, so that new messages do not
    change the ids of others; the location is the number of the message."""
    seen: set[str] = set()
    for number, raw in enumerate(_messages(given.stream, given.name), 1):
        where = f"{given.name}, message {number}"
        try:
            message = _parsed(raw, where)
            key = _header(message, "message-id").strip("<> ")[:300] or str(number)
            id = f"{given.id}#{key}" if key not in seen else f"{given.id}#{key}#{number}"
            seen.add(key)
            yield from checked(_document(message, id, (Section(0, f"message {number}"),)), where)
        except SourceError as error:
            yield error


def _messages(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The messages of a mailbox: each begins with a line "From ", after a blank line."""
    lines: list[bytes] = []
    size, is_blank_before = 0, True
    for number, line in enumerate(stream, 1):
        if is_blank_before and line.startswith(b"From "):
            if lines:
                yield b"".join(lines)
            lines, size = [], 0
        elif number == 1:
            raise SourceError(f"{name} does not begin with a line 'From '; it is not a mailbox")
        else:
            lines.append(line[1:] if line.startswith(b">From ") else line)
            size += len(line)
            if size > MAX_MESSAGE:
                raise SourceError(f"{name}, line {number}: a message is longer than {MAX_MESSAGE:,} bytes")
        is_blank_before = not line.strip()
    if lines:
        yield b"".join(lines)


def _parsed(raw: bytes, name: str) -> EmailMessage:
    try:
        message = email.message_from_bytes(raw, policy=email.policy.default)
    except Exception as error:  # the parser raises errors of many kinds for hostile headers
        raise SourceError(f"{name}: this message cannot be read: {error}") from None
    assert isinstance(message, EmailMessage)
    if not message.keys():
        raise SourceError(f"{name} has no headers; it is not a message")
    return message


def _document(message: EmailMessage, id: str, sections: tuple[Section, ...]) -> Document:
    metadata: dict[str, Any] = {}
    for name in ("from", "to", "cc", "date"):
        if value := _header(message, name):
            metadata[name] = value
    if date := _date(message):
        metadata["date"] = date
    names = [name for part in _parts(message) if (name := _file_name(part))]
    if names:
        metadata["attachments"] = names
    return Document(id, _body(message), _header(message, "subject"), metadata, sections)


def _header(message: EmailMessage, name: str) -> str:
    try:
        return _clean(" ".join(str(message[name] or "").split()))
    except Exception:  # headers are parsed when they are read, and hostile ones raise errors of many kinds
        return ""


def _date(message: EmailMessage) -> str:
    try:
        moment = message["date"].datetime
        return str(moment.isoformat()) if moment is not None else ""
    except Exception:
        return ""


def _parts(message: EmailMessage) -> list[EmailMessage]:
    parts: list[EmailMessage] = []
    for part in message.walk():
        if len(parts) >= MAX_PARTS:
            break
        if isinstance(part, EmailMessage) and not part.is_multipart():
            parts.append(part)
    return parts


def _file_name(part: EmailMessage) -> str:
    try:
        return _clean(part.get_filename() or "")
    except Exception:
        return ""


def _body(message: EmailMessage) -> str:
    """The text of the message: plain if it has such a part, else from HTML. Attached files are left out."""
    plain: list[str] = []
    html: list[str] = []
    for part in _parts(message):
        if part.get_content_disposition() == "attachment":
            continue
        if part.get_content_type() == "text/plain":
            plain.append(_content(part))
        elif part.get_content_type() == "text/html":
            html.append(HtmlText(_content(part), "").text)
    texts = [text for text in (plain if any(text.strip() for text in plain) else html) if text.strip()]
    return _clean("\n\n".join(texts)).strip("\n")


def _content(part: EmailMessage) -> str:
    try:
        content = part.get_content()
    except Exception:  # an unknown character set, or a damaged encoding
        raw = part.get_payload(decode=True)
        content = raw.decode("cp1252", errors="replace") if isinstance(raw, bytes) else ""
    return str(content).replace("\r\n", "\n")


def _clean(text: str) -> str:
    return _CONTROL.sub(" ", text)
