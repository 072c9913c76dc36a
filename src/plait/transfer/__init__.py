"""Other people's indexes: `import_index` reads them, `export_index` writes formats that other programs read, and
`passage_reader` and `hits_table` give Arrow data to DuckDB, polars and pandas."""

from __future__ import annotations

from plait.transfer.arrow import hits_table, passage_reader
from plait.transfer.dump import EXPORTS, ExportReport, export_index
from plait.transfer.formats import FORMATS, format_names
from plait.transfer.load import ImportReport, import_index
from plait.transfer.source import ImportOptions

__all__ = [
    "EXPORTS",
    "FORMATS",
    "ExportReport",
    "ImportOptions",
    "ImportReport",
    "export_index",
    "format_names",
    "hits_table",
    "import_index",
    "passage_reader",
]
