"""The HTTP API of the scheduler: explain, simulate, allocation, health."""
