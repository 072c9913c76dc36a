"""Quality on judged sets, and the speed of models."""
