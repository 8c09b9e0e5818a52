"""The page: what the scheduler knows, for people, followed live."""
