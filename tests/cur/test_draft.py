"""The draft of a CUR index: blocks that are whole come back, and each is durable when it was appended."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from plait.cur.draft import ScoredBlock, ScoreDraft, ScoresManifest, drafted_documents, remove_drafts, unique_blocks
from plait.errors import StoreError

MANIFEST = ScoresManifest("model:1", "", ("one", "two", "three"))


def block(*docs: int) -> ScoredBlock:
    numbers = np.array(docs, np.int64)
    return ScoredBlock(numbers, (numbers[:, None] + np.array([0.25, 0.5, 0.75])).astype(np.float32))


def draft_with(index: Path, *blocks: ScoredBlock) -> ScoreDraft:
    draft = ScoreDraft.resume(index, MANIFEST)
    for each in blocks:
        draft.append(each.docs, each.scores)
    return draft


def docs_of(draft: ScoreDraft) -> list[list[int]]:
    return [each.docs.tolist() for each in draft.read()]


def test_blocks_come_back_as_they_were_appended(tmp_path: Path) -> None:
    draft = draft_with(tmp_path, block(3, 1), block(7))
    assert docs_of(draft) == [[3, 1], [7]]
    np.testing.assert_array_equal(draft.read()[0].scores, block(3, 1).scores)
    assert docs_of(ScoreDraft.resume(tmp_path, MANIFEST)) == [[3, 1], [7]]
    assert docs_of(ScoreDraft.resume(tmp_path, ScoresManifest("model:1", "moved", MANIFEST.queries))) == [[3, 1], [7]]
    assert docs_of(ScoreDraft.resume(tmp_path, ScoresManifest("model:2", "", MANIFEST.queries))) == []
    assert drafted_documents(tmp_path) == 3
    remove_drafts(tmp_path)
    assert drafted_documents(tmp_path) == 0


def test_every_cut_and_every_flipped_bit_costs_only_the_blocks_from_there_on(tmp_path: Path) -> None:
    draft_with(tmp_path, block(1, 2), block(3, 4), block(5))
    (file,) = (tmp_path / "cur").iterdir()
    whole = file.read_bytes()
    prefixes = [[], [[1, 2]], [[1, 2], [3, 4]], [[1, 2], [3, 4], [5]]]
    for at in range(0, len(whole), 3):
        for content in (whole[:at], bytes([*whole[:at], whole[at] ^ 4, *whole[at + 1 :]])):
            file.write_bytes(content)
            draft = ScoreDraft.resume(tmp_path, MANIFEST)
            survived = docs_of(draft)
            assert survived in prefixes
            draft.append(block(9).docs, block(9).scores)
            assert docs_of(draft) == [*survived, [9]]
    file.write_bytes(whole + b"\x01")
    assert docs_of(ScoreDraft.resume(tmp_path, MANIFEST)) == prefixes[-1]


def test_a_flipped_bit_in_the_header_gives_the_draft_up(tmp_path: Path) -> None:
    manifest = ScoresManifest("model:1", "folder-of-the-model", MANIFEST.queries)
    ScoreDraft.resume(tmp_path, manifest).append(block(1).docs, block(1).scores)
    (file,) = (tmp_path / "cur").iterdir()
    whole = file.read_bytes()
    at = whole.index(b"folder-of-the-model")  # a header that parses, with another name of the model
    file.write_bytes(bytes([*whole[:at], whole[at] ^ 4, *whole[at + 1 :]]))
    assert docs_of(ScoreDraft(file)) == []
    assert docs_of(ScoreDraft.resume(tmp_path, manifest)) == []


def test_a_block_is_durable_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    draft = draft_with(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda handle: sizes.append(os.fstat(handle).st_size))
    draft.append(block(1).docs, block(1).scores)
    (file,) = (tmp_path / "cur").iterdir()
    assert sizes == [file.stat().st_size]


def test_documents_of_an_earlier_block_are_not_taken_twice() -> None:
    unique = unique_blocks([block(1, 2), block(2, 3, 3), block(4)])
    assert [each.docs.tolist() for each in unique] == [[1, 2], [3], [4]]
    assert [len(each.scores) for each in unique] == [2, 1, 1]


def test_a_link_in_the_place_of_a_draft_is_refused(tmp_path: Path) -> None:
    draft_with(tmp_path, block(1))
    (file,) = (tmp_path / "cur").iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="symbolic link"):
        ScoreDraft.resume(tmp_path, MANIFEST)
    with pytest.raises(StoreError, match="symbolic link"):
        drafted_documents(tmp_path)
