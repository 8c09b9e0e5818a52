"""Binding: scheduling results written to the API server."""
