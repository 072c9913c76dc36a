"""Scores from arrays: MaxSim. Arrays in, arrays out; no files, no text."""
