"""What is written to the API server, by its own count."""

import re
from collections import Counter

from cluster.api import Api

_LINE = re.compile(r"apiserver_request_total\{(?P<labels>.*)\} (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = frozenset(("POST", "PUT", "PATCH", "APPLY", "DELETE"))


async def count(api: Api) -> Counter[str]:
    """Answer the writes since the API server's start by resource, `pods/binding` for a subresource."""
    found: Counter[str] = Counter()
    for line in (await api.request("GET", "/metrics")).decode().splitlines():
        if match := _LINE.fullmatch(line):
            labels = dict(_LABEL.findall(match["labels"]))
            if labels["verb"] in _WRITES and labels["dry_run"] == "":
                subresource = labels["subresource"]
                found[labels["resource"] + (f"/{subresource}" if subresource else "")] += int(float(match["value"]))
    return found
