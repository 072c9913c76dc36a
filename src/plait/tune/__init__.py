"""Tuning: probing parameters for a recall, and fusion weights for judged queries."""
