"""Writes to the API server, from its own metrics."""

import re
from collections import Counter

from cluster.api import Api

_LINE = re.compile(r"apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset(("POST", "PUT", "PATCH", "APPLY", "DELETE"))


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
