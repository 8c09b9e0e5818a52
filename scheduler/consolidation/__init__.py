"""Consolidation: pods are moved to other nodes so that one that fits nowhere gets the cards that are left over."""
