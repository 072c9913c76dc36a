"""The server: indexes behind HTTP. Needs `pip install 'plait[serve]'`; importing this package loads nothing of it."""
