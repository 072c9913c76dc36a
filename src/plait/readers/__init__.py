"""Files to documents: JSON lines, BEIR folders, tab-separated text, plain text, Markdown, and folders of these.

Files are read as a stream, so a source of any size needs little memory. Every error names the file and the line.
"""

from plait.readers.sources import SourceReport, documents_from

__all__ = ["SourceReport", "documents_from"]
