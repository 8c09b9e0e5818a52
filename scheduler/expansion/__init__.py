"""Nodes that an autoscaler is asked for, for pods that fit on no node that exists."""
