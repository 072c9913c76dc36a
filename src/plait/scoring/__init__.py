"""Scores from arrays, in the native core: arrays in, arrays out; no files, no text."""
