"""Metrics that every process has."""

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

from cluster import version


def register(registry: CollectorRegistry) -> None:
    """Register the version, and CPU, memory and open files."""
    ProcessCollector(registry=registry)
    build = Gauge("tranche_build_info", "Always 1; the version is its label.", ("version",), registry=registry)
    build.labels(version.own().version).set(1)
