"""The API of a lab's scheduler, by HTTP."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from lab.layout import Port

if TYPE_CHECKING:
    from lab.layout import Layout


def query(layout: Layout, path: str, body: dict[str, Any] | None = None) -> Any:
    """Send a request to the scheduler's API; return the decoded response."""
    data = json.dumps(body).encode() if body is not None else None
    url = f"http://127.0.0.1:{layout.port(Port.SCHEDULER)}{path}"
    with urllib.request.urlopen(url, data=data, timeout=30) as response:
        return json.loads(response.read())
