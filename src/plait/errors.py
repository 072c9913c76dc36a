"""Every error that plait raises for a cause outside its own code. Each message says what was wrong, what was seen and
what to do; the command line prints the message and no traceback."""


class PlaitError(Exception):
    """The root: catch this to catch all that plait raises on purpose."""


class ConfigError(PlaitError):
    """An option has a value that cannot work."""


class InputError(PlaitError):
    """A text, an id, an array or a source file cannot be taken as it is."""


class DocumentError(InputError):
    """A document is empty, has an id that is not a string, or holds text that cannot be stored."""


class QueryError(InputError):
    """A query is empty or not text."""


class SourceError(InputError):
    """A file or folder that was to be indexed cannot be read; names the file, and the line where there is one."""


class FilterError(InputError):
    """A filter expression cannot be parsed or compares what cannot be compared."""


class ModelError(PlaitError):
    """A model folder is missing, damaged, or lacks what was asked of it."""


class EncoderMismatchError(ModelError):
    """An index was built with one encoder and opened with another."""


class StoreError(PlaitError):
    """An index on disk cannot be opened, read or written."""


class NotAnIndexError(StoreError):
    """The folder is not a plait index."""


class NewerFormatError(StoreError):
    """The index was written by a newer plait than this one."""


class CorruptIndexError(StoreError):
    """A file of the index is truncated, changed or missing."""


class LockedError(StoreError):
    """Another process is writing to the index."""


class ReadOnlyError(StoreError):
    """The index cannot be written: a read-only disk, folder or handle."""
