"""Hostile bytes for everything that reads bytes: one target a file, seeds beside them, `python -m fuzz`."""
