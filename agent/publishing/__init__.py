"""Writes reports and heartbeats to the API server."""
