"""`kubectl gpu topology`."""
