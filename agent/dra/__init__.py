"""Nodes whose cards Kubernetes allocates by DRA: their ResourceSlice, and the agent as the kubelet's DRA plugin."""
