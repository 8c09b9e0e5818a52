"""The agent: reads a node's inventory, and keeps what the API server knows of it equal to what was read."""
