"""Which pods still fit."""
