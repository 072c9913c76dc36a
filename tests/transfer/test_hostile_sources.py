"""Sources that are damaged, or made to harm: they are refused, run nothing, take little memory and leave nothing."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

import plait
from plait.errors import PlaitError, SourceError
from plait.transfer import FORMATS, ImportOptions, export_index, import_index, sparse_jsonl
from plait.transfer.pickles import Record, read_pickle, read_torch
from transfer.conftest import FIXTURES
from transfer.same import imported


class _Attack:
    def __reduce__(self) -> Any:
        return (print, ("run",))


def test_a_pickle_that_names_a_function_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FIXTURES / "fast-plaid", tmp_path / "pylate" / "fast_plaid_index")
    (tmp_path / "pylate" / "plaid_ids_to_documents_ids.pkl").write_bytes(pickle.dumps({0: _Attack()}))
    with pytest.raises(SourceError, match=r"builtins\.print, which could run code"):
        import_index(tmp_path / "pylate", tmp_path / "new")
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "new").exists()


def test_a_pickled_point_of_qdrant_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(FIXTURES / "qdrant", tmp_path / "qdrant")
    with closing(sqlite3.connect(tmp_path / "qdrant" / "collection" / "plain" / "storage.sqlite")) as database:
        database.execute("UPDATE points SET point = ?", [pickle.dumps(_Attack())])
        database.commit()
    with pytest.raises(SourceError, match="which could run code"):
        import_index(tmp_path / "qdrant", tmp_path / "new", options=ImportOptions(collection="plain"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "raw",
    [
        b"\x80\x04r\xff\xff\xff\x1f.",  # a memo of half a billion values
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".",  # bytes that are not there
        b"\x80\x04N\x85R.",  # calls None
        b"",
        b"\x80\x04" + b"(" * 1000,
    ],
)
def test_a_broken_pickle_is_refused(raw: bytes) -> None:
    with pytest.raises(SourceError, match="damaged"):
        read_pickle(raw, "ids.pkl")


def test_a_pickle_changes_no_attributes_of_functions() -> None:
    # GLOBAL of an allowed name, then BUILD with a state: the unpickler would set attributes of the function.
    raw = b"cm\nf\n}X\x01\x00\x00\x00aK\x01sb."
    with pytest.raises(SourceError, match="sets attributes"):
        read_pickle(raw, "a.pkl", names={"m.f": lambda: None})
    record = read_pickle(b"cm\nf\n)R}X\x01\x00\x00\x00aK\x01sb.", "a.pkl", names={"m.f": Record})
    assert record.state == {"a": 1}


def torch_file(path: Path, numbers: bytes, data_pickle: bytes, *, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", data_pickle)
        archive.writestr("archive/data/0", numbers)
    return path


def tensor_pickle(size: tuple[int, ...], stride: tuple[int, ...], n_values: int, offset: int = 0) -> bytes:
    """What torch.save writes for one float tensor."""
    stream = io.BytesIO()

    class Storage:
        pass

    class Tensor:
        def __reduce__(self) -> Any:
            return (_rebuild_tensor_v2, (Storage(), offset, size, stride, False, {}))

    class Writer(pickle._Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", FloatStorage, "0", "cpu", n_values) if isinstance(obj, Storage) else None

    Writer(stream, protocol=2).dump(Tensor())
    return (
        stream.getvalue()
        .replace(f"c{__name__}\n_rebuild".encode(), b"ctorch._utils\n_rebuild")
        .replace(f"c{__name__}\nFloatStorage".encode(), b"ctorch\nFloatStorage")
    )


def _rebuild_tensor_v2() -> None: ...


class FloatStorage: ...


def test_a_torch_file_is_read_and_a_zip_bomb_is_not(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype=np.float32)
    plain = torch_file(tmp_path / "a.pt", numbers.tobytes(), tensor_pickle((2, 3), (3, 1), 6))
    assert np.array_equal(read_torch(plain), numbers.reshape(2, 3))
    bomb = torch_file(
        tmp_path / "b.pt", bytes(1 << 24), tensor_pickle((2, 3), (3, 1), 6), compression=zipfile.ZIP_DEFLATED
    )
    with pytest.raises(SourceError, match="compressed, which torch never does"):
        read_torch(bomb)


@pytest.mark.parametrize(
    ("size", "stride", "n_values", "offset"),
    [
        ((2, 4), (3, 1), 6, 0),  # beyond its end
        ((1 << 40,), (0,), 6, 0),  # six numbers, said to be a trillion
        ((-1,), (1,), 6, 0),
        ((2,), (1,), 6, -4),
        ((2, 3), (3, 1), 600, 0),  # fewer numbers than it says
    ],
)
def test_a_tensor_with_a_wrong_shape_is_refused(
    tmp_path: Path, size: tuple[int, ...], stride: tuple[int, ...], n_values: int, offset: int
) -> None:
    raw = np.arange(6, dtype=np.float32).tobytes()
    with pytest.raises(SourceError, match="damaged"):
        read_torch(torch_file(tmp_path / "a.pt", raw, tensor_pickle(size, stride, n_values, offset)))


def edit_array(name: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        np.save(folder / name, change(np.load(folder / name)))

    return edit


def edit_file(name: str, text: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder / name).write_text(text)

    return edit


def huge_header(folder: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50, 32)})
    (folder / "centroids.npy").write_bytes(header.getvalue())


def unfinished_header(folder: Path) -> None:
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (16L, 32), ".ljust(117) + b"\n"
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
    (folder / "centroids.npy").write_bytes(header + bytes(64))


def overflowing_header(folder: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 62, 32)})
    (folder / "centroids.npy").write_bytes(header.getvalue() + bytes(64))


@pytest.mark.parametrize(
    "damage",
    [
        edit_array("merged_codes.npy", lambda codes: np.where(np.arange(len(codes)) == 3, 10**6, codes)),
        edit_array("merged_codes.npy", lambda codes: codes - 5),
        edit_array("merged_codes.npy", lambda codes: codes.astype(np.float32)),
        edit_array("merged_residuals.npy", lambda residuals: residuals[:, :3]),
        edit_array("merged_residuals.npy", lambda residuals: residuals[:5]),
        edit_array("centroids.npy", lambda centroids: centroids * np.nan),
        edit_array("centroids.npy", lambda centroids: centroids[0]),
        edit_array("bucket_weights.npy", lambda weights: weights[:5]),
        edit_array("bucket_weights.npy", lambda weights: weights.astype(object)),
        edit_file("doclens.0.json", "[1, 2, 1e400]"),
        edit_file("doclens.0.json", "[99999999999999999999]"),
        edit_file("doclens.0.json", "[-4]"),
        edit_file("doclens.0.json", "[" * 100_000),
        edit_file("metadata.json", '{"num_chunks": 1000000000}'),
        edit_file("metadata.json", '{"num_chunks": 900000}'),
        edit_file("merged_codes.manifest.json", '{"0.codes.npy": {"rows": 99999999}}'),
        edit_file("metadata.db", "no database"),
        huge_header,
        overflowing_header,
        unfinished_header,
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's own, about a size that overflows
def test_a_damaged_fast_plaid_index_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    shutil.copytree(FIXTURES / "fast-plaid", tmp_path / "bad")
    damage(tmp_path / "bad")
    with pytest.raises(SourceError, match="bad"):
        import_index(tmp_path / "bad", tmp_path / "new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["bad"]


@pytest.mark.parametrize("name", ["flat-ip.faiss", "ivf.faiss", "idmap.faiss"])
def test_a_file_that_is_cut_is_refused(tmp_path: Path, name: str) -> None:
    raw = (FIXTURES / name).read_bytes()
    for size in (5, 30, len(raw) // 2, len(raw) - 1):
        (tmp_path / name).write_bytes(raw[:size])
        with pytest.raises(SourceError, match="damaged"):
            import_index(tmp_path / name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["flat-ip.faiss", "ivf.faiss", "idmap.faiss"])
def test_changed_bytes_of_a_faiss_file_raise_no_other_error(tmp_path: Path, name: str) -> None:
    from plait.transfer import faiss_file

    raw, rng = (FIXTURES / name).read_bytes(), np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(raw)
        for byte in rng.integers(0, 160, 3):  # the headers
            changed[byte] = rng.integers(256)
        (tmp_path / name).write_bytes(changed)
        with suppress(PlaitError):
            faiss_file.open_source(str(tmp_path / name), ImportOptions())


@pytest.mark.parametrize("name", ["..", "../plain", "/etc"])
def test_a_collection_of_qdrant_cannot_lead_out_of_its_folder(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / "qdrant", tmp_path / "qdrant")
    file = tmp_path / "qdrant" / "meta.json"
    config = json.loads(file.read_text())["collections"]["plain"]
    file.write_text(json.dumps({"collections": {name: config}}))
    with pytest.raises(SourceError, match=r"meta\.json is damaged"):
        import_index(tmp_path / "qdrant", tmp_path / "new")


def test_a_segment_of_chroma_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "chroma", tmp_path / "chroma")
    with closing(sqlite3.connect(tmp_path / "chroma" / "chroma.sqlite3")) as database:
        ((id,),) = database.execute("SELECT id FROM collections WHERE name = 'written'").fetchall()
        ((segment,),) = database.execute(
            "SELECT id FROM segments WHERE scope = 'VECTOR' AND collection = ?", [id]
        ).fetchall()
        shutil.move(tmp_path / "chroma" / segment, tmp_path / "outside")
        database.execute("UPDATE segments SET id = '../outside' WHERE id = ?", [segment])
        database.commit()
    with pytest.raises(SourceError, match="have no vector"):
        import_index(tmp_path / "chroma", tmp_path / "new", options=ImportOptions(collection="written"))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_jsonl, "MAX_LINE", 1 << 16)
    with gzip.open(tmp_path / "bomb.jsonl.gz", "wt") as file:
        file.write('{"id": "a", "vector": {"1": 2}, "content": "' + "x" * (1 << 20))
    with pytest.raises(SourceError, match="more than 65,536 characters"):
        import_index(tmp_path / "bomb.jsonl.gz", tmp_path / "new")


def test_an_arrow_file_with_wrong_offsets_is_refused(index: plait.Index, tmp_path: Path) -> None:
    export_index(index, tmp_path / "out.arrow")
    raw = bytearray((tmp_path / "out.arrow").read_bytes())
    with pa.OSFile(str(tmp_path / "out.arrow")) as file:
        batch = pa.ipc.open_file(file).get_batch(0)
    offsets = np.asarray(batch.column("sparse_terms").offsets).tobytes()
    start = bytes(raw).index(offsets)
    raw[start + 4 : start + 8] = struct.pack("<i", 1 << 30)  # beyond the values
    (tmp_path / "bad.arrow").write_bytes(raw)
    with pytest.raises(SourceError, match="damaged"):
        import_index(tmp_path / "bad.arrow", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_table_that_is_cut_is_refused(index: plait.Index, tmp_path: Path, form: str) -> None:
    export_index(index, tmp_path / f"out.{form}")
    raw = (tmp_path / f"out.{form}").read_bytes()
    for size in (6, len(raw) // 2, len(raw) - 9):
        (tmp_path / f"cut.{form}").write_bytes(raw[:size])
        with pytest.raises(SourceError):
            import_index(tmp_path / f"cut.{form}", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "sparse",
    [
        {"indices": None, "values": None},
        {"indices": [None], "values": [1.0]},
        {"indices": [1], "values": [None]},
        {"indices": [1, 2], "values": [1.0]},
    ],
)
def test_a_column_of_sparse_vectors_with_gaps_is_refused(tmp_path: Path, sparse: dict[str, Any]) -> None:
    kind = pa.struct({"indices": pa.list_(pa.int64()), "values": pa.list_(pa.float32())})
    pa.parquet.write_table(pa.table({"terms": pa.array([sparse], kind)}), tmp_path / "in.parquet")
    with pytest.raises(SourceError, match=r"in\.parquet is damaged"):
        import_index(tmp_path / "in.parquet", tmp_path / "new")


@pytest.mark.parametrize("mark", ["[]", "{}", '{"spec": 3}', '{"spec": {"dense": "x"}}', "[" * 100_000])
def test_a_table_that_claims_to_be_an_export_is_checked(index: plait.Index, tmp_path: Path, mark: str) -> None:
    export_index(index, tmp_path / "out.parquet")
    table = pa.parquet.read_table(tmp_path / "out.parquet").replace_schema_metadata({"plait": mark})
    pa.parquet.write_table(table, tmp_path / "out.parquet")
    with pytest.raises(SourceError, match=r"out\.parquet is damaged or incomplete: its schema"):
        import_index(tmp_path / "out.parquet", tmp_path / "new")


SOURCES: dict[str, dict[str, Any]] = {
    "fast-plaid": {"id_field": "name"},
    "fast-plaid-small": {},
    "plaid": {},
    "warp": {},
    "qdrant": {"collection": "mixed"},
    "chroma": {"collection": "written"},
}


def changed(raw: bytes, rng: np.random.Generator) -> bytes:
    """A file that is cut, or has other bytes at a few places."""
    if rng.random() < 0.3:
        return raw[: rng.integers(len(raw) + 1)]
    copy = bytearray(raw)
    for byte in rng.integers(0, min(len(raw), rng.choice([150, 1 << 30])), rng.integers(1, 4)) if raw else []:
        copy[byte] = rng.integers(256)
    return bytes(copy)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's own, about numbers that overflow
@pytest.mark.filterwarnings("ignore::UserWarning")  # numpy's own, about headers of Python 2
def test_a_changed_file_raises_no_other_error(tmp_path: Path, name: str) -> None:
    rng, form = np.random.default_rng(len(name)), next(form for form in FORMATS if form.is_one(str(FIXTURES / name)))
    shutil.copytree(FIXTURES / name, tmp_path / "bad")
    files = sorted(file for file in (tmp_path / "bad").rglob("*") if file.is_file())
    for file in files * 12:
        raw = file.read_bytes()
        file.write_bytes(changed(raw, rng))
        with suppress(PlaitError):
            for _ in form.open(str(tmp_path / "bad"), ImportOptions(**SOURCES[name])).rows():
                pass
        file.write_bytes(raw)


def test_an_import_that_was_killed_is_made_again(tmp_path: Path) -> None:
    """A folder that a killed import left beside the target is removed by the next."""
    shutil.copytree(FIXTURES / "qdrant", tmp_path / "qdrant")
    imported(tmp_path / "qdrant", tmp_path / "whole", collection="plain")
    shutil.copytree(tmp_path / "whole", tmp_path / ".new.part")
    assert len(imported(tmp_path / "qdrant", tmp_path / "new", collection="plain").documents) == 5
    assert not (tmp_path / ".new.part").exists()
