"""Fuzzing of everything that parses bytes: one file per target, with seeds; run it as `python -m fuzz`."""
