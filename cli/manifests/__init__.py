"""Manifest files: reading, printing, and finding the pods in them."""
