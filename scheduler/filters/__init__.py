"""Filters: whether a node may run a pod, apart from the node's cards."""
