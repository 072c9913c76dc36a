"""The model folder of plait-gte-small, as a package that plait finds by its entry point. No code."""
