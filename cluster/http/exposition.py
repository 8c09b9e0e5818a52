"""Renders the metrics of a process for Prometheus without blocking the event loop for long.

`prometheus_client` takes about 10 µs per line, which is too long if every card of a large fleet has several. Such large
families render themselves in parts, and yield to the event loop between them.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, disable_created_metrics, generate_latest

from cluster import version

# One series in seven would say when a counter began, which nothing here is asked.
disable_created_metrics()  # type: ignore[no-untyped-call]

_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Registry(CollectorRegistry):
    """A registry that supports families with many lines.

    Attributes:
        large: functions that yield the text of such families in parts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.large: list[Callable[[], AsyncIterator[str]]] = []


def register_process(registry: CollectorRegistry) -> None:
    """Register the metrics that every process has: its version, and CPU, memory and open files."""
    ProcessCollector(registry=registry)
    build = Gauge("tranche_build_info", "Always 1; the version is its label.", ("version",), registry=registry)
    build.labels(version.own().version).set(1)


async def text(registry: Registry) -> bytes:
    """Return the text of all registered metrics."""
    parts = [generate_latest(registry)]
    for render in registry.large:
        parts += [part.encode() async for part in render()]
    return b"".join(parts)


def metrics_route(*registries: Registry) -> web.RouteDef:
    """Return the route of `/metrics`, which is the same in every process."""

    async def show(_request: web.Request) -> web.Response:
        body = b"".join([await text(registry) for registry in registries])
        return web.Response(body=body, headers={"Content-Type": _CONTENT_TYPE})

    return web.get("/metrics", show)


def labels(pairs: Mapping[str, str]) -> str:
    """Return the label part of a line, with escaped values."""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs.items()) + "}"
