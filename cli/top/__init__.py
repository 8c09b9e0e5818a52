"""`kubectl gpu top`: the usage of nodes and cards by pods."""
