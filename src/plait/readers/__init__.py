"""Files to documents: text, Markdown, HTML, PDF, DOCX, EPUB, e-mail, notebooks, source code, tables, JSON, and folders
of these.

Files of records are read as a stream, so a source of any size needs little memory. Every error names the file, and the
line, row or page where there is one. A file that cannot be read stops nothing but itself.
"""

from plait.readers.given import ReadOptions
from plait.readers.sources import SourceReport, Sources, documents_from, read_sources

__all__ = ["ReadOptions", "SourceReport", "Sources", "documents_from", "read_sources"]
