"""`kubectl gpu bindings`."""
