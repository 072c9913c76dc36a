"""Files to documents: JSON lines, BEIR folders, tab-separated text, plain text, Markdown, folders of these. Read as a
stream, so that a source of any size needs little memory; every error names the file and the line."""

from plait.readers.read import documents_from
from plait.readers.report import SourceReport

__all__ = ["SourceReport", "documents_from"]
