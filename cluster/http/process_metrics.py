"""Metrics that every process has."""

from importlib import metadata

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector


def register(registry: CollectorRegistry) -> None:
    """Register the version, and CPU, memory and open files."""
    ProcessCollector(registry=registry)
    version = Gauge("tranche_build_info", "Always 1; the version is its label.", ("version",), registry=registry)
    version.labels(metadata.version("tranche")).set(1)
