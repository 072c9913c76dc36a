"""One module for each layout of checkpoints: `read(source, overrides) -> Checkpoint`."""
