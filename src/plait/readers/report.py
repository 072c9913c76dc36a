"""What was met while reading sources: how much was read, what was passed over and what went wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from plait.errors import SourceError

SHOWN_ERRORS = 5


@dataclass(slots=True)
class SourceReport:
    """Filled while the documents are read; hold it to show progress and to say at the end what was left out."""

    files: int = 0
    documents: int = 0
    bytes_read: int = 0  # as they are on disk, so compressed bytes of a compressed file
    skipped: Counter[str] = field(default_factory=Counter)  # files passed over in folders, by why
    n_errors: int = 0
    first_errors: list[str] = field(default_factory=list)  # of those that were skipped

    def note(self, error: SourceError) -> None:
        """Counts an error that is passed over, and keeps the first few."""
        self.n_errors += 1
        if len(self.first_errors) < SHOWN_ERRORS:
            self.first_errors.append(str(error))

    def notes(self) -> list[str]:
        """What was left out, in sentences; nothing if all was read."""
        notes = []
        if self.skipped:
            kinds = ", ".join(f"{count:,} {why}" for why, count in self.skipped.most_common())
            notes.append(f"passed over {self.skipped.total():,} files: {kinds}")
        if self.n_errors:
            notes.append(f"skipped {self.n_errors:,} that could not be read:")
            notes += [f"  {error}" for error in self.first_errors]
            if self.n_errors > len(self.first_errors):
                notes.append(f"  and {self.n_errors - len(self.first_errors):,} more")
        return notes
