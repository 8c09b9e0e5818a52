"""Schedules the pods of a gang together or not at all, and binds them."""
