"""The faults, a file for each family."""
