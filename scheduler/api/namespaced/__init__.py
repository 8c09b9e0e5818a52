"""The API for users with rights in one namespace, reached through the API server."""
