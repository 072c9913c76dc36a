"""RetroMAE: pre-training that makes one vector hold a text, by having a weak decoder rebuild the text from it."""
