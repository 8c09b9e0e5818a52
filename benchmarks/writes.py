"""Writes to the API server, from its own metrics."""

import re
from collections import Counter

import msgspec

from benchmarks import cluster
from cluster.api import Api
from cluster.resource import EVENTS

_LINE = re.compile(r"apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset(("POST", "PUT", "PATCH", "APPLY", "DELETE"))


class _Rest(msgspec.Struct, rename="camel"):
    remaining_item_count: int = 0


class _Events(msgspec.Struct):
    metadata: _Rest
    items: list[msgspec.Raw] = []


async def count(api: Api) -> Counter[str]:
    """Return the writes since the API server started, by resource; `pods/binding` is a subresource."""
    writes: Counter[str] = Counter()
    for line in (await api.request("GET", "/metrics")).decode().splitlines():
        if match := _LINE.fullmatch(line):
            labels = dict(_LABEL.findall(match["labels"]))
            if labels["verb"] in _WRITES and labels["dry_run"] == "":
                subresource = labels["subresource"]
                writes[labels["resource"] + (f"/{subresource}" if subresource else "")] += int(float(match["value"]))
    return writes


async def events(api: Api, *, namespace: str = cluster.NAMESPACE) -> int:
    """Return how many events a namespace has."""
    listed = await api.request("GET", EVENTS.path(namespace=namespace), params={"limit": "1"})
    found = msgspec.json.decode(listed, type=_Events)
    return len(found.items) + found.metadata.remaining_item_count
