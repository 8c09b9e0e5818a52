"""Pods whose cards their nodes do not have any more."""
