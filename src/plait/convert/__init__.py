"""Checkpoints of other libraries to model folders of plait."""
