"""The spec of a pod: the fields that scheduling depends on, and how much of them is kept."""
