"""Imported indexes beside the engines that they came from."""
