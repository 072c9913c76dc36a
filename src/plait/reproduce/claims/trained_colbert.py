"""ColBERTv2 by training."""

EXPERIMENTS = ()
