"""`kubectl gpu`: a plugin of kubectl that shows, explains and maintains GPU shares."""
