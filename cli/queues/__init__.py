"""`kubectl gpu queues`."""
