"""Which pods belong to which gang, and where they are."""
