"""Preemption: pods of lower priority are evicted for a pod that fits nowhere."""
