"""Prometheus instruments of the scheduler."""
