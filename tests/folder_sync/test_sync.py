"""`plait.sync`: the index becomes equal to folders, and nothing is encoded without need."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import plait
from encoders import WordEncoder
from plait.errors import SourceError, StoreError
from plait.folder_sync import FileProgress, SyncReport
from plait.index import Index
from plait.readers import ReadOptions
from plait.storage.origins import StoredRoot


class Synced:
    """An index, a folder, and an encoder that counts."""

    def __init__(self, tmp_path: Path) -> None:
        self.encoder = WordEncoder()
        self.folder = tmp_path / "notes"
        self.folder.mkdir()
        self.index: Index = plait.open(tmp_path / "ix", create=True, encoder=self.encoder)
        self.first = SyncReport()
        self._clock = 1_600_000_000

    def write(self, name: str, text: str | bytes) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        self._clock += 10  # no two versions have one time, however fast the test is
        os.utime(path, (self._clock, self._clock))

    def sync(self, **options: object) -> SyncReport:
        self.n_encoded_before = self.encoder.n_encoded
        return plait.sync(self.index, self.folder, **options)  # type: ignore[arg-type]

    @property
    def n_encoded(self) -> int:
        """Passages that the last sync encoded."""
        return self.encoder.n_encoded - self.n_encoded_before

    def texts(self) -> dict[str, str]:
        return {document.id: document.text for document in self.index}


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[Synced]:
    made = Synced(tmp_path)
    made.write("a.txt", "wool is warm")
    made.write("in/b.md", "# Silk\nsilk is smooth")
    made.write("in/c.txt", "cotton grows")
    made.first = made.sync()
    yield made
    made.index.close()


def test_a_first_sync_adds_every_file(synced: Synced) -> None:
    assert synced.texts() == {"a.txt": "wool is warm", "in/b.md": "# Silk\nsilk is smooth", "in/c.txt": "cotton grows"}
    assert (len(synced.first.added), synced.first.passages) == (3, 3)  # the first calibration encodes other texts too


def test_a_second_sync_does_nothing(synced: Synced) -> None:
    commit = synced.index.snapshot.commit
    report = synced.sync()
    assert report.is_empty
    assert (report.unchanged, synced.n_encoded) == (3, 0)
    assert synced.index.snapshot.commit == commit


def test_a_second_sync_loads_no_model_and_reads_no_file(synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("not needed")

    monkeypatch.setattr("plait.folder_sync.run.read_file", fail)
    monkeypatch.setattr("plait.folder_sync.plan.content_hash", fail)
    monkeypatch.setattr(type(synced.index._source), "get", fail)
    assert synced.sync().is_empty


def test_edits_and_deletions_are_followed(synced: Synced) -> None:
    synced.write("a.txt", "wool is very warm")
    (synced.folder / "in/c.txt").unlink()
    report = synced.sync()
    assert (report.changed, report.removed, synced.n_encoded) == (["a.txt"], ["in/c.txt"], 1)
    assert synced.texts() == {"a.txt": "wool is very warm", "in/b.md": "# Silk\nsilk is smooth"}
    assert [hit.id for hit in synced.index.search("cotton grows")] != ["in/c.txt"]


def test_a_renamed_file_keeps_its_embeddings(synced: Synced) -> None:
    before = synced.index.search("silk smooth", k=1)[0]
    shutil.move(synced.folder / "in", synced.folder / "out")
    report = synced.sync()
    assert sorted(report.moved) == [("in/b.md", "out/b.md"), ("in/c.txt", "out/c.txt")]
    assert synced.n_encoded == 0
    hit = synced.index.search("silk smooth", k=1)[0]
    assert (hit.id, hit.score, hit.headings) == ("out/b.md", before.score, ("Silk",))
    assert hit.metadata["path"] == str(synced.folder / "out/b.md")
    assert synced.index.get(["in/b.md"]) == [None]
    assert synced.sync().is_empty


def test_a_file_that_is_moved_over_another_replaces_it(synced: Synced) -> None:
    (synced.folder / "in/c.txt").replace(synced.folder / "a.txt")
    report = synced.sync()
    assert (report.moved, synced.n_encoded) == ([("in/c.txt", "a.txt")], 0)
    assert synced.texts() == {"a.txt": "cotton grows", "in/b.md": "# Silk\nsilk is smooth"}


def test_two_files_may_exchange_their_names(synced: Synced) -> None:
    synced.write("d.txt", "linen creases")
    synced.sync()
    (synced.folder / "a.txt").rename(synced.folder / "x")
    (synced.folder / "d.txt").rename(synced.folder / "a.txt")
    (synced.folder / "x").rename(synced.folder / "d.txt")
    report = synced.sync()
    assert (len(report.moved), synced.n_encoded) == (2, 0)
    assert (synced.texts()["a.txt"], synced.texts()["d.txt"]) == ("linen creases", "wool is warm")


def test_a_file_of_another_format_is_read_again(synced: Synced) -> None:
    (synced.folder / "in/b.md").rename(synced.folder / "in/b.txt")
    report = synced.sync()
    assert (report.added, report.removed, report.moved) == (["in/b.txt"], ["in/b.md"], [])


def test_a_copy_is_a_document_of_its_own(synced: Synced) -> None:
    shutil.copy(synced.folder / "a.txt", synced.folder / "copy.txt")
    synced.sync()
    assert synced.texts()["copy.txt"] == synced.texts()["a.txt"]


def test_a_new_time_changes_metadata_alone(synced: Synced) -> None:
    os.utime(synced.folder / "a.txt", (1_700_000_000, 1_700_000_000))
    report = synced.sync()
    assert (report.touched, report.unchanged, synced.n_encoded) == (1, 3, 0)
    (document,) = synced.index.get(["a.txt"])
    assert document is not None
    assert document.metadata["mtime"] == "2023-11-14T22:13:20Z"
    assert synced.sync().is_empty


def test_an_edit_of_the_front_matter_is_not_encoded(synced: Synced) -> None:
    synced.write("d.md", "---\nyear: 2020\n---\ntext")
    synced.sync()
    synced.write("d.md", "---\nyear: 2021\n---\ntext")
    assert synced.sync().changed == ["d.md"]
    assert synced.n_encoded == 0
    assert synced.index.count("year = 2021") == 1


def test_what_other_sources_added_is_not_touched(synced: Synced, tmp_path: Path) -> None:
    synced.index.add([{"id": "mine", "text": "by hand"}, {"id": "later.txt", "text": "by hand too"}])
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_text("another folder")
    synced.index.sync(other)
    shutil.rmtree(synced.folder / "in")
    synced.write("later.txt", "of the folder")
    report = synced.sync()
    assert synced.texts() == {
        "a.txt": "wool is warm",
        "mine": "by hand",
        "later.txt": "by hand too",
        "other/a.txt": "another folder",
    }
    assert report.n_errors == 1
    assert "later.txt of notes: the index has the id 'later.txt' from another source" in report.errors[0]


def test_a_load_and_a_sync_agree_about_files(tmp_path: Path) -> None:
    made = Synced(tmp_path)
    made.write("a.txt", "wool")
    made.index.add_files(made.folder)
    report = made.sync()
    assert (report.unchanged, report.is_empty) == (1, True)
    (made.folder / "a.txt").rename(made.folder / "b.txt")
    assert made.sync().moved == [("a.txt", "b.txt")]
    made.index.close()


def test_records_of_a_file_come_and_go_with_it(synced: Synced) -> None:
    lines = [f'{{"id": "{n}", "text": "record {n}"}}' for n in range(4)]
    synced.write("r.jsonl", "\n".join(lines))
    synced.sync()
    synced.write("r.jsonl", "\n".join([lines[0], lines[1].replace("record", "changed"), lines[3]]))
    synced.sync()
    assert synced.n_encoded == 1
    texts = synced.texts()
    assert {id: texts[id] for id in texts if id.isdecimal()} == {"0": "record 0", "1": "changed 1", "3": "record 3"}
    (synced.folder / "r.jsonl").rename(synced.folder / "s.jsonl")
    assert (len(synced.sync().moved), synced.n_encoded) == (1, 0)
    (synced.folder / "s.jsonl").unlink()
    synced.sync()
    assert not any(id.isdecimal() for id in synced.texts())


def test_a_dry_run_writes_nothing(synced: Synced) -> None:
    synced.write("a.txt", "other")
    synced.write("new.txt", "new")
    (synced.folder / "in/b.md").rename(synced.folder / "b.md")
    (synced.folder / "in/c.txt").unlink()
    commit = synced.index.snapshot.commit
    report = synced.sync(dry_run=True)
    assert (report.added, report.changed, report.removed) == (["new.txt"], ["a.txt"], ["in/c.txt"])
    assert (report.moved, report.dry_run) == ([("in/b.md", "b.md")], True)
    assert synced.index.snapshot.commit == commit
    assert "would be 1 added" in repr(report)


def test_a_part_of_a_folder_can_be_synced(synced: Synced) -> None:
    (synced.folder / "a.txt").unlink()
    (synced.folder / "in/c.txt").unlink()
    report = plait.sync(synced.index, synced.folder / "in")
    assert (report.removed, report.unchanged) == (["in/c.txt"], 1)
    assert "a.txt" in synced.texts()


def test_an_excluded_file_is_removed(synced: Synced) -> None:
    report = synced.sync(options=ReadOptions(exclude=("in/",)))
    assert sorted(report.removed) == ["in/b.md", "in/c.txt"]


def test_a_file_without_a_document_is_read_once_and_named_each_time(
    synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced.write("bad.pdf", b"%PDF nonsense")
    synced.write("empty.txt", b"")
    synced.write("picture.png", b"png")
    report = synced.sync()
    assert (report.added, report.n_errors, report.unread) == ([], 1, 3)
    monkeypatch.setattr("plait.folder_sync.run.read_file", None)
    again = synced.sync()
    assert again.is_empty
    assert (again.errors, again.sources.skipped) == (report.errors, {"empty": 1, ".png": 1})
    monkeypatch.undo()
    synced.write("bad.pdf", b"%PDF other nonsense")
    assert synced.sync().n_errors == 1


def test_a_file_that_became_unreadable_keeps_its_last_version(synced: Synced) -> None:
    synced.write("n.ipynb", '{"cells": [{"cell_type": "markdown", "source": "good"}]}')
    synced.sync()
    synced.write("n.ipynb", '{"cells": [')
    report = synced.sync()
    assert (report.n_errors, synced.texts()["n.ipynb"]) == (1, "good")
    synced.write("n.ipynb", '{"cells": [{"cell_type": "markdown", "source": "better"}]}')
    synced.sync()
    assert synced.texts()["n.ipynb"] == "better"


def test_a_missing_library_is_not_remembered(synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    from readers.samples import pdf

    synced.write("a.pdf", pdf("wool"))
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    assert "plait[files]" in synced.sync().errors[0]
    monkeypatch.undo()
    assert synced.sync().added == ["a.pdf"]


def test_an_empty_folder_is_not_taken_for_a_deletion(synced: Synced) -> None:
    shutil.rmtree(synced.folder)
    with pytest.raises(SourceError, match="no file or folder"):
        synced.sync()
    synced.folder.mkdir()
    with pytest.raises(SourceError, match="--allow-empty"):
        synced.sync()
    assert len(synced.index) == 3
    assert len(synced.sync(allow_empty=True).removed) == 3
    assert len(synced.index) == 0


def test_files_of_an_unreadable_folder_stay(synced: Synced, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = os.scandir

    def scandir(path: str) -> object:
        if path == str(synced.folder / "in"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = synced.sync()
    assert (report.removed, report.n_errors, len(synced.index)) == ([], 1, 3)


def test_a_moved_folder_is_named(synced: Synced, tmp_path: Path) -> None:
    synced.folder.rename(tmp_path / "elsewhere")
    report = synced.index.sync(tmp_path / "elsewhere", name="notes")
    assert (report.added, report.removed, report.unchanged, report.passages) == ([], [], 3, 0)
    (document,) = synced.index.get(["a.txt"])
    assert document is not None
    assert document.metadata["path"] == str(tmp_path / "elsewhere/a.txt")
    (tmp_path / "more").mkdir()
    with pytest.raises(SourceError, match="one folder"):
        synced.index.sync([tmp_path / "elsewhere", tmp_path / "more"], name="notes")


def test_a_sync_that_stops_is_continued_by_the_next(synced: Synced) -> None:
    synced.write("d.txt", "linen")
    synced.write("e.txt", "jute")
    (synced.folder / "a.txt").unlink()

    def stop(progress: FileProgress) -> None:
        if progress.committed:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synced.index.sync(synced.folder, commit_every=1, on_progress=stop)
    assert {"a.txt", "d.txt"} <= set(synced.texts())
    synced.sync()
    assert set(synced.texts()) == {"d.txt", "e.txt", "in/b.md", "in/c.txt"}
    assert synced.n_encoded == 1


@pytest.mark.parametrize("seed", range(4))
def test_after_any_changes_the_index_equals_the_folder(tmp_path: Path, seed: int) -> None:
    """A new index of the same folder is the twin: the same documents, and the same answers."""
    rng = random.Random(seed)
    made = Synced(tmp_path)
    words = ["wool", "silk", "cotton", "linen", "jute", "hemp", "felt", "tweed"]
    names = [
        f"{folder}{letter}.{suffix}" for folder in ("", "x/", "x/y/") for letter in "abc" for suffix in ("txt", "md")
    ]
    for _ in range(6):
        for _ in range(rng.randint(1, 6)):
            name, other = rng.choice(names), rng.choice(names)
            path = made.folder / name
            action = rng.choice(["write", "write", "delete", "move", "copy"])
            if action == "write":
                made.write(name, " ".join(rng.choices(words, k=rng.randint(1, 9))))
            elif action == "delete":
                path.unlink(missing_ok=True)
            elif path.exists() and path != made.folder / other:
                (made.folder / other).parent.mkdir(parents=True, exist_ok=True)
                (shutil.move if action == "move" else shutil.copy2)(path, made.folder / other)
        made.sync(allow_empty=True)
        files = {
            path.relative_to(made.folder).as_posix(): path.read_text()
            for path in made.folder.rglob("*")
            if path.is_file()
        }
        assert made.texts() == files
        assert made.sync(allow_empty=True).is_empty
    if files:
        with plait.open(tmp_path / "twin", create=True, encoder=made.encoder) as twin:
            twin.sync(made.folder)
            assert {one.id: (one.metadata, one.sections) for one in twin} == {
                one.id: (one.metadata, one.sections) for one in made.index
            }
            for mode in ("dense", "multi"):
                for word in words:
                    best = [
                        sorted((hit.id, round(hit.score, 5)) for hit in index.search(word, k=99, mode=mode))
                        for index in (twin, made.index)
                    ]
                    assert best[0] == best[1]
    made.index.close()


def test_work_that_is_left_goes_down_to_nothing(tmp_path: Path) -> None:
    made = Synced(tmp_path)
    for number in range(30):
        made.write(f"{number}.txt", "wool " * (number + 1) * 20)
    seen: list[FileProgress] = []
    made.index.sync(made.folder, commit_every=5, on_progress=seen.append)
    left = [one.work_left for one in seen if one.work_left is not None]
    assert left[-1] == 0
    assert all(after <= before for before, after in pairwise(left))
    assert seen[-1].documents == seen[-1].committed == 30
    made.index.close()


# -- storage


def test_records_are_rewritten_all_or_none(synced: Synced) -> None:
    first, second = (document for document in synced.index.get(["a.txt", "in/c.txt"]) if document is not None)
    with synced.index._store.writer() as writer:
        commit = synced.index.snapshot.commit
        with pytest.raises(StoreError, match="no document 'gone'"):
            writer.rewrite_records([("a.txt", first), ("gone", second)])
        with pytest.raises(StoreError, match="with this title and text"):
            writer.rewrite_records([("a.txt", second)])
        with pytest.raises(StoreError, match="already"):
            writer.rewrite_records([("a.txt", plait.Document("in/c.txt", first.text))])
        with pytest.raises(StoreError, match="two changes"):
            writer.rewrite_records([("a.txt", first), ("a.txt", first)])
    synced.index.refresh()
    assert synced.index.snapshot.commit == commit


def test_the_id_of_a_deleted_document_can_be_used_again(synced: Synced) -> None:
    synced.index.delete(["a.txt"], merge=False)
    (document,) = synced.index.get(["in/c.txt"])
    assert document is not None
    with synced.index._store.writer() as writer:
        writer.rewrite_records([("in/c.txt", plait.Document("a.txt", document.text))])
    synced.index.refresh()
    assert synced.texts()["a.txt"] == "cotton grows"
    assert [hit.id for hit in synced.index.search("cotton", mode="bm25")] == ["a.txt"]


def test_roots_are_kept_and_damage_is_named(synced: Synced) -> None:
    with synced.index._store.writer() as writer:
        (root,) = writer.read_roots()
        assert root == StoredRoot("notes", str(synced.folder), "")
        writer.connection.execute("UPDATE meta SET value = '[7]' WHERE key = 'roots'")
        with pytest.raises(plait.CorruptIndexError, match="list of folders"):
            writer.read_roots()


def test_reserved_metadata_is_not_shown_and_not_accepted(synced: Synced) -> None:
    (document,) = synced.index.get(["a.txt"])
    assert document is not None
    assert set(document.metadata) == {"path", "mtime", "size"}
    with pytest.raises(plait.DocumentError, match="reserved"):
        synced.index.add([plait.Document("x", "text", "", {"_plait": {}})])
    with pytest.raises(plait.DocumentError, match="reserved"):
        synced.index.add([{"id": "x", "text": "text", "_plait": "forged"}])
    synced.index.update_metadata({"a.txt": {"year": 2024}}, replace=True)
    (again,) = synced.index.get(["a.txt"])
    assert again is not None
    assert (again.metadata, again.sections, again.origin) == ({"year": 2024}, document.sections, document.origin)


def test_passages_begin_with_sections(tmp_path: Path) -> None:
    made = Synced(tmp_path)
    made.write("a.md", "# One\n" + "wool " * 100 + "\n# Two\n" + "silk " * 100 + "\n# Three\nshort\n# Four\nend")
    made.sync()
    hit = made.index.search("silk", k=1, mode="multi")[0]
    assert (hit.headings, hit.location, hit.passage.split()[:2]) == (("Two",), "line 3", ["#", "Two"])
    made.index.close()
