"""The files of the cross-encoder plait-cross-small, beside this file; plait loads them by the model's name."""
