"""The model folder of plait-multilingual, as a package that plait finds by its entry point. No code."""
