"""The targets. Each module has a function `try_bytes`, which raises only on a bug."""
