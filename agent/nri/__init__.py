"""The agent as a plugin of the container runtime (NRI), which gives containers the cards of their allocation."""
