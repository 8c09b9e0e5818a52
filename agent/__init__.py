"""The agent: reads the GPUs of a node and publishes them to the API server."""
