"""Placement: which node and which cards a pod gets."""
