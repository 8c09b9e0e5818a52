"""Which cards of a node belong together: how they are connected, and the sets that suit a pod best. Pure."""
