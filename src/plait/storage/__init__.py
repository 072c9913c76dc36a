"""The index on disk: one SQLite catalogue, immutable segment files, snapshots for readers, one writer."""
