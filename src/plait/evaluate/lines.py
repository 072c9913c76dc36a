"""Lines of the files that hold queries, judgements and runs; plain or .gz, always UTF-8."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from plait.errors import InputError, SourceError
from plait.readers.lines import Line, opened, read_lines


def lines_of(file: str | Path) -> Iterator[Line]:
    """The lines that are not blank. SourceError names the file, and the line that is not UTF-8."""
    file = Path(file)
    try:
        with opened(file) as stream:
            for line in read_lines(stream, str(file)):
                if isinstance(line, SourceError):
                    raise line
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"cannot read {file}: {error}") from error


def find(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, or of that name with .gz."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def existing(folder: Path, name: str, *, hint: str) -> Path:
    file = find(folder, name)
    if file is None:
        raise InputError(f"there is no {folder / name} (nor {name}.gz); {hint}")
    return file
