"""Expands a workload to its pods, as the controllers of Kubernetes do."""
