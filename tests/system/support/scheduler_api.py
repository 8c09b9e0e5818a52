"""The API and the metrics of a scheduler, by HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from lab.layout import Port
from tests.support.patience import PATIENCE_S

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

    from lab.layout import Layout

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def query(layout: Layout, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to the API of a lab's scheduler; return the decoded response."""
    data = json.dumps(body).encode() if body is not None else None
    with _opener.open(url(layout) + path, data=data, timeout=PATIENCE_S) as response:
        return json.load(response)


def metrics(at: str) -> defaultdict[str, list[Sample]]:
    """Return the samples of the scheduler at a URL by their names; a name without any has an empty list."""
    with _opener.open(f"{at}/metrics", timeout=PATIENCE_S) as response:
        families = text_string_to_metric_families(response.read().decode())
    found: defaultdict[str, list[Sample]] = defaultdict(list)
    for family in families:
        for sample in family.samples:
            found[sample.name].append(sample)
    return found


def url(layout: Layout) -> str:
    """Return the URL of a lab's scheduler."""
    return f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}"
