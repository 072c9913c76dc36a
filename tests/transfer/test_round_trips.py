"""An export that is imported again is the same index."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import plait
from encoders import WordEncoder
from plait.errors import ConfigError, SourceError, StoreError
from plait.readers.sources import documents_from
from plait.transfer import ImportOptions, export_index, import_index
from plait.transfer.passages import Passages
from transfer.same import assert_same, passages

FILES = ["parquet", "arrow", "numpy"]


@pytest.mark.parametrize("form", FILES)
def test_a_file_export_loses_nothing(index: plait.Index, tmp_path: Path, form: str) -> None:
    done = export_index(index, tmp_path / f"out.{form}", form=form)
    assert done.n_rows == passages(index).n_passages > len(index)
    import_index(tmp_path / f"out.{form}", tmp_path / "again")
    with plait.open(tmp_path / "again") as again:
        assert again.spec == index.spec
        assert_same(index, again)


@pytest.mark.parametrize("form", FILES)
def test_a_passage_without_multi_vectors_stays_one(tmp_path: Path, form: str) -> None:
    """Also where a batch has no other passage."""
    empty = plait.Embeddings(multi=plait.MultiVectors.from_items([np.zeros((0, 4), np.float32)], dim=4))
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(multi=4)) as index:
        index.add_embeddings([{"id": "a", "text": "b"}], empty)
        export_index(index, tmp_path / "out", form=form)
        import_index(tmp_path / "out", tmp_path / "again", form=form)
        with plait.open(tmp_path / "again") as again:
            assert_same(index, again, kinds=("multi",))


def test_learned_sparse_lines_keep_documents_and_weights(index: plait.Index, tmp_path: Path) -> None:
    encoder, before = index.encoder, passages(index).embeddings.sparse
    assert isinstance(encoder, WordEncoder)
    assert before is not None
    words = sorted({encoder.term(int(term)) for term in before.terms})
    export_index(index, tmp_path / "out.jsonl")
    (tmp_path / "vocabulary.txt").write_text("\n".join(words) + "\n")
    with pytest.raises(ConfigError, match=r"tokens as text, such as 'word.*--vocabulary"):
        import_index(tmp_path / "out.jsonl", tmp_path / "again")
    options = ImportOptions(vocabulary=tmp_path / "vocabulary.txt")
    import_index(tmp_path / "out.jsonl", tmp_path / "again", options=options)
    with plait.open(tmp_path / "again") as again:
        assert_same(index, again, kinds=())
        after = passages(again).embeddings.sparse
        assert after is not None
        for item in range(len(before)):
            first = {encoder.term(int(term)): weight for term, weight in zip(*before[item], strict=True)}
            second = {words[int(term)]: weight for term, weight in zip(*after[item], strict=True)}
            assert second == pytest.approx(first, rel=1e-6)


def test_compressed_vectors_are_exported_as_they_are_searched(index: plait.Index, tmp_path: Path) -> None:
    assert index.compact(bits=4).bits == 4
    export_index(index, tmp_path / "out.parquet")
    import_index(tmp_path / "out.parquet", tmp_path / "again")
    with plait.open(tmp_path / "again") as again:
        first, second = passages(index).embeddings.multi, passages(again).embeddings.multi
        assert first is not None
        assert second is not None
        assert np.allclose(first.values, second.values, atol=1e-3)  # float16


def test_a_filter_and_no_vectors_export_less(index: plait.Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "few.parquet", filter="year >= 2050", vectors=False)
    table = pyarrow.parquet.read_table(tmp_path / "few.parquet")
    assert set(table.column("id").to_pylist()) == {f"d{number}" for number in range(50, 60)}
    assert "dense" not in table.column_names
    with pytest.raises(SourceError, match="exported without its vectors"):
        import_index(tmp_path / "few.parquet", tmp_path / "again")


def test_an_existing_target_is_replaced_only_by_force(index: plait.Index, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    target.write_text("mine")
    with pytest.raises(StoreError, match="exists already"):
        export_index(index, target)
    assert target.read_text() == "mine"
    export_index(index, target, force=True)
    assert target.read_bytes().startswith(b"PAR1")


def test_an_index_is_never_replaced_by_an_export(index: plait.Index) -> None:
    with pytest.raises(StoreError, match="is not replaced"):
        export_index(index, index.path, form="numpy", force=True)
    assert len(index) == 59


def test_an_export_that_fails_leaves_nothing(index: plait.Index, tmp_path: Path) -> None:
    index.add([{"id": "two words", "text": "short"}])
    with pytest.raises(ConfigError, match="'two words' has a space"):
        export_index(index, tmp_path / "out.trec")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["index"]


@pytest.mark.parametrize("error", [RuntimeError("no space is left"), KeyboardInterrupt()])
def test_a_lancedb_table_that_was_not_completed_is_removed(
    index: plait.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def create_table(name: str, reader: pa.RecordBatchReader, **_options: Any) -> None:
        (tmp_path / "lance" / f"{name}.lance" / "data").mkdir(parents=True)
        reader.read_next_batch()
        raise error

    library = SimpleNamespace(connect=lambda _folder: SimpleNamespace(create_table=create_table))
    monkeypatch.setitem(sys.modules, "lancedb", library)
    (tmp_path / "lance" / "other.lance").mkdir(parents=True)
    with pytest.raises((SourceError, KeyboardInterrupt)):
        export_index(index, tmp_path / "lance", form="lancedb", collection="passages")
    assert [entry.name for entry in (tmp_path / "lance").iterdir()] == ["other.lance"]


def test_text_formats_have_every_document(index: plait.Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "beir", form="beir")
    export_index(index, tmp_path / "out.trec")
    export_index(index, tmp_path / "out.tsv")
    documents = list(documents_from([tmp_path / "beir" / "corpus.jsonl"]))
    assert [(one.id, one.text, one.title, one.metadata) for one in documents] == [
        (one.id, one.text, one.title, one.metadata) for one in index
    ]
    assert (tmp_path / "out.trec").read_text().count("<DOCNO>") == 59
    assert (
        "<DOCNO>d1</DOCNO>\n<TITLE>Title 1</TITLE>\n<TEXT>\nword0 word1 word2 word3\n"
        in (tmp_path / "out.trec").read_text()
    )
    assert (tmp_path / "out.tsv").read_text().splitlines()[1] == "d1\tTitle 1 word0 word1 word2 word3"


def test_a_format_that_does_not_exist_is_refused(index: plait.Index, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names no format; give one with --format"):
        export_index(index, tmp_path / "out.xyz")
    with pytest.raises(ConfigError, match="no format 'excel' to export"):
        export_index(index, tmp_path / "out", form="excel")


def test_force_deletes_no_folder_that_is_not_a_dump(index: plait.Index, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match="did not write and is not replaced"):
        export_index(index, tmp_path / "mine", form="numpy", force=True)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"
    export_index(index, tmp_path / "out", form="numpy")
    assert export_index(index, tmp_path / "out", form="numpy", force=True).n_rows == passages(index).n_passages


def test_the_numpy_export_grows_by_batches(index: plait.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = passages(index)
    seen: list[tuple[int, int | None]] = []
    monkeypatch.setattr(Passages.batches, "__defaults__", (7,))
    export_index(index, tmp_path / "out", form="numpy", on_progress=lambda *done: seen.append(done))
    assert len(seen) == 9
    assert seen[-1] == (whole.n_passages, whole.n_passages)
    multi = whole.embeddings.multi
    assert multi is not None
    assert np.array_equal(np.load(tmp_path / "out" / "multi.npy"), multi.values)
    assert np.array_equal(np.load(tmp_path / "out" / "multi_offsets.npy"), multi.offsets)


def test_a_folder_of_learned_sparse_files_is_read_in_order(tmp_path: Path) -> None:
    """As Pyserini's encoders write them."""
    (tmp_path / "encoded").mkdir()
    for part in range(2):
        lines = [{"id": f"{part}-{n}", "contents": "a", "vector": {"7": 1.0, "9": 2 + n}} for n in range(3)]
        file = tmp_path / "encoded" / f"part{part}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = import_index(tmp_path / "encoded", tmp_path / "new")
    assert (report.form, report.n_documents) == ("sparse-jsonl", 6)
    with plait.open(tmp_path / "new") as made:
        assert [document.id for document in made] == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2"]


@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 2)])
@pytest.mark.parametrize("number", [pa.float16(), pa.float32(), pa.float64()])
def test_columns_of_vectors_of_any_list_type(tmp_path: Path, outer: Any, number: Any) -> None:
    vectors = np.arange(24, dtype=np.float16).reshape(3, 2, 4)
    inner = pa.list_(number, 4)
    table = pa.table({"doc_id": ["a", "b", "c"], "tokens": pa.array(vectors.tolist(), outer(inner)), "n": [1, 2, 3]})
    pa.parquet.write_table(table, tmp_path / "in.parquet")
    import_index(tmp_path / "in.parquet", tmp_path / "new")
    with plait.open(tmp_path / "new") as made:
        batch = passages(made)
    assert batch.embeddings.multi is not None
    assert np.array_equal(batch.embeddings.multi.values.reshape(3, 2, 4), vectors)
    assert [document.metadata for document in batch.documents] == [{"n": 1}, {"n": 2}, {"n": 3}]
