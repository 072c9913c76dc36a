"""The formats that can be imported: their names, how each is recognized, and the module that reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from plait.errors import ConfigError, SourceError
from plait.transfer.source import ImportOptions, Source


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format: `open_source(path, options)` of its module reads a source."""

    name: str
    what: str  # for help
    module: str
    is_one: Callable[[str], bool]  # whether a path or URL looks like it; reads little

    def open(self, source: str, options: ImportOptions) -> Source:
        opened: Source = import_module(f"plait.transfer.{self.module}").open_source(source, options)
        return opened


def _has(*names: str) -> Callable[[str], bool]:
    return lambda source: all((Path(source) / name).exists() for name in names)


def _ends(*endings: str) -> Callable[[str], bool]:
    return lambda source: Path(source).is_file() and source.lower().endswith(endings)


def _has_entry(pattern: str) -> Callable[[str], bool]:
    return lambda source: Path(source).is_dir() and any(Path(source).glob(pattern))


def _starts(*magics: bytes) -> Callable[[str], bool]:
    def is_one(source: str) -> bool:
        if not Path(source).is_file():
            return False
        with Path(source).open("rb") as file:
            return file.read(8).startswith(magics)

    return is_one


def _is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _is_any(*tests: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda source: any(test(source) for test in tests)


_FAISS = (b"IxF", b"IwFl", b"IwFd", b"IxMp", b"IxM2", b"IHN", b"IxPq", b"IwPQ", b"IxSQ", b"IwSq", b"IxPT")

# The first that recognizes a source reads it: of two that share files, the one that asks for more comes first.
FORMATS = (
    ImportFormat("numpy", "a folder of plait dump --format numpy", "numpy_folder", _has("plait-vectors.json")),
    ImportFormat(
        "warp",
        "xtr-warp and xtr-warp-rs indexes",
        "warp",
        _is_any(
            _has("centroids.npy", "bucket_weights.npy", "codes.compacted.npy"),
            _has("centroids.npy", "bucket_weights.npy", "codes.compacted.pt"),
        ),
    ),
    ImportFormat(
        "fast-plaid",
        "fast-plaid, next-plaid and PyLate indexes",
        "fast_plaid",
        _is_any(_has("centroids.npy", "bucket_weights.npy", "metadata.json"), _has("fast_plaid_index/metadata.json")),
    ),
    ImportFormat("plaid", "Stanford PLAID and RAGatouille indexes", "plaid", _has("centroids.pt", "metadata.json")),
    ImportFormat("faiss", "faiss files: flat, IVF flat, with id maps", "faiss_file", _starts(*_FAISS)),
    ImportFormat("parquet", "Parquet with columns of vectors", "arrow", _is_any(_ends(".parquet"), _starts(b"PAR1"))),
    ImportFormat(
        "arrow", "Arrow and Feather with columns of vectors", "arrow", _ends(".arrow", ".feather", ".ipc", ".arrows")
    ),
    ImportFormat("chroma", "a Chroma folder", "chroma", _has("chroma.sqlite3")),
    ImportFormat(
        "qdrant",
        "a Qdrant server, or the folder of its local mode",
        "qdrant",
        _is_any(_is_url, _has("meta.json", "collection")),
    ),
    ImportFormat("lancedb", "a LanceDB folder or table", "lancedb", _is_any(_has_entry("*.lance"), _has("_versions"))),
    ImportFormat(
        "sparse-jsonl",
        "learned-sparse JSON lines, a file or a folder",
        "sparse_jsonl",
        _is_any(_ends(".jsonl", ".jsonl.gz", ".json", ".json.gz"), _has_entry("*.jsonl"), _has_entry("*.jsonl.gz")),
    ),
)


def format_names() -> list[str]:
    return [form.name for form in FORMATS]


def open_source(source: str | Path, form: str | None, options: ImportOptions) -> Source:
    """Opens a source; `form` is the name of its format, detected by default."""
    where = str(source)
    if not _is_url(where) and not Path(where).exists():
        raise SourceError(f"{where} does not exist; give a file, a folder or the URL of a server")
    if form is not None:
        for one in FORMATS:
            if one.name == form:
                return one.open(where, options)
        raise ConfigError(f"there is no format {form!r:.60}; choose one of {', '.join(format_names())}")
    return detect(where).open(where, options)


def detect(source: str) -> ImportFormat:
    """The format of a source; SourceError if none fits."""
    for form in FORMATS:
        if form.is_one(source):
            return form
    names = ""
    if Path(source).is_dir():
        names = f" It has {', '.join(sorted(entry.name for entry in Path(source).iterdir())[:6]) or 'no files'}."
    raise SourceError(
        f"{source} is in no format that plait recognizes.{names} Name the format with --from: "
        f"{', '.join(format_names())}"
    )
