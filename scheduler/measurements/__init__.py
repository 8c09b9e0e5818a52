"""What containers really use, as the scheduler reads it from the agents. No decision depends on it."""
