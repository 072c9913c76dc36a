"""Pieces of work that arms of several claims share."""
