"""Placeholder."""

EXPERIMENTS = ()
