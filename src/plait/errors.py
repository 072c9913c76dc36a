"""Errors with a cause outside plait's own code. Each message says what was wrong, what was seen and what to do; the
command line prints the message without a traceback."""


class PlaitError(Exception):
    """Base class of all errors that plait raises on purpose."""


class ConfigError(PlaitError):
    """An option or argument has a value that cannot work."""


class InputError(PlaitError):
    """A text, an id, an array or a source file is invalid."""


class DocumentError(InputError):
    """A document is empty, its id is not a string, or its text cannot be stored."""


class QueryError(InputError):
    """A query is empty, is not text, or names documents that are not in the index."""


class SourceError(InputError):
    """A file or folder to index cannot be read; the message names the file, and the line if there is one."""


class FilterError(InputError):
    """A filter cannot be parsed, or compares values of types that cannot be compared."""


class UnknownFieldWarning(UserWarning):
    """A filter accepts no document and names a field that no document has, or a search sorts or groups by one."""


class SearchTimeoutError(PlaitError):
    """A search did not end within its timeout; the message names the stage and the time."""


class SearchCancelledError(PlaitError):
    """The deadline of a search was cancelled, from another thread."""


class ModelError(PlaitError):
    """A model folder is missing or damaged, or the model lacks something that was requested."""


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


class ServerError(PlaitError):
    """A server cannot be reached, is busy, failed, or gave an answer that plait does not understand."""


class AccessError(PlaitError):
    """A server refused a call: the key is missing or wrong, or does not allow it."""
