"""Filters of frameworks to the text of plait filters. These modules need no framework: they read dictionaries, and
objects by their attributes."""
