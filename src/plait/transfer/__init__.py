"""Other people's indexes: `import_index` reads them, `export_index` writes formats that other programs read, and
`passage_reader` gives passages as Arrow data to DuckDB, polars and pandas; `plait.integrations.arrow` gives hits."""

from __future__ import annotations

from plait.transfer.arrow import passage_reader
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
    "import_index",
    "passage_reader",
]
