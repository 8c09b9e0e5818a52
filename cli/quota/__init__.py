"""`kubectl gpu quota`."""
