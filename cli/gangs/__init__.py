"""`kubectl gpu gangs`."""
