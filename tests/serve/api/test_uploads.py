"""An upload of JSON lines comes in parts of any size."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.serve import uploads
from plait.serve.errors import ApiError
from plait.serve.limits import Limits
from plait.serve.uploads import Upload

DOCUMENTS = [{"id": str(number), "text": "ü" * number} for number in range(1, 9)]
BODY = b"\r\n".join(json.dumps(one, ensure_ascii=False).encode() for one in DOCUMENTS) + b"\n\n"


async def read(upload: Upload, parts: Sequence[bytes]) -> None:
    async def arriving() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    await upload.read(arriving())


@given(st.lists(st.integers(0, len(BODY)), max_size=12).map(sorted), st.integers(1, 50))
def test_the_lines_are_those_of_the_body_however_it_is_cut(cuts: list[int], part_bytes: int) -> None:
    parts = [BODY[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(BODY)], strict=True)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "PART_BYTES", part_bytes)
        with Upload(Path(folder), Limits()) as upload:
            asyncio.run(read(upload, parts))
            assert [json.loads(line) for line in upload.path.read_bytes().splitlines()] == DOCUMENTS
            assert upload.n_documents == len(DOCUMENTS)
        assert list(Path(folder).iterdir()) == []


def test_a_line_is_bounded_while_it_arrives(tmp_path: Path) -> None:
    with Upload(tmp_path, Limits(max_line_bytes=1_000_000)) as upload:
        for _ in range(10):
            upload._feed(b"x" * 100_000)
        with pytest.raises(ApiError, match="line 1 has more than 1,000,000 bytes"):
            upload._feed(b"x")


def test_a_line_of_many_values_is_refused(tmp_path: Path) -> None:
    line = b'{"id": "x", "text": "x", "tags": [' + b"1," * 2000 + b"1]}\n"
    with Upload(tmp_path, Limits(max_values=1000)) as upload, pytest.raises(ApiError, match="line 1 has more than"):
        asyncio.run(read(upload, [line]))
