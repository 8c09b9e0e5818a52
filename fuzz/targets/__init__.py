"""The targets. Each module has `try_bytes`, which raises nothing but on a defect."""
