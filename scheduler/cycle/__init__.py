"""One scheduling decision: from the head of the queue to a reserved node."""
