"""The parts of the side-by-side of engines, from the corpus to the page; `engine.py` is its command."""
