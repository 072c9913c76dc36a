"""One module for each format of checkpoints that plait writes: `write(checkpoint, folder)`. The readers are in
plait.convert.layouts."""
